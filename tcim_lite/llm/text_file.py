"""Text files that a command line names: prompts, schemas, templates."""

from __future__ import annotations

from pathlib import Path

_MOST_CHARACTERS = 64 << 20  # far more than any prompt, schema or template has


def read_text(path: Path) -> str:
    """The text of a file.

    Raises:
        OSError: It cannot be read.
        ValueError: It is no regular file (opening a FIFO would wait, a device may have no end), has more than 64 Mi
            characters, or is not UTF-8.
    """
    if path.exists() and not path.is_file():
        raise ValueError(f"{path}: is {'a folder' if path.is_dir() else 'not a regular file'}; give the path of a file")
    try:
        with path.open(encoding="utf-8") as file:
            text = file.read(_MOST_CHARACTERS + 1)
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 text: {error}") from None
    if len(text) > _MOST_CHARACTERS:
        raise ValueError(f"{path}: has more than {_MOST_CHARACTERS} characters; check the path")
    return text
