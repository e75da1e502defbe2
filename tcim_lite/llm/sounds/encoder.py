"""The encoders of Qwen3-ASR and GLM-ASR: a sound becomes rows of a prompt."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import tcim_lite.runtime as tcim

from ..media import Configs, Prepared
from ..mixed_prompt import Features
from ..vision import run_tower
from .mel import HOP, RATE, log_mel
from .wav import SoundError

_FRAMES_OF_A_ROW = 8
_CHUNK, _CHUNK_ROWS = 100, 13  # of Qwen3-ASR: frames of a whole chunk, and what they become


class EncoderReader:
    """A `Reader` over NAME_encode.hmm.

    Args:
        path: The graph.
        weights: A `WeightManager`.
        configs: Of the package.

    Attributes:
        least: samples of the shortest sound.
        part: samples of the longest, and of a part of one that is cut.

    Raises:
        MediaError: The configs lack the placeholder.
        TcimError: The graph cannot be loaded.
    """

    writes_marks = False

    def __init__(self, path: Path, weights: Any, configs: Configs):
        self._module = tcim.load(str(path), option=tcim.Option(weights))
        self._inputs = [self._module.get_input_name(i) for i in range(self._module.get_num_inputs())]
        _, self._bins, self._frames = self._module.get_input_info(self._inputs[0]).shape
        self.least, self.part = _FRAMES_OF_A_ROW * HOP, self._frames * HOP
        self.placeholder, self.mark = configs.token("audio_token_id")
        self.stand_in = self.placeholder

    def prepare(self, samples: NDArray[np.float32]) -> Prepared:
        """Counts; runs nothing on a device.

        Raises:
            SoundError: The sound is too short or too long.
        """
        if len(samples) < self.least:
            raise SoundError(f"a sound of {len(samples)} samples is too short; expected {self.least}, {RATE} a second")
        if len(samples) > self.part:
            raise SoundError(
                f"a sound of {len(samples) / RATE:.2f} s, the encoder takes {self.part / RATE:g}; cut it, or compile "
                f"with --audio-frames {-(-len(samples) // (HOP * _CHUNK)) * _CHUNK} or more"
            )
        rows = self._rows(len(samples) // HOP)
        return Prepared(self.mark * rows, (rows,), samples)

    def see(self, inputs: Any) -> list[Features]:
        """Hears a sound."""
        frames = len(inputs) // HOP
        given: list[NDArray[Any]] = [log_mel(inputs, self._bins, self._frames), np.array([frames], np.int32)]
        found = run_tower(self._module, dict(zip(self._inputs, given, strict=False)))[0][0]
        return [Features(found[: self._rows(frames)].copy())]

    def before(self, number: int) -> str:
        """Nothing."""
        return ""

    def _rows(self, frames: int) -> int:
        if len(self._inputs) > 1:  # Qwen3-ASR's encoder lets no row see what lies behind the sound
            return frames // _CHUNK * _CHUNK_ROWS - (-(frames % _CHUNK) // _FRAMES_OF_A_ROW)
        return (frames + 1) // 2 // 4
