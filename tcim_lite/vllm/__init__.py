"""A platform of vLLM: `vllm serve PACKAGE` (docs/vllm.md). Nothing else of tcim_lite imports vLLM."""

from __future__ import annotations

import os
from importlib.metadata import entry_points
from pathlib import Path

VERSION = "0.33."  # one minor of vLLM: what is overridden has no promise beyond it
_GROUP = "vllm.platform_plugins"


def register() -> str | None:
    """The platform's class, where it was asked for or nothing else could work; entry point `vllm.platform_plugins`.

    vLLM calls this only if `VLLM_PLUGINS` names it or is unset.
    """
    if not _is_wanted():
        return None
    _leave_source_trees_out()
    return "tcim_lite.vllm.platform.TcimPlatform"


def register_models() -> None:
    """Has vLLM take packages for models of text; entry point `vllm.general_plugins`, which vLLM calls in each process.

    It does nothing where another platform is at work.
    """
    from vllm.platforms import current_platform

    if type(current_platform).__module__ != "tcim_lite.vllm.platform":
        return
    from vllm.model_executor.models import ModelRegistry
    from vllm.transformers_utils import config

    from .text_model import ARCHITECTURE, FOR_VECTORS, WITH_IMAGES, WITH_WRITTEN_MARKS, PackageConfigParser

    classes = {
        ARCHITECTURE: "PackageModel",
        FOR_VECTORS: "PackageForVectors",
        WITH_IMAGES: "PackageWithImages",
        WITH_WRITTEN_MARKS: "PackageWithWrittenMarks",
    }
    for architecture, name in classes.items():
        ModelRegistry.register_model(architecture, f"tcim_lite.vllm.text_model:{name}")
    config._CONFIG_FORMAT_TO_CONFIG_PARSER["hf"] = PackageConfigParser  # its own call warns that it is replaced


def _is_wanted() -> bool:
    if "VLLM_PLUGINS" in os.environ:
        return True
    if any(entry.name != "tcim_lite" for entry in entry_points(group=_GROUP)):
        return False
    from vllm.platforms import builtin_platform_plugins

    return not any(plugin() for plugin in builtin_platform_plugins.values())


def _leave_source_trees_out() -> None:
    """Has what vLLM starts import the package that is installed, not its sources in the working folder.

    vLLM runs `python -m` to look at a model's class, and that searches the working folder first. The sources there have
    no compiled core.
    """
    beside = Path("tcim_lite")
    if beside.is_dir() and beside.resolve() != Path(__file__).resolve().parents[1]:
        os.environ.setdefault("PYTHONSAFEPATH", "1")
