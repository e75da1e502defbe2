"""How this package starts one of its modules in a process of its own."""

from __future__ import annotations

import sys

__all__ = ["module_command"]


def module_command(name: str) -> list[str]:
    """The beginning of a command line that runs a module; unlike `python -m` it imports nothing from where it runs."""
    if sys.version_info >= (3, 11):
        return [sys.executable, "-P", "-m", name]
    start = (
        f"import sys; del sys.path[0]; import runpy; runpy.run_module({name!r}, run_name='__main__', alter_sys=True)"
    )
    return [sys.executable, "-c", start]
