"""Draws the roofline of a comparison, a panel a size.  python picture.py ROWS.csv OUT.png OUT.svg

Across: operations of the Linear layers per byte of weights read. Up: operations per second. The slope is the read
rate, the level lines the peaks; a point below the slope waits for memory longer than it must, one below its level line
for arithmetic.
"""

import csv
import statistics
import sys
import textwrap
from pathlib import Path

import matplotlib

sys.path.insert(0, str(Path(__file__).parent.parent))
from compare.shapes import linear_operations, title_of
from compare.timing import PROMPTS

matplotlib.use("Agg")
import matplotlib.pyplot as plt

COLOURS = {"tcim": "tab:red", "llama_cpp": "tab:blue", "openvino": "tab:green", "transformers": "tab:purple"}
MARKERS = "osD^vP*X<>"


def draw(axes, rows: list[dict]) -> None:
    def middle(key: str, chosen: list[dict] = rows) -> float:
        return statistics.median(float(row[key]) for row in chosen)

    read, shape = middle("read"), rows[0]["shape"]
    peaks = {"int8 dot product": middle("int8"), "int8 tiles (AMX)": middle("int8_tile"), "fp32": middle("fp32")}
    intensities = [1.0, 4000.0]
    place = {"ha": "right", "va": "bottom", "fontsize": 7}
    for label, peak in peaks.items():
        if peak:
            knee = peak / read
            axes.plot([knee, intensities[1]], [peak / 1e9] * 2, "k-", linewidth=1)
            axes.annotate(f"{label}, {peak / 1e9:.0f}", (intensities[1], peak / 1e9), **place)
    top = max(peaks.values()) / read or intensities[1]
    axes.plot([intensities[0], top], [intensities[0] * read / 1e9, top * read / 1e9], "k-", linewidth=1)
    axes.annotate(f"read {read / 1e9:.0f} GB/s", (1.2, 1.5 * read / 1e9), rotation=35, fontsize=7)
    for index, side in enumerate(dict.fromkeys(row["side"] for row in rows)):
        chosen = [row for row in rows if row["side"] == side]
        style = {"color": COLOURS[chosen[0]["engine"]], "marker": MARKERS[index % len(MARKERS)], "linestyle": ":"}
        points = []
        for tokens, key in ((1, "decode_0_s"), (PROMPTS[0], f"prefill_{PROMPTS[0]}_s")):
            operations = linear_operations(shape, tokens)
            points.append((operations / middle("token_bytes", chosen), operations / middle(key, chosen) / 1e9))
        axes.plot(*zip(*points, strict=True), label=side, markersize=5, linewidth=0.5, **style)
    axes.set(xscale="log", yscale="log", title=title_of(shape), xlabel="operations per byte of weights")
    axes.set_ylabel("Linear layers, GOP/s")
    axes.grid(True, which="both", linewidth=0.2)
    axes.legend(fontsize=6, loc="lower right")


def main(source: str, *outputs: str) -> None:
    with open(source, newline="") as file:
        rows = list(csv.DictReader(file))
    shapes = list(dict.fromkeys(row["shape"] for row in rows))
    figure, panels = plt.subplots(1, len(shapes), figsize=(5.5 * len(shapes), 5), squeeze=False)
    for axes, shape in zip(panels[0], shapes, strict=True):
        draw(axes, [row for row in rows if row["shape"] == shape])
    title = f"{rows[0]['machine']}, {rows[0]['threads']} threads, {rows[0]['date']}"
    figure.suptitle(textwrap.fill(title, 80 * len(shapes)), fontsize=8)
    figure.tight_layout()
    for output in outputs:
        figure.savefig(output, dpi=150)


if __name__ == "__main__":
    main(*sys.argv[1:])
