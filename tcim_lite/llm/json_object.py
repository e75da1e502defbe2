"""The JSON files of a package's tokenizer and configuration."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

_MOST_BYTES = 16 << 20  # of a config


def read_json(path: Path, most_bytes: int = _MOST_BYTES) -> Any:
    """Returns what a file holds.

    Raises:
        ValueError: It is no regular file, larger than `most_bytes`, or no JSON; the message names it.
    """
    if not path.is_file() or path.stat().st_size > most_bytes:
        raise ValueError(f"{path}: expected a regular file of at most {most_bytes} bytes; copy the package again")
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: is not JSON: {error}") from None


def read_object(path: Path, most_bytes: int = _MOST_BYTES) -> dict[str, Any]:
    """Returns the object in a file, or an empty one where there is no file.

    Raises:
        ValueError: As `read_json`, or the file holds no object; the message names it.
    """
    if not path.exists():
        return {}
    found = read_json(path, most_bytes)
    if not isinstance(found, dict):
        raise ValueError(f"{path}: expected a JSON object, found a {type(found).__name__}")
    return found
