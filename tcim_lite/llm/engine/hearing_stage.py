"""The graphs of Whisper as a stage: a decoder of tokens, and the encoder at whose results it looks.

A row of a token is its id alone: the embedding is inside the graphs. The sound of a prompt is what its features have
`beside` them. The encoder's outputs are inputs of the decoder, so a run for another sound runs the encoder first.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

import tcim_lite.runtime as tcim

from ..json_object import read_object
from ..masks import HIDDEN
from ..mixed_prompt import Part
from ..package import Package
from ..ports import Lane
from .stage import DecodeStep, Stage

_IDS, _POSITIONS, _VALID, _CURRENT, _MASK, _SOUND_MASK, _CACHES = range(7)  # inputs; behind are caches, then the sound


class HearingStage(Stage):
    """Encoder, prefill and decode graphs of Whisper, of one slot.

    Args:
        encoder: Module of features of a sound, to a key and a value for each layer of the decoder in turn.
        prefill: Module of four tokens of a prompt.
        decode: Module of one token, which owns the caches.
        most: Tokens that have positions; fewer than the rows of the caches.
    """

    hears = True

    def __init__(self, encoder: Any, prefill: Any, decode: Any, most: int):
        self._encoder = encoder
        self._names = names = [decode.get_input_name(i) for i in range(decode.get_num_inputs())]
        caches = names[_CACHES : _CACHES + decode.get_num_outputs() - 1]
        lane = Lane(
            valid=names[_VALID],
            current=names[_CURRENT],
            positions=(names[_POSITIONS],),
            masks=(names[_MASK],),
            deepstack=(),
            caches=tuple(caches),
        )
        super().__init__(prefill, decode, None, [lane])
        self.context_length = min(self.context_length, most)
        for name, output in zip(caches, self.outputs[1:], strict=True):
            info = decode.get_input_info(name)
            decode.set_input(name, np.zeros(info.shape, info.dtype))
            prefill.set_dev_input(name, decode.get_dev_input(name))
            for graph in (prefill, decode):
                graph.set_output(output, decode.get_dev_input(name))
        sound = names[_CACHES + len(caches) :]
        for number, name in enumerate(sound):  # all keys, then all values
            kind, layer = divmod(number, len(sound) // 2)
            made = encoder.get_dev_output(encoder.get_output_name(2 * layer + kind))
            for graph in (prefill, decode):
                graph.set_dev_input(name, made)
        for graph in (prefill, decode):
            info = graph.get_input_info(names[_SOUND_MASK])
            graph.set_input(names[_SOUND_MASK], np.zeros(info.shape, info.dtype))
        self._heard: np.ndarray | None = None  # whose results the encoder's outputs are

    @staticmethod
    def fits(package: Package) -> bool:
        """Whether a package has such graphs."""
        return _config(package).get("model_type") == "whisper"

    @classmethod
    def open(cls, package: Package, weights: tcim.WeightManager) -> HearingStage:
        """Loads the graphs of a package with one copy of the weights and of the caches.

        Raises:
            FileNotFoundError, TcimError: A file that is not there, or cannot be loaded.
        """
        most = _config(package).get("max_target_positions")
        encoder = tcim.load(str(package.graph("encode.hmm")), option=tcim.Option(weights))
        decode = tcim.load(str(package.decode_path), option=tcim.Option(weights))
        lent = [decode.get_input_name(i) for i in range(_CACHES, decode.get_num_inputs())]
        option = tcim.Option(weights).set_dummy_tensors(lent)
        prefill = tcim.load(str(package.prefill_path), option=option)
        return cls(encoder, prefill, decode, most if isinstance(most, int) and most > 0 else 448)

    def table(self, package: Package, last: Stage) -> np.ndarray:
        """[V, 1]: the row of each token is its id."""
        count = self.decode.get_output_info(self.outputs[0]).shape[-1]
        return np.arange(count, dtype=np.int32)[:, None]

    def run_prompt(
        self, graph: Any, slot: int, rows: np.ndarray, valid: int, current: int, **others: Any
    ) -> np.ndarray:
        """As `Stage.run_prompt`; `part` has the sound.

        Raises:
            ValueError: There is none.
        """
        part: Part | None = others.get("part")
        if part is None or part.beside is None:
            raise ValueError("a prompt without a sound; the graphs of Whisper write down what is said in one")
        if part.beside is not self._heard:
            self._heard = None
            self._encoder.set_input(self._encoder.get_input_name(0), part.beside)
            self._encoder.run()
            self._encoder.sync()
            self._heard = part.beside
        return self._run(graph, rows, valid, current)

    def run_decode(self, rows: np.ndarray, step: DecodeStep, output: str | None = None) -> np.ndarray:
        """As `Stage.run_decode`, of the one slot."""
        return self._run(self.decode, rows, step.lengths[0], 1)

    def _run(self, graph: Any, rows: np.ndarray, valid: int, current: int) -> np.ndarray:
        """Logits [1, T, V] of tokens [1, T, 1] behind `valid` others; each sees itself and those before it."""
        positions = valid + np.arange(rows.shape[1], dtype=np.int32)
        mask = graph.get_input_info(self._names[_MASK])
        sees = np.arange(mask.shape[-1]) <= positions[:, None]
        given = {
            _IDS: rows[..., 0],
            _POSITIONS: positions[None],
            _VALID: np.array([valid], np.int32),
            _CURRENT: np.array([current], np.int32),
            _MASK: np.broadcast_to(np.where(sees, 0, HIDDEN).astype(mask.dtype), mask.shape),
        }
        for index, values in given.items():
            graph.set_input(self._names[index], np.ascontiguousarray(values))
        self.before_run()
        graph.run()
        graph.sync()
        logits: np.ndarray = graph.get_output(self.outputs[0]).numpy()
        return logits


def _config(package: Package) -> Mapping[str, Any]:
    return read_object(package.tokenizer_folder / "config.json")
