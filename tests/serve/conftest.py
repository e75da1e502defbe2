"""Fixtures of serve_live.py, which is a module of its own so that tests can import from it."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "llm")]

from serve_live import alone, client, one_slot, packages, raw_alone, server, start  # noqa: F401
