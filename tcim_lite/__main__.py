"""`python -m tcim_lite`: the command `tcim-lite`."""

from .cli import entry_point

entry_point()
