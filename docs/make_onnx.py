"""Writes the lists of supported ops into docs/onnx.md. Needs the package installed."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

from tcim_lite.models.onnx.hmonnx import DOMAIN, blocked
from tcim_lite.models.onnx.table import LOWERINGS

PAGE = Path(__file__).parent / "onnx.md"
_LIST = re.compile(r"(?<=## Supported ops\n)(.*?)(?=\n\nRestrictions:)", re.DOTALL)
_HMONNX = re.compile(r"(?<=\*\*Read\*\*:\n)(.*?)(?=\n\nNot read)", re.DOTALL)
_BLOCKED = re.compile(r"(?<=their reasons:\n\n)(.*?)(?=\n\nGuesses)", re.DOTALL)


def page(text: str) -> str:
    """The page with its list of ops as the table has it."""
    text = _LIST.sub(lambda _: _listed(""), text)
    rows = [f"| {op} | {reason} |" for op, reason in sorted(blocked().items())]
    text = _HMONNX.sub(lambda _: _listed(DOMAIN), text)
    return _BLOCKED.sub(lambda _: "\n".join(["| op | why |", "|---|---|", *rows]), text)


def _listed(of_domain: str) -> str:
    ops = sorted(op for domain, op in LOWERINGS if domain == of_domain)
    return "\n".join(textwrap.wrap(", ".join(ops) + ".", 120))


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
