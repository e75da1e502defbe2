"""Writes a package of parts that are ready."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..common.package import EMBEDDING, files_in, staged_package, write_host_files
from ..common.progress import Progress
from ..weights.pack_stream import worker_pool
from .graph_files import check_neighbours, owned_files
from .options import CompileResult
from .parts import Part
from .prepare import warn
from .source import Source


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """Of a package.

    Attributes:
        name: Prefix of its files.
        source: What it is compiled from, with the files that programs find beside the graphs.
        parts: In the order in which they are written.
        ends: Of names of networks and models that only packages of this kind have, behind `NAME_`.
        files: Names of files of this kind of package that do not begin with `NAME_`.
        tokenized: Programs look for its tokenizer beside it.
        unread: What names of tensors begin with that are in no part, which is as it should be.
    """

    name: str
    source: Source
    parts: Sequence[Part]
    ends: Sequence[str] = ()
    files: Sequence[str] = ()
    tokenized: bool = True
    unread: tuple[str, ...] = ()


def write_package(output: Path, contents: Contents, *, progress: bool) -> CompileResult:
    """Writes a package into a folder, which is as it was if that fails; `progress` shows a bar.

    Raises:
        CompileError: The output cannot be written, or has another package whose files have names as those of this one.

    Warns:
        CompileWarning: No tokenizer, values beyond fp16.
    """
    check_neighbours(output, contents.name)
    with staged_package(output, owned_files(contents.name, contents.ends, contents.files)) as staging:
        if not write_host_files(contents.source.host_files, staging) and contents.tokenized:
            warn(
                f"{contents.source.path} has no tokenizer files; the package works, but programs will not find a "
                "tokenizer"
            )
        (staging / EMBEDDING).parent.mkdir(exist_ok=True)
        elements = sum(part.elements for part in contents.parts)
        with Progress(elements, visible=progress) as bar, worker_pool() as workers:
            for part in contents.parts:
                part.write(staging, workers, bar)
        files = files_in(staging)
    return CompileResult(output=output, files=files)
