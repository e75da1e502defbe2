"""The compiled packages of tests/llm."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "llm"))

from llm_packages import tiny_package  # noqa: F401
