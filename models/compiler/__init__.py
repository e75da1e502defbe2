"""Compiles a checkpoint of any family into a package."""

from .compile import compile_checkpoint
from .options import CompileOptions, CompileResult

__all__ = ["CompileOptions", "CompileResult", "compile_checkpoint"]
