"""A platform of vLLM: `vllm serve PACKAGE` (docs/vllm.md). Nothing else of tcim_lite imports vLLM."""

from __future__ import annotations

import os
from importlib.metadata import entry_points

VERSION = "0.32."  # one minor of vLLM: what is overridden has no promise beyond it
_GROUP = "vllm.platform_plugins"


def register() -> str | None:
    """The platform's class, where it was asked for or nothing else could work; entry point `vllm.platform_plugins`.

    vLLM calls this only if `VLLM_PLUGINS` names it or is unset.
    """
    offered = "tcim_lite.vllm.platform.TcimPlatform"
    if "VLLM_PLUGINS" in os.environ:
        return offered
    if any(entry.name != "tcim_lite" for entry in entry_points(group=_GROUP)):
        return None
    from vllm.platforms import builtin_platform_plugins

    return None if any(plugin() for plugin in builtin_platform_plugins.values()) else offered
