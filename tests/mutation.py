"""Damaged copies of files, for readers that must refuse or read whatever they are given."""

from __future__ import annotations

import copy
import json
import os
import random
from typing import Any

_TOKENS = (b"null", b"{}", b"[]", b'"x"', b"1e999", b"-1", b"NaN", b"9" * 400, b"true", b"[", b"\xff", b",", b"\\u0000")
_VALUES = (
    None, {}, [], "x", "", 1e308, -1, float("nan"), float("inf"), 10**400, 1 << 70, True, "\ud800", "a\0b", "../x",
    "/etc/passwd", "x" * 5000, [1], ["input", "\0"], ["input", "."], {"a": []},
)  # fmt: skip


def count(default: int) -> int:
    """Damaged files of a test: `TCIM_LITE_MUTATIONS`, or few enough for every day."""
    return int(os.environ.get("TCIM_LITE_MUTATIONS", default))


def damaged(content: bytes, rng: random.Random) -> bytes:
    """With one to four places overwritten, cut out, repeated, or replaced by what JSON and TOML have meanings for."""
    made = bytearray(content)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(max(1, len(made)))
        match rng.randrange(5):
            case 0:
                made[at : at + 1] = bytes([rng.randrange(256)])
            case 1:
                made[at : at + 1] = bytes([byte ^ 1 << rng.randrange(8) for byte in made[at : at + 1]])
            case 2:
                del made[at : at + rng.choice((1, 8, 64))]
            case 3:
                made[at:at] = made[at : at + rng.choice((1, 8, 64))]
            case _:
                made[at : at + rng.randint(0, 8)] = rng.choice(_TOKENS)
    return bytes(made)


def damaged_json(content: bytes, rng: random.Random) -> bytes:
    """JSON with one to three of its values replaced: what gets past the parser."""
    value = json.loads(content)
    for _ in range(rng.randint(1, 3)):
        at, key = rng.choice(list(_places(value)) or [([value], 0)])
        at[key] = copy.deepcopy(rng.choice(_VALUES))
    return json.dumps(value).encode()


def _places(value: Any) -> Any:
    for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield value, key
        yield from _places(value[key])
