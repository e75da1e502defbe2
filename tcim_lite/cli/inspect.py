"""`tcim-lite inspect`: what a `.hmm`, `.hmms`, `.hmw` or a package folder holds."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..hmm import Container, Graph, Value


HELP = "show what a .hmm, .hmms, .hmw or package folder holds"
DESCRIPTION = "Shows what a file or a package folder holds."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("path", metavar="FILE|DIR", type=Path)
    parser.add_argument("--weights", action="store_true", help="list every weight")
    parser.add_argument("--taps", action="store_true", help="list every value that TCIM_LITE_TAPS can make an output")
    parser.add_argument(
        "--graph",
        type=Path,
        metavar="OUT",
        help="draw the graphs into OUT, an .svg or .html file, and print nothing else",
    )
    parser.add_argument(
        "--part", metavar="NAME", help="with --graph: only this one, such as qwen3_decode or m:0 (device 0)"
    )
    parser.add_argument("--verify", action="store_true", help="check the checksums of all weights")


def run(args: argparse.Namespace) -> int:
    """Prints the description."""
    from ..errors import ArgumentError, HmmFormatError

    if args.part is not None and args.graph is None:
        raise ArgumentError("--part goes with --graph OUT")
    if args.graph is not None:
        return _draw(args)
    if not args.path.is_dir():
        _print_container(args.path, list_weights=args.weights, list_taps=args.taps, verify=args.verify)
        return 0
    files = sorted(file for file in args.path.iterdir() if file.suffix in (".hmm", ".hmms", ".hmw"))
    if not files:
        raise HmmFormatError(f"{args.path} has no .hmm file; expected a folder that `tcim-lite compile` wrote")
    status = 0
    for file in files:
        try:
            _print_container(file, list_weights=args.weights, list_taps=args.taps, verify=args.verify)
            print()
        except HmmFormatError as error:
            status = 2
            sys.stdout.flush()
            print(f"error: {error}\n", file=sys.stderr, flush=True)
    for folder in ("hmquant", "tokenizer"):
        if not (args.path / folder).is_dir():
            continue  # of a network
        found = sorted(path for path in (args.path / folder).glob("*") if path.is_file())
        sizes = ", ".join(f"{path.name} ({_megabytes(path.stat().st_size)})" for path in found)
        print(f"{folder}/  {sizes or '(nothing)'}")
    return status


def _draw(args: argparse.Namespace) -> int:
    from ..drawing import draw
    from ..errors import HmmFormatError

    errors: list[HmmFormatError] = []
    draw(args.path, args.graph, args.part, errors.append)
    for error in errors:
        print(f"error: {error}", file=sys.stderr)
    print(f"{args.graph}  {_megabytes(args.graph.stat().st_size)}")
    return 2 if errors else 0


def _print_container(path: Path, *, list_weights: bool, list_taps: bool, verify: bool) -> None:
    from ..errors import HmmFormatError
    from ..hmm import read

    container = read(path)
    version = ".".join(map(str, container.version))
    print(f"{path}  {container.kind}, {_megabytes(path.stat().st_size)}")
    print(f"  format {version}, target {container.target}, {container.ncore} core(s), {container.ndevice} device(s), "
          f"by {_printable(container.producer)}, id {container.id.hex()[:16]}")  # fmt: skip
    sibling = None
    if container.sibling is not None:
        place = path.parent / container.sibling.file
        sibling = read(place) if place.is_file() else None
        state = "missing" if sibling is None else "id matches" if sibling.id == container.sibling.id else "ANOTHER ID"
        print(f"  weights in {_printable(container.sibling.file)} ({state})")
    if container.custom_msg:
        print(f"  custom_msg: {_printable(_message(container.custom_msg))}")
    if container.graph is not None:
        _print_graphs(container)
        if list_taps:
            _print_taps(container.graph)
    _print_weights(container, list_weights=list_weights)
    if verify:
        if container.sibling is not None and sibling is None:
            raise HmmFormatError(f"{path}: {container.sibling.file} is missing; copy it beside the .hmm")
        container.verify(sibling)
        print("  checksums: all match")


def _print_graphs(container: Container) -> None:
    """Inputs and outputs as a program sees them: of several devices, the parts together."""
    from ..hmm import WHOLE

    first, split = container.graphs[0], container.split
    for what in ("inputs", "outputs"):
        parts = [[_as_port(graph, id_) for id_ in getattr(graph, what)] for graph in container.graphs]
        axes = getattr(split, what) if split else [WHOLE] * len(parts[0])
        print(f"  {what}:")
        for line in _port_lines([_whole(slot, axis) for *slot, axis in zip(*parts, axes, strict=True)]):
            print(f"    {_printable(line)}")
    ops = Counter(op.kind for op in first.ops)
    each = " on each device" if split else ""
    print(f"  {len(first.ops)} ops{each}: " + ", ".join(f"{count} {kind}" for kind, count in ops.most_common()))


def _as_port(graph: Graph, id_: int) -> Value:
    """A value as the API describes it: images that the resizer reads have a format and four axes."""
    value = graph.values[id_]
    for op in graph.ops:
        if op.kind != "Resizer" or op.inputs[0] != id_:
            continue
        form, batch = str(op.attributes["format"]), value.shape[0]
        luma = form == "YUV400"  # a plain array
        shape = (batch, 1 if luma else 3, int(op.attributes["height"]), int(op.attributes["width"]))
        return replace(value, shape=shape, dtype=value.dtype if luma else f"{value.dtype} {form}")
    return value


def _print_taps(graph: Graph) -> None:
    from ..hmm import tappable

    print("  taps:")
    for op, value in tappable(graph):
        print(f"    {_printable(value.name)}  {value.dtype} {list(value.shape)}  {op.kind}")


def _whole(slot: Sequence[Value], axis: int) -> tuple[Value, str]:
    """One input or output of all devices, how it is laid out and what it is for."""
    kind = "  state" if slot[0].kind == "state" else ""
    if slot[0].role is not None:
        kind += f"  {slot[0].role.name}"
    if axis < 0:
        return slot[0], kind
    extents = [value.shape[axis] for value in slot]
    shape = [*slot[0].shape]
    shape[axis] = sum(extents)
    return replace(slot[0], shape=shape), f"{kind}, axis {axis} cut {'+'.join(map(str, extents))}"


def _print_weights(container: Container, *, list_weights: bool) -> None:
    sizes: dict[str, list[int]] = {}
    for entry in container.weights:
        sizes.setdefault(f"{entry.format} {entry.dtype}", []).append(entry.nbytes)
    summary = ", ".join(f"{len(found)} {kind} ({_megabytes(sum(found))})" for kind, found in sizes.items())
    print(f"  {len(container.weights)} weights: {summary}")
    if list_weights:
        for entry in container.weights:
            what = f"{entry.format} {entry.dtype} {list(entry.shape)}  {entry.hash.hex()[:16]}"
            print(f"    {_printable(entry.name)}  {what}")


def _port_lines(ports: Sequence[tuple[Value, str]]) -> list[str]:
    """One line a port; ports that count on where the one before stopped, such as the caches of layers, share a line."""
    lines: list[str] = []
    start = 0
    while start < len(ports):
        counting = _counting(ports, start)
        stop = start + 1
        while counting and stop < len(ports) and _counting(ports, stop - 1) == counting:
            stop += 1
        value, note = ports[start]
        text = _NUMBER.split(_names(value))
        position = str(start)
        if counting:
            last = _NUMBER.split(_names(ports[stop - 1][0]))
            for token in counting:
                text[token] = f"{{{text[token]}..{last[token]}}}"
            position = f"{start}..{stop - 1}"
        name, *aliases = "".join(text).split("\0")
        also = f"  also {', '.join(aliases)}" if aliases else ""
        lines.append(f"{position:>8}  {name}  {value.dtype} {list(value.shape)}{note}{also}")
        start = stop
    return lines


_NUMBER = re.compile(r"(\d+)")


def _names(value: Value) -> str:
    return "\0".join((value.name, *value.aliases))


def _counting(ports: Sequence[tuple[Value, str]], index: int) -> list[int]:
    """Which numbers in the names of a port are one more in the next port, if all else is equal; else none."""
    if index + 1 == len(ports):
        return []
    (first, note), (second, other) = ports[index : index + 2]
    if (note, first.shape, first.dtype) != (other, second.shape, second.dtype):
        return []
    mine, theirs = _NUMBER.split(_names(first)), _NUMBER.split(_names(second))
    differing = [token for token, (a, b) in enumerate(zip(mine, theirs, strict=False)) if a != b]
    counts = all(token % 2 and int(theirs[token]) == int(mine[token]) + 1 for token in differing)
    return differing if counts and len(mine) == len(theirs) else []


def _message(text: str) -> str:
    try:
        content = json.loads(text)
        return ", ".join(f"{key}={value}" for key, value in content.items())
    except (ValueError, AttributeError):
        return text if len(text) <= 500 else f"{text[:500]}... ({len(text)} characters)"


def _printable(text: str) -> str:
    """Without what a terminal takes for a command."""
    return "".join(char if char.isprintable() else "?" for char in text)


def _megabytes(nbytes: int) -> str:
    return f"{nbytes / 1e6:.2f} MB"
