"""`python -m tcim_lite`: the command `tcim-lite`."""

import sys

from . import _check_installed

try:
    _check_installed()
except ImportError as error:
    sys.exit(f"error: {error}")

from .cli import entry_point

entry_point()
