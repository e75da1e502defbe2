"""Checkpoints by name, from the Hugging Face hub (extra `[hub]`)."""

from __future__ import annotations

import re
from pathlib import Path

from ..common.errors import CheckpointError, need_extra

_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*(@[\w./-]+)?")
# What the compiler reads: no weights in other formats, no pictures.
_FILES = ["*.json", "*.safetensors", "*.jinja", "merges.txt", "tokenizer.model"]


def is_hub_name(text: str) -> bool:
    """Whether `text` looks like `Owner/Model` or `Owner/Model@revision`."""
    return _NAME.fullmatch(text) is not None


def download(name: str, *, local_files_only: bool = False) -> Path:
    """The folder of a checkpoint in huggingface_hub's own cache, downloaded where it is not there or old.

    `HF_ENDPOINT`, `HF_HOME`, `HF_TOKEN` and `HF_HUB_OFFLINE` are huggingface_hub's.

    Args:
        name: `Owner/Model`, or `Owner/Model@revision` for a branch, tag or commit.
        local_files_only: Use what an earlier download left; ask no server.

    Raises:
        CheckpointError: There is no such model, no network, or no permission; or it has no config.json.
        CompileError: huggingface_hub is not installed.
    """
    try:
        from huggingface_hub import snapshot_download
    except ImportError:
        purpose = f"{name}, which is no folder here but may be a name on the Hugging Face hub,"
        raise need_extra("huggingface_hub", purpose, "hub") from None
    repository, _, revision = name.partition("@")
    try:
        folder = snapshot_download(
            repository,
            revision=revision or None,
            local_files_only=local_files_only,
            allow_patterns=_FILES,
            ignore_patterns=["*/*"],
        )
    except Exception as error:  # of its HTTP library too
        reason = " ".join(str(error).split())[:300] or type(error).__name__
        raise CheckpointError(
            f"{name} is no folder here, and as a name on the Hugging Face hub it cannot be fetched: {reason}"
        ) from None
    if not (Path(folder) / "config.json").is_file():
        raise CheckpointError(f"{name} on the Hugging Face hub has no config.json; expected a model for transformers")
    return Path(folder)
