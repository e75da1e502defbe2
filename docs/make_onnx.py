"""Writes the list of supported ops into docs/onnx.md. Needs the package installed."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

from tcim_lite.models.onnx import lower  # noqa: F401  (fills the table)
from tcim_lite.models.onnx.table import LOWERINGS

PAGE = Path(__file__).parent / "onnx.md"
_LIST = re.compile(r"(?<=## Supported ops\n)(.*?)(?=\n\nRestrictions:)", re.DOTALL)


def page(text: str) -> str:
    """The page with its list of ops as the table has it."""
    ops = sorted(op for domain, op in LOWERINGS if not domain)
    return _LIST.sub(lambda _: "\n".join(textwrap.wrap(", ".join(ops) + ".", 120)), text)


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
