"""The graphs of an encoder on one device: prompts of a length go in, a vector or scores of each come out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

import tcim_lite.runtime as tcim

from ...text_encoders import TOKENS
from .facts import names_of
from .package import EncoderPackage
from .pooling import pooled
from .prompt import EncoderPrompt

_MASK, _SEGMENTS = "attention_mask", "token_type_ids"
_SENTENCE, _SCORES = "sentence_embedding", "logits"  # outputs whose names say what they are


class Encoder:
    """Runs texts through graphs of fixed shapes. Not thread-safe.

    A text runs in the shortest graph that holds it, whatever runs beside it, so its result depends on nothing else.

    Args:
        package: Its graphs differ in nothing but batch and length.
        device: Its id.

    Attributes:
        facts: Of the package.
        ranks: Whether results are scores, else they are vectors.
        width: How many numbers a result has.
        longest: How many tokens a text may have.
        batch: How many texts one run takes at most.
        labels: Names of scores.

    Raises:
        TcimError: A graph cannot be loaded.
        ValueError: Graphs that take or give what is not known here, or files that say what is not.
    """

    def __init__(self, package: EncoderPackage, device: int = 0):
        self.facts = package.facts
        manager = tcim.DevManager(device)
        self._graphs = [_Graph(path, manager) for path in package.graphs]
        self._graphs.sort(key=lambda graph: (graph.length, graph.batch))
        first = self._graphs[0]
        if other := next((graph for graph in self._graphs if graph.form != first.form), None):
            raise ValueError(
                f"{first.path} and {other.path} differ in more than batch and length: {first.form} and {other.form}; "
                "compile all from one file, or give them names of their own"
            )
        kind, self._output, size = first.form
        self.ranks = kind == "scores"
        self._modes = () if kind != "hidden" else self._pooling(first.path)
        self.width = size * max(1, len(self._modes))
        self.labels = self.facts.labels or tuple(f"LABEL_{number}" for number in range(self.width))
        if self.ranks and len(self.labels) != self.width:
            raise ValueError(
                f"{first.path} gives {self.width} scores, and config.json has {len(self.labels)} labels; compile the "
                "ONNX file with the config.json of its own checkpoint"
            )
        self.batch = max(graph.batch for graph in self._graphs)
        self.longest = min(self._graphs[-1].length, self.facts.max_tokens or self._graphs[-1].length)

    def length_of(self, prompt: Sequence[int]) -> int:
        """The length of the graph that a prompt runs in."""
        return next(graph.length for graph in self._graphs if graph.length >= len(prompt))

    def batch_of(self, length: int) -> int:
        """How many prompts of that `length_of` one run takes."""
        return max(graph.batch for graph in self._graphs if graph.length == length)

    def run(self, prompts: Sequence[Sequence[int]]) -> list[NDArray[np.float32]]:
        """The results of prompts, [width] each.

        Args:
            prompts: Of one `length_of`, at most its `batch_of`; `EncoderPrompt` for pairs.

        Raises:
            TcimError: As a run.
        """
        length = self.length_of(prompts[0])
        fitting = [graph for graph in self._graphs if graph.length == length and graph.batch >= len(prompts)]
        if not self.facts.tells_segments:
            prompts = [list(prompt) for prompt in prompts]
        values = fitting[0].run(prompts, self.facts.pad_token, self._output)
        rows = [value[: len(prompt)] if self._modes else value for value, prompt in zip(values, prompts, strict=False)]
        return [pooled(row, self._modes) if self._modes else row.astype(np.float32) for row in rows]

    def _pooling(self, path: Path) -> tuple[str, ...]:
        """How hidden states become a vector."""
        if self.facts.modules:
            raise ValueError(
                f"{path} gives hidden states, and modules.json has more to do with them "
                f"({names_of(self.facts.modules)}), which is not known here; export the whole model with "
                "sentence-transformers, to an output "
                f"{_SENTENCE}"
            )
        if not self.facts.pooling:
            raise ValueError(
                f"{path} gives hidden states, and nothing says how they become a vector: there is no "
                "1_Pooling/config.json; compile the ONNX file with --pooling cls, mean or lasttoken, as the model's "
                "card says"
            )
        return self.facts.pooling


class _Graph:
    """One graph.

    Attributes:
        path: Of its file.
        batch: Texts of a run.
        length: Tokens of each.
        form: What kind of output it has, its name, and its last extent.
    """

    def __init__(self, path: Path, manager: Any):
        self.path = path
        self._module = tcim.load(str(path), option=tcim.Option(manager))
        inputs = self._module.input_infos
        known = {TOKENS, _MASK, _SEGMENTS}
        if (unknown := inputs.keys() - known) or inputs.keys() < {TOKENS, _MASK}:
            raise ValueError(
                f"{path} takes {names_of(list(inputs))}; expected {TOKENS} and {_MASK}, and perhaps {_SEGMENTS}"
                + (f"; make {min(unknown)} a constant with `compile --constant`" if unknown else "")
            )
        self._types = {name: np.dtype(info.dtype) for name, info in inputs.items()}
        self.batch, self.length = (int(extent) for extent in inputs[TOKENS].shape)
        if odd := next((name for name in inputs if tuple(inputs[name].shape) != (self.batch, self.length)), None):
            raise ValueError(
                f"{path} takes {odd} as {list(inputs[odd].shape)}; expected the shape of {TOKENS}, "
                f"{[self.batch, self.length]}"
            )
        names = [self._module.get_output_name(index) for index in range(self._module.get_num_outputs())]
        self.form = _form(path, {name: tuple(self._module.get_output_info(name).shape) for name in names}, self.batch)

    def run(self, prompts: Sequence[Sequence[int]], pad: int, output: str) -> NDArray[Any]:
        """The output of all rows; those without a prompt are copies of the first, because a row needs a token."""
        shape = (self.batch, self.length)
        ids, mask, segments = np.full(shape, pad), np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        for row in range(self.batch):
            prompt = prompts[row if row < len(prompts) else 0]
            ids[row, : len(prompt)], mask[row, : len(prompt)] = prompt, 1
            if isinstance(prompt, EncoderPrompt):
                segments[row, : len(prompt)] = prompt.segments
        for name, values in ((TOKENS, ids), (_MASK, mask), (_SEGMENTS, segments)):
            if name in self._types:
                self._module.set_input(name, np.ascontiguousarray(values, self._types[name]))
        self._module.run(sync=True)
        return self._module.get_output(output).numpy()


def _form(
    path: Path, outputs: dict[str, tuple[int, ...]], batch: int
) -> tuple[Literal["hidden", "vector", "scores"], str, int]:
    """What kind of output a graph has that is used here, its name, and its last extent.

    Raises:
        ValueError: It has none.
    """
    flat = {name: shape[-1] for name, shape in outputs.items() if len(shape) == 2 and shape[0] == batch}
    if _SENTENCE in flat:
        return "vector", _SENTENCE, flat[_SENTENCE]
    if _SCORES in flat:
        return "scores", _SCORES, flat[_SCORES]
    hidden = [name for name, shape in outputs.items() if len(shape) == 3 and shape[0] == batch and name != _SCORES]
    if hidden:
        return "hidden", hidden[0], outputs[hidden[0]][-1]
    shown = ", ".join(f"{name} {list(shape)}" for name, shape in outputs.items())
    raise ValueError(
        f"{path} gives {shown}; expected hidden states [{batch}, L, H], {_SENTENCE} [{batch}, H], or {_SCORES} "
        f"[{batch}, N] of a classifier or cross encoder"
    )
