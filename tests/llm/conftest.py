"""Fixtures of llm_packages.py, a module of its own so that test scripts can import it, and of engine_tools.py."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from engine_tools import alone, make_engine  # noqa: F401
from llm_packages import demo_package, demo_prompts, strict_mode, tiny_package  # noqa: F401
