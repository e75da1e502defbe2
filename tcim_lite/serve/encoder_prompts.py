"""Prompts of encoders: one text, or two as the tokenizer puts them together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ..llm.encoders import EncoderPrompt
from .errors import ApiError
from .text_protocol import Side
from .vocabulary import CHARS_PER_TOKEN, Vocabulary


@dataclass(frozen=True)
class Cut:
    """Whether texts that are too long are cut, and on which side; as Text Embeddings Inference has it.

    Attributes:
        truncate: They are; else they are refused.
        keeps_end: The beginning is cut off, not the end.
    """

    truncate: bool = False
    keeps_end: bool = False

    @classmethod
    def of(cls, truncate: bool | None, side: Side | None) -> Cut:
        """From the fields of a request."""
        return cls(bool(truncate), side in ("Left", "left"))


NO_CUT = Cut()


def pair_prompt(vocabulary: Vocabulary, left: str, right: str, most: int, cut: Cut, field: str) -> EncoderPrompt:
    """The tokens of two texts, at most `most`; the longer text is cut first, as cross encoders are trained.

    Raises:
        ApiError: 400: They have more tokens, and are not to be cut; `field` is to blame.
    """
    length = CHARS_PER_TOKEN * most
    while True:  # a megabyte takes seconds to read, and most of it would be cut off
        pieces = [text[-length:] if cut.keeps_end else text[:length] for text in (left, right)]
        side: Literal["left", "right"] | None = ("left" if cut.keeps_end else "right") if cut.truncate else None
        prompt, whole = vocabulary.encode_pair(pieces[0], pieces[1], most, side)
        if whole > most or length >= max(len(left), len(right)):
            break
        length *= 2
    if whole > most and not cut.truncate:
        raise ApiError(
            400,
            f"{field}: a pair has {whole} tokens, the context holds {most}; shorten a text, or compile with "
            f"a larger {vocabulary.longer}",
            param=field,
            code="context_length_exceeded",
        )
    return prompt
