"""Compiles a checkpoint of any family into a package."""

from typing import TYPE_CHECKING, Any

from .options import CompileOptions, CompileResult

if TYPE_CHECKING:
    from .compile import compile_checkpoint

__all__ = ["CompileOptions", "CompileResult", "compile_checkpoint"]


def __getattr__(name: str) -> Any:
    """Imports the compiler when it is asked for: the command line has its options, whatever it is called for."""
    if name != "compile_checkpoint":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .compile import compile_checkpoint

    return compile_checkpoint
