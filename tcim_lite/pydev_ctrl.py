"""The vendor documentation's name of `tcim_lite.dev_ctrl`: the same module object."""

import sys

from tcim_lite import dev_ctrl
from tcim_lite.dev_ctrl import *  # noqa: F403 - for type checkers

sys.modules[__name__] = dev_ctrl
