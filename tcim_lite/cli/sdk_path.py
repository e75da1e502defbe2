"""`tcim-lite sdk-path`: where the C++ SDK is installed."""

from __future__ import annotations

import argparse
import importlib.util
from pathlib import Path

HELP = "print where the C++ SDK or the host shims are"
DESCRIPTION = (
    "Prints the folder with include/, lib/ and python/: a value for TCIM_RUNTIME_PATH, or for CMAKE_PREFIX_PATH."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--shims", action="store_true", help="print the folder of host shims instead, for PYTHONPATH of vendor scripts"
    )


def run(args: argparse.Namespace) -> int:
    """Prints one line."""
    from ..errors import TcimError

    folder = Path(__file__).parents[1] / "shims" if args.shims else sdk_path()
    if not folder.is_dir():
        raise TcimError(f"{folder} is missing; install the package again (pip install --force-reinstall tcim-lite)")
    print(folder)
    return 0


def sdk_path() -> Path:
    """The SDK's folder: that of the compiled core, which in an editable install is not where the sources are.

    Raises:
        TcimError: the package was installed without its compiled core.
    """
    from ..errors import TcimError

    core = importlib.util.find_spec("tcim_lite._core")
    if core is None or core.origin is None:
        raise TcimError("the compiled core is missing, and the SDK with it; install the package with pip")
    return Path(core.origin).parent
