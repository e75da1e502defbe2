"""Writes the golden files and what they say beside this script: `python tests/data/hmm/make_golden.py [FOLDER]`.

A file that is here is never made anew: a new minor version gets files of its own.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from golden_graphs import (
    every_op_data,
    every_op_graph,
    hidden_exponent_graph,
    minimal_graph,
    mul_graph,
    part_graph,
    pattern,
    ports_graph,
    with_ports,
)
from golden_ops import (
    computed_rope_graph,
    groups_graph,
    linear_attention_data,
    linear_attention_graph,
    moe_data,
    moe_graph,
    network_data,
    network_graph,
    resizer_graph,
    window_graph,
)

from tcim_lite.hmm import (
    WHOLE,
    Graph,
    Sibling,
    Split,
    WeightData,
    WeightsWriter,
    packed_bytes,
    read,
    write_model,
)
from tcim_lite.hmm.__main__ import summary

_PRODUCER = "tcim_lite golden"


def write_two_devices(path: Path, parts: list[Graph]) -> None:
    """The caches are cut along their heads, everything else is whole on both devices."""
    shapes = [
        ("norm", "float32", "dense", (48,)),
        ("head.0", "float16", "linear_f16", (16, 48)),
        ("head.1", "float16", "linear_f16", (4, 48)),
    ]
    weights = [WeightData(*row, pattern(packed_bytes(row[2], row[3], row[1]), i)) for i, row in enumerate(shapes)]
    split = Split([WHOLE, WHOLE, WHOLE, 1, 1], [WHOLE])
    write_model(path, parts, weights, split=split, producer=_PRODUCER)


def make(folder: Path) -> None:
    write_model(folder / "minimal.hmm", minimal_graph(), [], producer=_PRODUCER)
    write_model(
        folder / "every_op.hmm", every_op_graph(4), every_op_data(), custom_msg='{"é": 1}', ncore=2, producer=_PRODUCER
    )
    with WeightsWriter(folder / "shared.hmw", producer=_PRODUCER) as weights:
        entries = [weights.add(w.name, w.dtype, w.format, w.shape, w.data) for w in every_op_data()]
        # A second name for the same content: stored once.
        weights.add("cos_again", "float16", "dense", (32, 8), every_op_data()[2].data)
    sibling = Sibling("shared.hmw", weights.id)
    write_model(folder / "external.hmm", every_op_graph(1), entries, sibling=sibling, producer=_PRODUCER)
    parts = [part_graph(0), part_graph(1)]
    write_two_devices(folder / "two_devices.hmms", parts)
    write_two_devices(folder / "ports_two_devices.hmms", [with_ports(part) for part in parts])
    write_model(folder / "ports.hmm", ports_graph(), [], producer=_PRODUCER)
    write_model(folder / "mul.hmm", mul_graph(), [], producer=_PRODUCER)
    weight = WeightData(
        "weight", "uint8", "linear_w8", (20, 64), pattern(packed_bytes("linear_w8", (20, 64), "uint8"), 3)
    )
    write_model(folder / "window.hmm", window_graph(), [], producer=_PRODUCER)
    write_model(folder / "softcap.hmm", window_graph(softcap=30.0), [], producer=_PRODUCER)
    write_model(folder / "computed_rope.hmm", computed_rope_graph(), [], producer=_PRODUCER)
    write_model(folder / "network.hmm", network_graph(), network_data(), producer=_PRODUCER)
    colours = WeightData("colours", "float32", "dense", (3, 6), np.arange(18, dtype=np.float32))
    write_model(folder / "resizer.hmm", resizer_graph(), [colours], producer=_PRODUCER)
    write_model(folder / "moe.hmm", moe_graph(), moe_data(), producer=_PRODUCER)
    heads = WeightData(
        "heads", "uint8", "linear_w8", (2, 4, 64), pattern(packed_bytes("linear_w8", (2, 4, 64), "uint8"), 5)
    )
    write_model(folder / "groups.hmm", groups_graph(), [heads], producer=_PRODUCER)
    data = linear_attention_data()
    write_model(folder / "linear_attention.hmm", linear_attention_graph(), data[:3], producer=_PRODUCER)
    write_model(folder / "state_space.hmm", linear_attention_graph(steps=True), data, producer=_PRODUCER)
    write_model(folder / "hidden_exponent.hmm", hidden_exponent_graph(), [weight], producer=_PRODUCER)
    for path in sorted(path for path in folder.iterdir() if path.suffix in (".hmm", ".hmms", ".hmw")):
        path.with_name(path.name + ".txt").write_text(summary(read(path)) + "\n")


if __name__ == "__main__":
    make(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
