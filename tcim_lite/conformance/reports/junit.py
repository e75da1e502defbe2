"""junit.xml, which CI systems show."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from ..results import CRASHED, FAILED, FLAKY, HUNG, NOT_RUN, UNEXPECTED, WAIVED, Run

_ELEMENT = {
    FAILED: "failure",
    FLAKY: "failure",
    CRASHED: "error",
    HUNG: "error",
    NOT_RUN: "skipped",
    WAIVED: "skipped",
}
# What XML 1.0 has no way to say.
_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def document(run: Run) -> bytes:
    """The file."""
    kinds = [_ELEMENT.get(result.outcome) for result in run.results]
    suite = ElementTree.Element(
        "testsuite",
        name=f"conformance.{run.tier}",
        tests=str(len(kinds)),
        failures=str(kinds.count("failure") + len(run.missing)),
        errors=str(kinds.count("error")),
        skipped=str(kinds.count("skipped")),
        time=f"{run.seconds:.3f}",
    )
    for result, kind in zip(run.results, kinds, strict=True):
        group, _, _ = result.id.partition("::")
        case = ElementTree.SubElement(
            suite, "testcase", classname=group, name=_clean(result.title), time=f"{result.seconds:.3f}"
        )
        if kind:
            first = result.detail.strip().partition("\n")[0]
            message = f"{result.outcome}: {_last_line(result.detail) if kind == 'failure' else first}"
            ElementTree.SubElement(case, kind, message=_clean(message)).text = _clean(result.detail)
        elif result.outcome == UNEXPECTED:
            ElementTree.SubElement(case, "system-out").text = _clean(f"unexpected pass; {result.detail}")
    for id_ in run.missing:
        case = ElementTree.SubElement(suite, "testcase", classname="must_pass", name=id_)
        ElementTree.SubElement(case, "failure", message="a must-pass case that the suite no longer has")
    root = ElementTree.Element("testsuites")
    root.append(suite)
    return ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)


def _last_line(detail: str) -> str:
    """Of a traceback, the exception."""
    lines = [line for line in detail.partition("\n--- printed ---")[0].strip().splitlines() if line[:1].strip()]
    return lines[-1] if lines else ""


def _clean(text: str) -> str:
    return _FORBIDDEN.sub("?", text)
