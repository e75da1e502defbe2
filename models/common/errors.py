"""Errors of the compiler."""

from __future__ import annotations

from tcim_lite.errors import TcimError


class CompileError(TcimError, ValueError):
    """A model cannot be compiled as asked: an option, a config value or a size is at fault."""


class CheckpointError(CompileError):
    """A checkpoint folder cannot be used: a file or tensor is missing, has another shape, or is not finite."""


class CompileWarning(UserWarning):
    """The package was written, but something about it deserves a look."""


def need_extra(package: str, purpose: str, extra: str = "compile") -> CompileError:
    """Returns the error that names the extra to install when `package`, needed for `purpose`, is missing."""
    return CompileError(f"{purpose} needs the package {package!r}: pip install 'tcim-lite[{extra}]'")
