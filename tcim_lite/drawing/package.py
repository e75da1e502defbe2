"""Draws a file or a package folder into a file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from ..errors import ArgumentError, HmmFormatError
from ..hmm import Container, read
from .page import page
from .svg import Part, svg
from .text import printable

SUFFIXES = (".svg", ".html")


def draw(
    path: Path, output: Path, part: str | None = None, failed: Callable[[HmmFormatError], None] | None = None
) -> None:
    """Writes a picture of the graphs of a package.

    Args:
        path: A `.hmm` or `.hmms`, or a folder that holds some.
        output: The file to write: `.svg` for one graph, `.html` for a page with all of them.
        part: The name of the graph to draw, as `parts_of` gives it; None draws all of them, or the only one.
        failed: Called for each file of a folder that cannot be read, which is then left out; None raises its error.

    Raises:
        ArgumentError: Another suffix, an unknown part, or an `.svg` of several graphs.
        HmmFormatError: A file that cannot be read or has no graph.
        OSError: `output` cannot be written.
    """
    if output.suffix not in SUFFIXES:
        raise ArgumentError(
            f"{str(output)!r:.200} ends in neither of {', '.join(SUFFIXES)}, which choose what is drawn"
        )
    parts = parts_of(path, failed)
    names = ", ".join(printable(one.name, 60) for one in parts[:40])
    if part is not None:
        parts = [one for one in parts if one.name == part]
        if not parts:
            raise ArgumentError(f"{path} has no graph {part!r:.80}; it has {names}")
    if output.suffix == ".html":
        text = page(path.resolve().name, parts)
    elif len(parts) > 1:
        raise ArgumentError(f"{path} has the graphs {names}; an .svg shows one: add --part NAME, or write an .html")
    else:
        text = svg(parts[0])
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        if error.filename is None:  # opened, then the disk was full
            output.unlink(missing_ok=True)
        raise OSError(error.errno, error.strerror, str(output)) from None


def parts_of(path: Path, failed: Callable[[HmmFormatError], None] | None = None) -> list[Part]:
    """Returns the graphs of a file, or of a folder's files by name; of several devices, one for each.

    Args:
        path: A file or a folder.
        failed: As of `draw`.

    Raises:
        HmmFormatError: A file that cannot be read, or none that has a graph.
    """
    parts: list[Part] = []
    for file in _files(path):
        try:
            container = read(file)
        except HmmFormatError as error:
            if failed is None or not path.is_dir():
                raise
            failed(error)
            continue
        parts += _named(file.stem, container)
    if not parts:
        raise HmmFormatError(
            f"{path} has no graph; expected a .hmm or .hmms, or a folder that `tcim-lite compile` wrote"
        )
    return parts


def _files(path: Path) -> Sequence[Path]:
    return sorted(file for file in path.iterdir() if file.suffix in (".hmm", ".hmms")) if path.is_dir() else [path]


def _named(stem: str, container: Container) -> list[Part]:
    if len(container.graphs) == 1:
        return [Part(stem, container, container.graphs[0])]
    return [Part(f"{stem}:{rank}", container, graph) for rank, graph in enumerate(container.graphs)]
