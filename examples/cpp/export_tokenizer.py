"""Writes `cpp_tokenizer.txt` beside a package's tokenizer.json, for the C++ examples. Needs nothing but Python.

python examples/cpp/export_tokenizer.py OUT

The file is words separated by white space; a section is a name, a count, and that many entries:

tcim_lite_tokenizer 1
tokens N      the bytes of each token in hex, by id; "-" for special and unused ones
specials N    id, bytes in hex
merges N      left id, right id, joined id; the first in the list is applied first
letters N     first and last code point of a range of Unicode category L
numbers N     the same for category N
"""

import argparse
import json
import sys
import unicodedata
from pathlib import Path

PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def byte_alphabet() -> dict[str, int]:
    """The printable character that byte-level BPE writes for each byte, as in GPT-2."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + i): byte for i, byte in enumerate(others)}


def category_ranges(category: str) -> list[tuple[int, int]]:
    """Inclusive ranges of the code points whose Unicode category begins with `category`."""
    ranges: list[tuple[int, int]] = []
    for code in range(sys.maxunicode + 1):
        if not unicodedata.category(chr(code)).startswith(category):
            continue
        if ranges and ranges[-1][1] == code - 1:
            ranges[-1] = (ranges[-1][0], code)
        else:
            ranges.append((code, code))
    return ranges


def export(tokenizer: dict) -> str:
    """The text of the file.

    Raises:
        ValueError: it is not a byte-level BPE tokenizer with Qwen's pre-tokenizer.
    """
    model = tokenizer["model"]
    splits = [part.get("pattern") for part in tokenizer["pre_tokenizer"].get("pretokenizers", [])]
    if model["type"] != "BPE" or model.get("ignore_merges") or {"Regex": PATTERN} not in splits:
        raise ValueError("expected a byte-level BPE tokenizer with the pre-tokenizer of Qwen2 and Qwen3")
    alphabet, vocabulary = byte_alphabet(), model["vocab"]
    specials = {added["id"]: added["content"].encode().hex() for added in tokenizer["added_tokens"]}
    tokens = ["-"] * (max([*vocabulary.values(), *specials]) + 1)
    for text, token in vocabulary.items():
        if token not in specials:
            tokens[token] = bytes(alphabet[character] for character in text).hex()
    pairs = [merge.split(" ") if isinstance(merge, str) else merge for merge in model["merges"]]
    merges = [f"{vocabulary[left]} {vocabulary[right]} {vocabulary[left + right]}" for left, right in pairs]
    sections = {
        "tokens": tokens,
        "specials": [f"{token} {text}" for token, text in specials.items()],
        "merges": merges,
        "letters": [f"{begin} {end}" for begin, end in category_ranges("L")],
        "numbers": [f"{begin} {end}" for begin, end in category_ranges("N")],
    }
    lines = ["tcim_lite_tokenizer 1"]
    for name, entries in sections.items():
        lines += [f"{name} {len(entries)}", *entries]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("package", type=Path, help="folder written by `tcim-lite compile`")
    source = parser.parse_args().package / "tokenizer" / "tokenizer.json"
    target = source.with_name("cpp_tokenizer.txt")
    try:
        text = export(json.loads(source.read_text(encoding="utf-8")))
        target.write_text(text, encoding="ascii")
    except OSError as error:
        sys.exit(f"error: {error.filename}: {error.strerror}")
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        sys.exit(f"error: {source}: no tokenizer of byte-level BPE that is complete ({error})")
    print(target)


if __name__ == "__main__":
    main()
