"""A vocabulary of made-up words: every token is text, whichever engine writes it."""

import json
from pathlib import Path


def _byte_letters() -> list[str]:
    """The letters that stand for bytes in byte-level vocabularies, in the order of the bytes."""
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = iter(range(256, 512))
    return [chr(byte) if byte in printable else chr(next(others)) for byte in range(256)]


def words(size: int) -> list[str]:
    """Tokens by id: one for each byte, then words after a space."""
    letters = _byte_letters()
    return [*letters, *(f"{letters[32]}w{number}" for number in range(256, size))]


def write_tokenizer(folder: Path, size: int) -> None:
    """tokenizer.json of the same words."""
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": True}
    model = {"type": "BPE", "vocab": {word: number for number, word in enumerate(words(size))}, "merges": []}
    tokenizer = {
        "version": "1.0",
        "added_tokens": [],
        "pre_tokenizer": byte_level,
        "decoder": byte_level,
        "model": model,
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer_config.json").write_text("{}")
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
