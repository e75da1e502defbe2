"""The JSON files of a package's tokenizer and configuration."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def read_object(path: Path, most_bytes: int) -> dict[str, Any]:
    """Returns the object in a file, or an empty one where there is no file.

    Raises:
        ValueError: It is no regular file, larger than `most_bytes`, or no JSON object; the message names it.
    """
    if not path.exists():
        return {}
    if not path.is_file() or path.stat().st_size > most_bytes:
        raise ValueError(f"{path}: expected a regular file of at most {most_bytes} bytes; copy the package again")
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise ValueError(f"{path}: expected a JSON object, found a {type(found).__name__}")
    return found
