"""index.html: one page with everything in it, for a browser in light or dark."""

from __future__ import annotations

from collections import defaultdict
from html import escape
from pathlib import Path

from .. import corners
from ..results import BAD, FLAKY, NOT_RUN, OUTCOMES, PASSED, UNEXPECTED, WAIVED, Result, Run

STYLE = (Path(__file__).parent / "style.css").read_text(encoding="utf-8")
CLASS = {PASSED: "pass", NOT_RUN: "none", WAIVED: "waived", UNEXPECTED: "waived", FLAKY: "flaky"}
SLOWEST = 12


def page(run: Run) -> str:
    """The page."""
    version = run.environment["version"].splitlines()
    counts = run.counts()
    tiles = "".join(
        f'<div class="tile {_class(outcome)}"><b>{counts[outcome]}</b>{outcome}</div>'
        for outcome in OUTCOMES
        if counts[outcome]
    )
    state = "fail" if run.bad or run.missing or not run.executed else "none" if run.open_cases else "pass"
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Conformance of {escape(run.runtime)}</title><style>{STYLE}</style></head><body><main>
<header><p class="kind">Conformance report · tier {escape(run.tier)}{" · strict" if run.strict else ""}</p>
<h1>{escape(run.runtime)} <small>{escape(version[0])}</small></h1>
<p class="verdict {state}">{escape(run.verdict)}</p>
<div class="tiles">{tiles}<div class="tile"><b>{run.seconds:.1f} s</b>in all</div></div></header>
{_troubles(run)}
<section><h2>Corners of the contract</h2>{_matrix(run)}</section>
{_numerics(run)}
{_timings(run)}
<section><h2>Cases</h2>{_groups(run)}</section>
<section><h2>Environment</h2>{_environment(run)}</section>
</main></body></html>
"""


def _class(outcome: str) -> str:
    return CLASS.get(outcome, "fail")


def _worst(results: list[Result]) -> str:
    """The class of a group of results: the worst one, and `none` only if nothing ran."""
    classes = {_class(result.outcome) for result in results}
    return next((name for name in ("fail", "flaky", "waived", "pass") if name in classes), "none")


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
        cells.append(
            f'<a class="corner {_worst(results)}" href="#c{corner:02}" title="{title}">'
            f"<b>C-{corner:02}</b><span>{escape(name)}</span><i>{text}</i></a>"
        )
    return f'<div class="matrix">{"".join(cells)}</div>'


def _troubles(run: Run) -> str:
    shown = [result for result in run.results if result.outcome in BAD or result.outcome in (WAIVED, UNEXPECTED)]
    rows = "".join(_detail(result, is_open=len(shown) < 6) for result in shown)
    rows += "".join(f"<p>missing must-pass case: <code>{escape(id_)}</code></p>" for id_ in run.missing)
    return f"<section><h2>To look at</h2>{rows}</section>" if rows else ""


def _detail(result: Result, is_open: bool = False) -> str:
    return (
        f'<details{" open" if is_open else ""}><summary><span class="mark {_class(result.outcome)}">{result.outcome}'
        f"</span> {escape(result.title)}</summary><p><code>{escape(result.id)}</code></p>"
        f"<pre>{escape(result.detail)}</pre></details>"
    )


def _numerics(run: Run) -> str:
    rows = []
    for result in run.results:
        for number in result.measured:
            share = min(1.0, number["value"] / number["bound"]) if number["bound"] else float(number["value"] > 0)
            rows.append(
                f"<tr><td>{escape(number['what'])}</td><td class=n>{number['value']:.3g}</td>"
                f'<td class=n>{number["bound"]:.3g}</td><td><meter value="{share:.4f}" high="0.999"></meter></td></tr>'
            )
    if not rows:
        return ""
    head = "<tr><th>Number</th><th>Measured</th><th>Bound</th><th>Share of the bound</th></tr>"
    return f'<section><h2>Numerics profile</h2><div class="scroll"><table>{head}{"".join(rows)}</table></div></section>'


def _timings(run: Run) -> str:
    slow = sorted((result for result in run.results if result.outcome != NOT_RUN), key=lambda result: -result.seconds)
    most = max((result.seconds for result in slow), default=0.0) or 1.0
    rows = "".join(
        f"<tr><td>{escape(result.title)}</td><td class=n>{result.seconds:.2f} s</td>"
        f'<td class="bar"><i style="width:{100 * result.seconds / most:.1f}%"></i></td></tr>'
        for result in slow[:SLOWEST]
    )
    return f'<section><h2>Slowest cases</h2><div class="scroll"><table>{rows}</table></div></section>' if rows else ""


def _groups(run: Run) -> str:
    groups: dict[str, list[Result]] = defaultdict(list)
    for result in run.results:
        groups[result.id.partition("::")[0]].append(result)
    anchored: set[int | None] = {None}
    parts = []
    for name, results in groups.items():
        rows = []
        for result in results:
            anchor = "" if result.corner in anchored else f' id="c{result.corner:02}"'
            anchored.add(result.corner)
            why = f'<div class="why">{escape(result.detail.splitlines()[0])}</div>' if result.outcome == NOT_RUN else ""
            rows.append(
                f'<tr{anchor}><td><span class="mark {_class(result.outcome)}">{result.outcome}</span></td>'
                f"<td>{escape(result.title)}{why}</td><td>{result.tier}</td>"
                f"<td class=n>{result.seconds:.2f} s</td></tr>"
            )
        ran = sum(result.outcome != NOT_RUN for result in results)
        parts.append(
            f'<details open><summary><span class="dot {_worst(results)}"></span> {escape(name.replace("_", " "))} '
            f"<small>{ran} of {len(results)} ran</small></summary>"
            f'<div class="scroll"><table>{"".join(rows)}</table></div></details>'
        )
    return "".join(parts)


def _environment(run: Run) -> str:
    facts = {**run.environment}
    facts |= facts.pop("variables", {})
    rows = [(escape(str(name)), escape(str(value))) for name, value in facts.items()]
    text = "".join(f"<tr><th>{name}</th><td>{value}</td></tr>" for name, value in rows)
    return f'<div class="scroll"><table class="facts">{text}</table></div>'
