"""Models whose packages are not those of a language model: the record of each, by what its `config.json` says."""

from __future__ import annotations

from pathlib import Path

from .checkpoints.checkpoint import config_of
from .compiler.record import OwnGraphs
from .compiler.source import folder_of
from .policies import POLICIES
from .speech import SPEECH_MODELS

MODELS = {**SPEECH_MODELS, **POLICIES}


def own_graphs_of(checkpoint: Path) -> OwnGraphs | None:
    """Returns the record of a folder, named by itself or by its config.json, that has graphs of its own; else None."""
    folder = folder_of(checkpoint)
    if not (folder.is_dir() and (folder / "config.json").is_file()):
        return None
    config = config_of(folder)
    return MODELS.get(str(config.get("model_type", config.get("type"))))  # LeRobot calls it `type`
