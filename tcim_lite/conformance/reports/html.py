"""index.html: one page with everything in it, for a browser in light or dark, wide or narrow."""

from __future__ import annotations

from collections import defaultdict
from html import escape
from pathlib import Path

from .. import corners
from ..results import BAD, NOT_RUN, OUTCOMES, PASSED, UNEXPECTED, WAIVED, Result, Run
from . import html_tables
from .html_parts import class_of, cut, mark, plural, section, worst

STYLE = (Path(__file__).parent / "style.css").read_text(encoding="utf-8")
# A link to a case opens the group that it is folded away in.
SCRIPT = """
const unfold = () => { const at = document.getElementById(location.hash.slice(1));
  for (let e = at; e; e = e.parentElement) if (e.tagName === "DETAILS") e.open = true;
  if (at) at.scrollIntoView({block: "center"}); };
addEventListener("hashchange", unfold); unfold();
"""
MEANINGS = {
    WAIVED: "may fail, for a reason that is given",
    UNEXPECTED: "waived, but it passes",
    NOT_RUN: "something it needs is missing",
}
SIGNS = {"pass": "✓", "fail": "✗", "flaky": "✗", "waived": "~", "none": "–"}


def page(run: Run) -> str:
    """The page."""
    parts = [
        _failures(run),
        section("Corners of the contract", _matrix(run), "What programs rely on, by the numbers of the specification."),
        html_tables.numerics(run),
        _waived(run),
        _not_run(run),
        html_tables.timings(run),
        section("Cases", html_tables.groups(run)),
        section("Environment", html_tables.environment(run)),
    ]
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Conformance of {escape(run.runtime)}: {escape(run.verdict)}</title><style>{STYLE}</style></head><body><main>
{_header(run)}
{"".join(parts)}
</main><script>{SCRIPT}</script></body></html>
"""


def _header(run: Run) -> str:
    first, *others = run.environment["version"].splitlines()
    state = "fail" if run.bad or run.missing or not run.executed else "none" if run.open_cases else "pass"
    facts = [
        *others,
        plural(run.environment["devices"], "device"),
        f"Python {run.environment['python']}",
        run.environment["processor"],
    ]
    counts = run.counts()
    tiles = "".join(
        f'<div class="tile {class_of(outcome)}" title="{MEANINGS.get(outcome, outcome)}">'
        f"<b>{counts[outcome]}</b>{outcome}</div>"
        for outcome in OUTCOMES
        if counts[outcome]
    )
    share = "".join(
        f'<i class="{class_of(outcome)}" style="flex-grow:{counts[outcome]}"></i>'
        for outcome in OUTCOMES
        if counts[outcome]
    )
    kind = f"Conformance report · tier {run.tier}{' · strict' if run.strict else ''}"
    return f"""<header><p class="kind">{escape(kind)}</p>
<h1>{escape(run.runtime)} <small>{escape(first)}</small></h1>
<p class="facts-line">{" · ".join(escape(str(fact)) for fact in facts if fact)}</p>
<p class="verdict {state}">{SIGNS[state]} {escape(run.verdict)}</p>
<div class="tiles">{tiles}<div class="tile"><b>{run.seconds:.1f} s</b>in all</div></div>
<div class="share" aria-hidden="true">{share}</div></header>"""


def _matrix(run: Run) -> str:
    by_corner: dict[int, list[Result]] = defaultdict(list)
    for result in run.results:
        if result.corner:
            by_corner[result.corner].append(result)
    cells = []
    for corner, name in corners.NAMES.items():
        results = by_corner[corner]
        passed = sum(result.outcome == PASSED for result in results)
        text = f"{passed} of {len(results)}" if results else "not selected"
        title = escape("\n".join(f"{result.outcome}: {result.title}" for result in results), quote=True)
        state = worst(results)
        cells.append(
            f'<a class="corner {state}" href="#c{corner:02}" title="{title}">'
            f"<b>C-{corner:02}<em>{SIGNS[state]}</em></b><span>{escape(name)}</span><i>{text}</i></a>"
        )
    return f'<div class="matrix">{"".join(cells)}</div>'


def _failures(run: Run) -> str:
    bad = [result for result in run.results if result.outcome in BAD]
    rows = "".join(_detail(result, is_open=number < 1) for number, result in enumerate(bad))
    rows += "".join(
        f'<p class="gone">{mark("missing", "fail")} <code>{escape(id_)}</code> has to pass, and is gone</p>'
        for id_ in run.missing
    )
    rows += "".join(
        f'<p class="gone">{mark(UNEXPECTED)} {escape(result.title)} '
        f'<span class="why">{escape(result.detail)}</span></p>'
        for result in run.results
        if result.outcome == UNEXPECTED
    )
    return section("To look at", rows) if rows else ""


def _detail(result: Result, is_open: bool) -> str:
    return (
        f'<details class="trouble"{" open" if is_open else ""}><summary>{mark(result.outcome)} {escape(result.title)}'
        f'<div class="why">{escape(cut(_said(result), 260))}</div></summary>'
        f"<p><code>{escape(result.id)}</code></p><pre>{escape(result.detail)}</pre></details>"
    )


def _said(result: Result) -> str:
    """The first words, which of a traceback are those of the exception; what the process printed comes after it."""
    lines = result.detail.partition("\n--- printed ---")[0].strip().splitlines()
    words = [line for line in lines if line[:1].strip() and not line.startswith("Traceback ")]
    return " ".join(words)


def _waived(run: Run) -> str:
    by_reason: dict[str, list[Result]] = defaultdict(list)
    for result in run.results:
        if result.outcome == WAIVED:
            by_reason[result.detail.partition("\n")[0].removeprefix("waived: ")].append(result)
    rows = []
    for reason, results in sorted(by_reason.items(), key=lambda item: -len(item[1])):
        inner = "".join(
            f"<li>{escape(result.title)}<details><summary>what it said</summary><pre>{escape(result.detail)}</pre>"
            "</details></li>"
            for result in results
        )
        rows.append(
            f'<details class="reason"><summary>{mark(str(len(results)), "waived")} {escape(reason)}</summary>'
            f"<ul>{inner}</ul></details>"
        )
    return section("Waived", "".join(rows), "Cases that may fail, by the reason given for them.") if rows else ""


def _not_run(run: Run) -> str:
    by_reason: dict[str, list[Result]] = defaultdict(list)
    for result in run.results:
        if result.outcome == NOT_RUN:
            by_reason[result.detail.partition("\n")[0]].append(result)
    rows = "".join(
        f'<details class="reason"><summary>{mark(str(len(results)), "none")} {escape(reason)}</summary>'
        f"<ul>{''.join(f'<li>{escape(result.title)}</li>' for result in results)}</ul></details>"
        for reason, results in sorted(by_reason.items(), key=lambda item: -len(item[1]))
    )
    return section("Not run", rows, f"{len(run.open_cases)} of them have to pass.") if rows else ""
