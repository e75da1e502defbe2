"""Fixtures of llm_packages.py, which is a module of its own so that test scripts can import it."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from llm_packages import demo_package, demo_prompts, tiny_package  # noqa: F401
