"""Texts that are cut to fit the context, where a request asks for that."""

from __future__ import annotations

from collections.abc import Callable

from .vocabulary import CHARS_PER_TOKEN, Vocabulary

Encode = Callable[[str], list[int]]


def shortened(vocabulary: Vocabulary, text: str, encode: Encode, most: int, *, keeps_end: bool) -> list[int]:
    """Tokens of as much of a text as gives at most `most` of them; at least one token of the text is kept.

    A cut lies between tokens of the text. What is cut off is not read, but for a piece behind the cut.

    Args:
        vocabulary: Reads the text.
        text: What is cut.
        encode: The tokens of what the text becomes, such as a prompt that contains it.
        most: Tokens.
        keeps_end: The beginning is cut off, not the end.
    """
    piece, length = text, CHARS_PER_TOKEN * most
    while length < len(text):
        piece = text[-length:] if keeps_end else text[:length]
        if len(vocabulary.encode(piece, special=False)) > most:
            break
        piece, length = text, 2 * length
    tokens, offsets = encode(piece), vocabulary.backend_tokenizer.encode(piece, add_special_tokens=False).offsets
    kept = len(offsets)
    while len(tokens) > most and kept > 1:
        kept = max(1, kept - (len(tokens) - most))
        tokens = encode(piece[offsets[-kept][0] :] if keeps_end else piece[: offsets[kept - 1][1]])
    return tokens
