"""The tables of a comparison, from the rows of its CSV. Medians over the rounds; ratios are of runs of one round."""

import statistics
from collections.abc import Callable, Sequence

from .shapes import cache_row_bytes, linear_operations, title_of
from .timing import DEPTH, PROMPTS, STEPS

Row = dict  # of the CSV: figures in seconds and bytes, limits per second
RATES = {
    **{f"prefill {length}": (f"prefill_{length}_s", length) for length in PROMPTS},
    "decode": ("decode_0_s", 1),
    f"decode at {DEPTH}": (f"decode_{DEPTH}_s", 1),
}
MOVED = 1.5  # times the core-to-core time before a run, or less by it: the host moved the processors


def tables(rows: Sequence[Row]) -> str:
    """Everything that is printed, in Markdown, a section a size."""
    parts = []
    for shape in dict.fromkeys(row["shape"] for row in rows):
        of_shape = [row for row in rows if row["shape"] == shape]
        sides = {name: _of(of_shape, name) for name in dict.fromkeys(row["side"] for row in of_shape)}
        parts += [_heading(shape, of_shape), _speeds(sides), _shares(sides), _ratios(sides), _memory(sides)]
    return "\n\n".join(part for part in parts if part)


def roof_seconds(row: Row, rate: str, int8: str = "int8") -> float | None:
    """Seconds that a figure takes at the limit measured before it.

    For decode, reading every weight and live cache row once; for prefill, the Linear layers at the peak `int8`, or for
    our own float16 at that of fp32. None without such a peak.
    """
    if rate.startswith("prefill"):
        floats = row["fp32"] if row["engine"] == "tcim" and int8 == "int8" else 0
        peak = row[int8] if row["arithmetic"] == "int8" else floats
        return linear_operations(row["shape"], RATES[rate][1]) / peak if peak else None
    depth = DEPTH + STEPS / 2 if rate.endswith(str(DEPTH)) else STEPS / 2
    live = cache_row_bytes(row["shape"], 1 if row["engine"] == "openvino" else 2) * depth  # OpenVINO's cache is u8
    return (row["token_bytes"] + live) / max(row["read"], row["read_model"])


def _of(rows: Sequence[Row], side: str) -> list[Row]:
    return [row for row in rows if row["side"] == side]


def _median(rows: Sequence[Row], value: Callable[[Row], float]) -> float:
    return statistics.median(value(row) for row in rows)


def _heading(shape: str, rows: Sequence[Row]) -> str:
    def span(key: str, unit: float, digits: int = 0) -> str:
        found = sorted(row[key] / unit for row in rows)
        return f"{statistics.median(found):.{digits}f} [{found[0]:.{digits}f}-{found[-1]:.{digits}f}]"

    rounds = len({row["round"] for row in rows})
    pairs = [(row["core_to_core_ns"], row["after_core_to_core_ns"]) for row in rows]
    moved = sum(max(pair) > MOVED * min(pair) for pair in pairs if min(pair) > 0)
    tile = f", int8 tiles (AMX) {span('int8_tile', 1e9)} GOP/s" if max(row["int8_tile"] for row in rows) else ""
    return (
        f"## {title_of(shape)} shape, random weights, {rounds} rounds\n\n"
        f"{rows[0]['machine']}, {rows[0]['threads']:.0f} threads. "
        f"Read {span('read', 1e9, 1)} GB/s, int8 dot product {span('int8', 1e9)} GOP/s{tile}, fp32 {span('fp32', 1e9)} "
        f"GFLOP/s, core to core {span('core_to_core_ns', 1)} ns, another placement "
        f"after the run than before in {moved} of {len(rows)}."
    )


def _speeds(sides: dict[str, list[Row]]) -> str:
    lines = [_line("tokens/s: median [slowest-fastest round]", *RATES), _rule(len(RATES))]
    for name, rows in sides.items():
        cells = []
        for key, tokens in RATES.values():
            found = sorted(tokens / row[key] for row in rows)
            digits = 0 if found[-1] >= 100 else 1
            cells.append(f"{statistics.median(found):.{digits}f} [{found[0]:.{digits}f}-{found[-1]:.{digits}f}]")
        lines.append(_line(name, *cells))
    return "\n".join(lines)


def _shares(sides: dict[str, list[Row]]) -> str:
    columns = [(rate, rate, "int8") for rate in RATES]
    if any(row["int8_tile"] for rows in sides.values() for row in rows):
        columns += [(f"{rate}, AMX peak", rate, "int8_tile") for rate in RATES if rate.startswith("prefill")]
    lines = [
        _line("share of the limit beside it", *(head for head, *_ in columns), "GB a token"),
        _rule(len(columns) + 1),
    ]
    for name, rows in sides.items():
        cells = []
        for _, rate, int8 in columns:
            shares = [roof / row[RATES[rate][0]] for row in rows if (roof := roof_seconds(row, rate, int8)) is not None]
            cells.append(f"{statistics.median(shares):.0%}" if shares else "-")
        lines.append(_line(name, *cells, f"{rows[0]['token_bytes'] / 1e9:.3f}"))
    return "\n".join(lines)


def _ratios(sides: dict[str, list[Row]]) -> str:
    lines = [_line("times as fast", *RATES), _rule(len(RATES))]
    for ours in (name for name in sides if name.startswith("tcim-")):
        for theirs in (name for name in sides if not name.startswith("tcim-")):
            other = {row["round"]: row for row in sides[theirs]}
            pairs = [(row, other[row["round"]]) for row in sides[ours] if row["round"] in other]
            if pairs:
                cells = [f"{statistics.median(b[key] / a[key] for a, b in pairs):.2f}" for key, _ in RATES.values()]
                lines.append(_line(f"{ours} : {theirs}", *cells))
    return "\n".join(lines) if len(lines) > 2 else ""


def _memory(sides: dict[str, list[Row]]) -> str:
    head = ("", "load", "process start to first token", "peak resident", "of it imports", "weights a token")
    lines = [_line(*head), _rule(len(head) - 1)]
    for name, rows in sides.items():
        lines.append(
            _line(
                name,
                f"{_median(rows, lambda row: row['load_s']):.2f} s",
                f"{_median(rows, lambda row: row['first_token_s']):.2f} s",
                *(f"{_median(rows, lambda row, key=key: row[key]) / 1e6:.0f} MB" for key in _MEMORY),
            )
        )
    return "\n".join(lines)


_MEMORY = ("peak_bytes", "imports_bytes", "token_bytes")


def _line(*cells: str) -> str:
    return "| " + " | ".join(cells) + " |"


def _rule(columns: int) -> str:
    return "|---|" + "---|" * columns
