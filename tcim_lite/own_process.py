"""How this package starts processes of its own, and limits them."""

from __future__ import annotations

import resource
import sys

__all__ = ["limit_resource", "module_command"]


def limit_resource(kind: int, most: int) -> None:
    """Sets a limit of this process (`resource.RLIMIT_..`), both soft and hard; one that is lower already stays."""
    for limit in resource.getrlimit(kind):
        most = most if limit == resource.RLIM_INFINITY else min(most, limit)
    resource.setrlimit(kind, (most, most))


def module_command(name: str) -> list[str]:
    """The beginning of a command line that runs a module; unlike `python -m` it imports nothing from where it runs."""
    if sys.version_info >= (3, 11):
        return [sys.executable, "-P", "-m", name]
    start = (
        f"import sys; del sys.path[0]; import runpy; runpy.run_module({name!r}, run_name='__main__', alter_sys=True)"
    )
    return [sys.executable, "-c", start]
