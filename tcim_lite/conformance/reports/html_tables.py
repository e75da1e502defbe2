"""The tables of index.html: numbers, times, cases, environment."""

from __future__ import annotations

from collections import defaultdict
from html import escape
from typing import Any

from ..results import BAD, NOT_RUN, Result, Run
from .html_parts import bar, mark, plural, section, table, worst

SLOWEST = 10


def numerics(run: Run) -> str:
    """Every number that was held to a bound: the worst of a test, and all of them below it."""
    by_test: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for result in run.results:
        if result.measured:
            by_test[result.title.partition(" [")[0]] += result.measured
    rows = []
    for title, numbers in by_test.items():
        shares = [_share(number) for number in numbers]
        inner = "".join(
            f"<tr><td>{escape(number['what'])}</td><td class=n>{number['value']:.3g}</td>"
            f"<td class=n>{number['bound']:.3g}</td><td>{bar(share, _state(share))}</td></tr>"
            for number, share in zip(numbers, shares, strict=True)
        )
        head = "<tr><th>Number</th><th class=n>Measured</th><th class=n>Bound</th><th>Share</th></tr>"
        rows.append(
            f'<details class="number"><summary><span class="what">{escape(title)}</span>'
            f"<small>{plural(len(numbers), 'number')}</small>{bar(max(shares), _state(max(shares)))}"
            f"<small class=n>{max(shares):.0%}</small></summary>{table(inner, head)}</details>"
        )
    note = "Measured numbers and the bounds derived for them; a bar is the largest share of its bound."
    return section("Numerics profile", "".join(rows), note) if rows else ""


def _share(number: dict[str, Any]) -> float:
    return float(number["value"] / number["bound"]) if number["bound"] else float(number["value"] > 0)


def _state(share: float) -> str:
    return "pass" if share <= 1 else "fail"


def timings(run: Run) -> str:
    """The groups' times and the slowest cases."""
    ran = [result for result in run.results if result.outcome != NOT_RUN]
    if not ran:
        return ""
    groups: dict[str, float] = defaultdict(float)
    for result in ran:
        groups[_group(result)] += result.seconds
    slow = {result.title: result.seconds for result in sorted(ran, key=lambda result: -result.seconds)[:SLOWEST]}
    by_time = dict(sorted(groups.items(), key=lambda item: -item[1])[:SLOWEST])
    columns = (_times("Slowest groups", by_time), _times("Slowest cases", slow))
    return section("Time", f'<div class="columns">{"".join(columns)}</div>')


def _times(title: str, seconds: dict[str, float]) -> str:
    most = max(seconds.values()) or 1.0
    rows = "".join(
        f"<tr><td>{escape(name)}{bar(value / most)}</td><td class=n>{value:.2f} s</td></tr>"
        for name, value in seconds.items()
    )
    return f"<div><h3>{title}</h3>{table(rows, kind='times')}</div>"


def groups(run: Run) -> str:
    """Every case, folded away by group unless one of the group went wrong."""
    by_group: dict[str, list[Result]] = defaultdict(list)
    for result in run.results:
        by_group[_group(result)].append(result)
    anchored: set[int | None] = {None}
    parts = []
    for name, results in by_group.items():
        rows = []
        for result in results:
            anchor = "" if result.corner in anchored else f' id="c{result.corner:02}"'
            anchored.add(result.corner)
            why = f'<div class="why">{escape(result.detail.splitlines()[0])}</div>' if result.outcome == NOT_RUN else ""
            rows.append(
                f"<tr{anchor}><td>{mark(result.outcome)}</td><td>{escape(result.title)}{why}</td>"
                f"<td class=tier>{result.tier}</td><td class=n>{result.seconds:.2f} s</td></tr>"
            )
        count = sum(result.outcome != NOT_RUN for result in results)
        is_open = " open" if any(result.outcome in BAD for result in results) else ""
        parts.append(
            f'<details class="group"{is_open}><summary><span class="dot {worst(results)}"></span> {escape(name)} '
            f"<small>{count} of {len(results)} ran</small></summary>{table(''.join(rows), kind='cases')}</details>"
        )
    return "".join(parts)


def environment(run: Run) -> str:
    """What ran where."""
    facts = {**run.environment}
    facts |= facts.pop("variables", {})
    rows = "".join(
        f"<tr><th>{escape(str(name))}</th><td>{escape(str(value))}</td></tr>" for name, value in facts.items()
    )
    return table(rows, kind="facts")


def _group(result: Result) -> str:
    return result.id.partition("::")[0].replace("_", " ")
