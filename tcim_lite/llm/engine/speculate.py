"""Guesses of the next tokens, which one run of the verify graph judges together.

The verify graph gives the logits after each of its tokens, bit for bit those of decode. A guess is used only where it
is what the request would have chosen from them, so answers do not change, sampled ones included.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

import numpy as np

import tcim_lite.runtime as tcim

from ..generate import Generator
from ..kv_cache import load_pair
from ..package import Package
from ..prompt import common_prefix
from .assistant import Assistant
from .guesses import greedy_guesses
from .mtp_layer import MtpLayer
from .request import Request
from .slots import POST_NORM_HIDDEN, Slots

Speculate = Literal["off", "auto", "lookup", "draft"]


class Drafter(Protocol):
    """Something that guesses tokens."""

    def propose(self, text: Sequence[int], count: int) -> list[int]:
        """At most `count` tokens that may follow `text`, prompt and answer; none is a good answer too."""


class PromptLookup:
    """Guesses that the text goes on as it did where its last tokens stood before: quotations, lists, code.

    Args:
        longest: Tokens that must be the same, at first.
        shortest: The least that is tried after it.
    """

    def __init__(self, longest: int = 3, shortest: int = 2):
        if not 1 <= shortest <= longest:
            raise ValueError(f"longest={longest}, shortest={shortest}: expected 1 <= shortest <= longest")
        self.longest, self.shortest = longest, shortest

    def propose(self, text: Sequence[int], count: int) -> list[int]:
        """What stood behind the last place that ends like `text`."""
        ids = np.asarray(text, np.int32)
        for length in range(min(self.longest, len(ids) - 1), self.shortest - 1, -1):
            same = np.ones(len(ids) - length, bool)  # at each place but that of the end itself
            for i in range(length):
                same &= ids[i : i + same.size] == ids[len(ids) - length + i]
            found = np.flatnonzero(same)
            if found.size:
                begin = int(found[-1]) + length
                return ids[begin : begin + count].tolist()
        return []


class DraftModel:
    """Guesses with a small model, greedily, until it is unsure.

    Args:
        model: Of the same vocabulary.
        margin: It stops where the best logit is less than this above the second.
    """

    def __init__(self, model: Generator, margin: float = 1.0):
        self.model, self.margin = model, margin

    @classmethod
    def open(cls, package: Package, device: int = 0) -> DraftModel:
        """The draft that `tcim-lite compile --draft` or `--draft-layers` wrote beside a package.

        Raises:
            FileNotFoundError: There is none; the message names the options.
            TcimError: A file that cannot be loaded.
        """
        draft = package.draft
        prefill, decode = load_pair(draft.prefill_path, draft.decode_path, tcim.WeightManager(device))
        return cls(Generator(prefill, decode, draft.embedding_for(prefill)))

    def propose(self, text: Sequence[int], count: int) -> list[int]:
        """The model's own choices, as many as its context has room for."""
        model, text = self.model, list(text)
        count = min(count, model.context_length - len(text))
        if count < 1:
            return []
        held = min(common_prefix(text, model.cached_tokens), len(text) - 1)
        model.cached_tokens = text[:held]
        if len(text) - held > 2:
            logits = model.prefill(text[held:], held)
        else:
            for place in range(held, len(text)):
                logits = model.decode(text[place], place)
        model.cached_tokens = text

        def after(token: int, guesses: int) -> np.ndarray:
            model.cached_tokens.append(token)
            return model.decode(token, len(model.cached_tokens) - 1)

        return greedy_guesses(logits, count, self.margin, after)


def guess(drafter: Drafter, request: Request, slots: Slots) -> list[int]:
    """Tokens that may follow, as many as the verify graph, the slot and the request's limit have room for."""
    text = [*slots.tokens[request.slot], request.tokens[-1]]
    room = min(slots.verify_length - 1, slots.context_length - len(text))
    if request.params.max_tokens is not None:
        room = min(room, request.params.max_tokens - request.chosen - 1)
    return drafter.propose(text, room)[:room] if room > 0 else []


def _verifier(slots: Slots | None) -> str:
    """The graph that judges guesses where a package lacks one."""
    if slots is None:
        return "verify.hmm"
    if slots.carries:
        return "decode_mtp.hmm"
    if len(slots.stages) > 1:
        return "verify_part0.hmm"
    return "verify.hmms" if len(slots.devices) > 1 else "verify.hmm"


def drafter_for(
    package: Package, speculate: Speculate, vocab_size: int, device: int = 0, slots: Slots | None = None
) -> Drafter | None:
    """What guesses for a package.

    Args:
        package: With a verify graph, but for "off" and "auto".
        speculate: "lookup" for `PromptLookup`; "draft" for the package's draft model, its layer of multi-token
            prediction, or its assistant; "auto" for these where there are any, lookup where there is a verify graph
            alone, and none otherwise; "off" for none.
        vocab_size: V of the package's graphs.
        device: For the draft model.
        slots: What the layer of multi-token prediction or the assistant guesses for.

    Raises:
        FileNotFoundError: The package lacks the graphs; the message names a command that makes them.
        ValueError: Another word, or a draft model with another vocabulary.
    """
    guided = slots if slots is not None and slots.hidden_output else None
    if slots is not None:
        has_verify = guided is not None or slots.verify_length > 0
    else:
        has_verify = package.has("verify.hmm") or package.has("verify.hmms")
    if speculate == "auto":
        if not has_verify or (guided is not None and guided.verify_length < 2):
            return None
        speculate = "draft" if guided is not None or package.has_draft else "lookup"
    if speculate == "off":
        return None
    if speculate not in ("lookup", "draft"):
        raise ValueError(f"speculate={speculate!r}: expected 'off', 'auto', 'lookup' or 'draft'")
    if not has_verify:
        package.graph(_verifier(slots))  # says how to make it
    if speculate == "lookup":
        return PromptLookup()
    if guided is not None:
        guide = MtpLayer if guided.hidden_output == POST_NORM_HIDDEN else Assistant
        return guide.open(package, guided)
    draft = DraftModel.open(package, device)
    if draft.model.vocab_size != vocab_size:
        raise ValueError(
            f"the draft model has {draft.model.vocab_size} tokens, the package {vocab_size}; compile a draft with the "
            "package's tokenizer"
        )
    return draft
