"""Writes the lists of supported ops into docs/onnx.md. Needs the package installed."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

from tcim_lite.models.onnx.hmonnx import blocked
from tcim_lite.models.onnx.lower.hmonnx_ops import DOMAIN
from tcim_lite.models.onnx.table import LOWERINGS

PAGE = Path(__file__).parent / "onnx.md"
_LIST = re.compile(r"(?<=## Supported ops\n)(.*?)(?=\n\nRestrictions:)", re.DOTALL)
_HMONNX = re.compile(r"(?<=\*\*Read\*\*:\n)(.*?)(?=\n\nNot read)", re.DOTALL)
_BLOCKED = re.compile(r"(?<=their reasons:\n\n)(.*?)(?=\n\nGuesses)", re.DOTALL)


def page(text: str) -> str:
    """The page with its list of ops as the table has it.

    Raises:
        ValueError: The page lacks the text around a list.
    """
    rows = [f"| {op} | {reason} |" for op, reason in sorted(blocked().items())]
    table = "\n".join(["| op | why |", "|---|---|", *rows])
    for place, made in ((_LIST, _listed("")), (_HMONNX, _listed(DOMAIN)), (_BLOCKED, table)):
        text, count = place.subn(lambda _, made=made: made, text)
        if count != 1:
            raise ValueError(f"{PAGE.name}: {place.pattern!r} matches {count} times, expected once")
    return text


def _listed(of_domain: str) -> str:
    ops = sorted(op for domain, op in LOWERINGS if domain == of_domain)
    return "\n".join(textwrap.wrap(", ".join(ops) + ".", 120))


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
