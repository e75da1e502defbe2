"""Prints what a `.hmm`, `.hmms` or `.hmw` says: `python -m tcim_lite.hmm FILE [--verify]`."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path

from ..console import run_main
from ..errors import HmmFormatError
from . import layout
from .graph import Value
from .reader import Container, read


def summary(container: Container) -> str:
    """Returns a description of a container, one fact a line."""
    major, minor = container.version
    lines = [
        f"{container.kind} version {major}.{minor} target {container.target} ncore {container.ncore} "
        f"ndevice {container.ndevice} bytes {len(container.data)}",
        f"producer {container.producer}",
        f"id {container.id.hex()}",
    ]
    for section in container.sections:
        name = layout.SECTION_NAMES.get(section.kind, f"kind {section.kind}")
        lines.append(f"section {name} offset {section.offset} bytes {section.nbytes} crc32c {section.crc32c:08x}")
    if container.sibling:
        lines.append(f"sibling {container.sibling.file} id {container.sibling.id.hex()}")
    if container.custom_msg:
        lines.append(f"custom_msg {container.custom_msg}")
    for graph in container.graphs:
        lines.append(f"graph {graph.name} values {len(graph.values)} ops {len(graph.ops)}")
        for what, ids in (("input", graph.inputs), ("output", graph.outputs)):
            for id_ in ids:
                value = graph.values[id_]
                notes = [value.kind] if value.kind == "state" else []
                notes += ["live_rows"] if id_ == graph.live_rows else []
                notes += _port_notes(value)
                lines.append(" ".join([what, value.name, value.dtype, str(list(value.shape)), *notes]))
        for kind, count in sorted(Counter(op.kind for op in graph.ops).items()):
            lines.append(f"op {kind} x {count}")
    if container.split is not None:
        axes = (" ".join(map(str, axes)) for axes in (container.split.inputs, container.split.outputs))
        lines.append("split inputs {} outputs {}".format(*axes))
    for entry in container.weights:
        place = "external" if entry.external else f"offset {entry.offset}"
        lines.append(
            f"weight {entry.name} {entry.format} {entry.dtype} {list(entry.shape)} bytes {entry.nbytes} {place} "
            f"crc32c {entry.crc32c:08x} sha256 {entry.hash.hex()[:16]}"
        )
    return "\n".join(lines)


def _port_notes(value: Value) -> list[str]:
    """Role and aliases, as words."""
    notes = []
    if value.role is not None:
        for what, fact in (("role", value.role.name), ("layer", value.role.layer), ("slot", value.role.slot)):
            notes += [what, str(fact)] if fact is not None else []
    for alias in value.aliases:
        notes += ["alias", alias]
    return notes


def sibling_path(model: Path, name: str) -> Path:
    """Where the sibling of a model lies (docs/hmm-format.md section 8)."""
    beside = model.parent / name
    return beside if beside.exists() else model.resolve().parent / name


def main(arguments: list[str] | None = None) -> int:
    """Runs the command; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tcim_lite.hmm", description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--verify", action="store_true", help="check the CRC-32C and SHA-256 of every weight, too")
    options = parser.parse_args(arguments)
    try:
        container = read(options.file)
        print(summary(container))
        if options.verify:
            sibling = read(sibling_path(options.file, container.sibling.file)) if container.sibling else None
            if sibling is not None:
                sibling.verify()
            container.verify(sibling)
            print("verified")
    except HmmFormatError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    run_main(main)
