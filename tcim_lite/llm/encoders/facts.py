"""What the files of a checkpoint say about an encoder. A package has copies of them; nothing else says these things.

`config.json` has labels and the padding token, `1_Pooling/config.json` of sentence-transformers how vectors are made of
hidden states, `sentence_bert_config.json` how long a text may be, `config_sentence_transformers.json` the prompts.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...text_encoders import POOLINGS
from ..json_object import read_json, read_object
from .activations import ACTIVATIONS

# Modules of sentence-transformers whose work is done here, or changes no direction of a vector.
_MODULES = {"Transformer", "Pooling", "Normalize"}
_MOST_TOKEN = (1 << 31) - 1  # graphs take int32
_UNLIMITED = 1 << 30  # `model_max_length` of tokenizers that know no limit is 1e30


@dataclass(frozen=True, kw_only=True)
class EncoderFacts:
    """What the files say.

    Attributes:
        pad_token: id behind the tokens of a text.
        vocab_size: number of tokens; None if the config does not say.
        max_tokens: of a text, special tokens included; None without a limit but that of the graphs.
        pooling: modes, whose vectors are joined; empty if no file says.
        modules: of sentence-transformers behind the graph that are not computed here.
        labels: names of scores, by index; empty if the config has none.
        activation: from the score of a cross encoder to a rank: "identity", "sigmoid" or "tanh".
        problem_type: of a classifier; "" if the config does not say.
        tells_segments: The model is told which text of a pair a token is of, if the graph takes that; else 0.
        prompts: texts to put before texts, by name.
        pools_prompt: Whether the tokens of such a prompt are pooled, too.
    """

    pad_token: int
    vocab_size: int | None
    max_tokens: int | None
    pooling: tuple[str, ...]
    modules: tuple[str, ...]
    labels: tuple[str, ...]
    activation: str
    problem_type: str
    tells_segments: bool
    prompts: Mapping[str, str]
    pools_prompt: bool

    @classmethod
    def read(cls, folder: Path) -> EncoderFacts:
        """The facts in a tokenizer folder.

        Raises:
            ValueError: A file is damaged or says what is not known here; the message names it.
        """
        config = read_object(folder / "config.json")
        pooling, pools_prompt = _pooling(folder)
        told = read_object(folder / "config_sentence_transformers.json")
        labels = _labels(folder, config)
        named = read_object(folder / "tokenizer_config.json").get("model_input_names")
        return cls(
            pad_token=_number(folder / "config.json", config, "pad_token_id", most=_MOST_TOKEN) or 0,
            vocab_size=_number(folder / "config.json", config, "vocab_size", most=_MOST_TOKEN),
            max_tokens=_max_tokens(folder),
            pooling=pooling,
            modules=_modules(folder),
            labels=labels,
            activation=_activation(folder, config, len(labels)),
            problem_type=str(config.get("problem_type") or ""),
            tells_segments=not isinstance(named, list) or "token_type_ids" in named,
            prompts=_prompts(folder, told),
            pools_prompt=pools_prompt,
        )


def _number(path: Path, found: Mapping[str, Any], key: str, most: float = math.inf) -> int | None:
    value = found.get(key)
    if value is None:
        return None
    if (
        isinstance(value, bool)
        or not isinstance(value, (int, float))
        or not 0 <= value <= most
        or not float(value).is_integer()
    ):
        limit = "or more" if most == math.inf else f"to {most}"
        raise ValueError(f"{path}: {key} is {value!r:.40}; expected a whole number, 0 {limit}")
    return int(value)


def _max_tokens(folder: Path) -> int | None:
    limits = (("sentence_bert_config.json", "max_seq_length"), ("tokenizer_config.json", "model_max_length"))
    found = [_number(folder / name, read_object(folder / name), key) for name, key in limits]
    return min((limit for limit in found if limit is not None and 0 < limit < _UNLIMITED), default=None)


def _pooling(folder: Path) -> tuple[tuple[str, ...], bool]:
    """Modes, and whether prompts are pooled."""
    path = next(iter(sorted(folder.glob("*_Pooling/config.json"))), None)
    if path is None:
        return (), True
    found = read_object(path)
    named = found.get("pooling_mode")
    if named is None:
        # Flags as sentence-transformers names them: "cls_token", "mean_tokens", "lasttoken" and so on.
        ends = ("", "_token", "_tokens")
        modes = [mode for mode in POOLINGS if any(found.get(f"pooling_mode_{mode}{end}") is True for end in ends)]
    else:
        modes = [named] if isinstance(named, str) else list(named) if isinstance(named, list) else [repr(named)]
    if not modes or not all(mode in POOLINGS for mode in modes):
        raise ValueError(f"{path}: the pooling is {modes or 'not named'}; known are {', '.join(POOLINGS)}")
    return tuple(modes), found.get("include_prompt") is not False


def _modules(folder: Path) -> tuple[str, ...]:
    path = folder / "modules.json"
    if not path.exists():
        return ()
    found = read_json(path)
    try:
        names = [str(module["type"]).rpartition(".")[2] for module in found]
    except (TypeError, KeyError):
        raise ValueError(f"{path}: expected a JSON list of objects with a type; copy the package again") from None
    return tuple(name for name in names if name not in _MODULES)


def _labels(folder: Path, config: Mapping[str, Any]) -> tuple[str, ...]:
    named = config.get("id2label")
    if named is None:
        count = _number(folder / "config.json", config, "num_labels") or 0
        return tuple(f"LABEL_{number}" for number in range(min(count, 1 << 16)))
    if not isinstance(named, dict) or set(named) != {str(number) for number in range(len(named))}:
        raise ValueError(f'{folder / "config.json"}: id2label is {named!r:.60}; expected {{"0": NAME, "1": NAME, ...}}')
    return tuple(str(named[str(number)]) for number in range(len(named)))


def _activation(folder: Path, config: Mapping[str, Any], labels: int) -> str:
    """As sentence-transformers chooses it: what the config names, else a sigmoid of a single score."""
    own = config.get("sentence_transformers")
    name = own.get("activation_fn") if isinstance(own, dict) else None
    name = config.get("sbert_ce_default_activation_function") if name is None else name
    if name is None:
        return "sigmoid" if labels == 1 else "identity"
    found = str(name).rpartition(".")[2].lower()
    if found not in ACTIVATIONS:
        raise ValueError(
            f"{folder / 'config.json'}: the activation is {name!r:.80}; known are {', '.join(ACTIVATIONS)}"
        )
    return found


def _prompts(folder: Path, told: Mapping[str, Any]) -> dict[str, str]:
    found = told.get("prompts") or {}
    if not isinstance(found, dict) or not all(isinstance(text, str) for text in found.values()):
        raise ValueError(f"{folder / 'config_sentence_transformers.json'}: prompts are no texts by name")
    return found


def names_of(texts: Sequence[str]) -> str:
    """Names for a message."""
    return ", ".join(re.sub(r"\s+", " ", text)[:40] for text in texts) or "none"
