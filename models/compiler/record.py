"""What a model with graphs of its own is to the compiler: one frozen record."""

from __future__ import annotations

from collections.abc import Callable, Set
from dataclasses import dataclass

from .options import COMMON_OPTIONS, CompileOptions, CompileResult
from .parts import names_in
from .prepare import warn_unused
from .write import Contents, write_package


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnGraphs:
    """A model whose package is not that of a language model.

    Attributes:
        model_type: Of `config.json`.
        title: What people call it.
        models: Models that people have of it, for the table of docs/models.md.
        has: What its graphs are, for the same table.
        images: Of what images its vision tower makes features, likewise.
        options: The names of those that it has beside those of every model.
        graphs: What users are told who ask for another one.
        contents: Reads a checkpoint and says what its package is made of.
    """

    model_type: str
    title: str
    models: str
    has: str
    options: Set[str]
    graphs: str
    contents: Callable[[CompileOptions], Contents]
    images: str = "no"

    def compile(self, options: CompileOptions, *, progress: bool = False) -> CompileResult:
        """Writes the package `options` describe; `progress` shows a bar on stderr where that is a terminal.

        Raises:
            CompileError: The checkpoint, its config or an option does not fit, or the output cannot be written.

        Warns:
            CompileWarning: No tokenizer, values beyond fp16, tensors without a place in the graphs.
        """
        options.refuse_others(COMMON_OPTIONS | self.options, self.graphs)
        contents = self.contents(options)
        if (stored := contents.source.tensors) is not None:
            warn_unused(stored.names(), names_in(contents.parts), contents.unread)
        return write_package(options.output, contents, progress=progress)
