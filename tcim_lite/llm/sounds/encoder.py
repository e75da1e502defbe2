"""Encoders of language models that hear: a sound becomes rows of a prompt."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import tcim_lite.runtime as tcim

from ..masks import HIDDEN
from ..media import Configs, Prepared
from ..mixed_prompt import Features
from ..vision import run_tower
from .mel import HOP, RATE, log_mel, plain_log_mel
from .wav import SoundError

_FRAMES_OF_A_ROW = 8
_CHUNK, _CHUNK_ROWS = 100, 13  # of Qwen3-ASR and Qwen3-Omni: frames of a whole chunk, and what they become
_PART_OF_CHUNKS = 30 * RATE  # samples in a part of a transcription


class EncoderReader:
    """A `Reader` over the graph of Qwen3-ASR or GLM-ASR.

    Args:
        path: The graph.
        weights: A `WeightManager`.
        configs: Of the package.

    Attributes:
        least: samples of the shortest sound.
        most: samples of the longest.
        part: samples of a part of a sound that is cut.

    Raises:
        MediaError: The configs lack the placeholder.
        TcimError: The graph cannot be loaded.
    """

    writes_marks = False
    least = _FRAMES_OF_A_ROW * HOP

    def __init__(self, path: Path, weights: Any, configs: Configs):
        self._module = tcim.load(str(path), option=tcim.Option(weights))
        self._inputs = [self._module.get_input_name(i) for i in range(self._module.get_num_inputs())]
        _, self._bins, self._frames = self._module.get_input_info(self._inputs[0]).shape
        self.most: float = self._frames * HOP
        self.part = self._frames * HOP
        self.placeholder, self.mark = configs.token("audio_token_id")
        self.stand_in = self.placeholder
        self._begin = self._end = ""

    def prepare(self, samples: NDArray[np.float32]) -> Prepared:
        """Counts; runs nothing on a device.

        Raises:
            SoundError: The sound is too short or too long.
        """
        if len(samples) < self.least:
            raise SoundError(f"a sound of {len(samples)} samples is too short; expected {self.least}, {RATE} a second")
        if len(samples) > self.most:
            raise SoundError(
                f"a sound of {len(samples) / RATE:.2f} s, the encoder takes {self.most / RATE:g}; cut it, or compile "
                f"with --audio-frames {-(-len(samples) // (HOP * _CHUNK)) * _CHUNK} or more"
            )
        rows = self._rows(len(samples))
        return Prepared(f"{self._begin}{self.mark * rows}{self._end}", (rows,), samples)

    def see(self, inputs: Any) -> list[Features]:
        """Hears a sound."""
        return [Features(self._hear(inputs)[: self._rows(len(inputs))].copy())]

    def before(self, number: int) -> str:
        """Nothing."""
        return ""

    def _hear(self, samples: NDArray[np.float32]) -> NDArray[Any]:
        """Rows of a sound, and what may be behind them."""
        frames = np.array([len(samples) // HOP], np.int32)
        return self._run(log_mel(samples, self._bins, self._frames), frames)

    def _run(self, *given: NDArray[Any]) -> NDArray[Any]:
        found: NDArray[Any] = run_tower(self._module, dict(zip(self._inputs, given, strict=False)))[0]
        return found.reshape(-1, found.shape[-1])

    def _rows(self, samples: int) -> int:
        frames = samples // HOP
        if len(self._inputs) > 1:  # the encoder of GLM-ASR is not told what lies behind the sound
            return frames // _CHUNK * _CHUNK_ROWS - (-(frames % _CHUNK) // _FRAMES_OF_A_ROW)
        return (frames + 1) // 2 // 4


class ChunkReader(EncoderReader):
    """A `Reader` over the graph of Qwen3-Omni, which takes one chunk after the other, so sounds have any length."""

    def __init__(self, path: Path, weights: Any, configs: Configs):
        super().__init__(path, weights, configs)
        self.most, self.part = math.inf, _PART_OF_CHUNKS

    def _hear(self, samples: NDArray[np.float32]) -> NDArray[Any]:
        features, found = log_mel(samples, self._bins), []
        for begin in range(0, features.shape[2], self._frames):
            chunk = features[:, :, begin : begin + self._frames]
            padded = np.pad(chunk, ((0, 0), (0, 0), (0, self._frames - chunk.shape[2])))
            rows = -(-chunk.shape[2] // _FRAMES_OF_A_ROW)
            found.append(self._run(padded, np.array([0, rows], np.int32))[:rows])
        return np.concatenate(found)


class GemmaReader(EncoderReader):
    """A `Reader` over the graph of Gemma 4, which is told by masks what lies behind a sound."""

    least = HOP + 1

    def __init__(self, path: Path, weights: Any, configs: Configs):
        super().__init__(path, weights, configs)
        _, self._frames, self._bins = self._module.get_input_info(self._inputs[0]).shape
        self.most = self.part = self._frames * HOP
        self._begin, self._end = (configs.token(key)[1] for key in ("boa_token_id", "eoa_token_index"))
        text, sound = (configs.config.get(f"{part}_config") or {} for part in ("text", "audio"))
        self.stand_in = int(text.get("pad_token_id") or 0)
        self._left, self._right = (
            int(sound.get(f"attention_context_{side}", absent)) for side, absent in (("left", 13), ("right", 0))
        )

    def _hear(self, samples: NDArray[np.float32]) -> NDArray[Any]:
        frames = _gemma_frames(len(samples))
        features = np.zeros((1, self._frames, self._bins), np.float32)
        features[0, :frames] = plain_log_mel(samples, self._bins, frames)
        sounding = (np.arange(self._frames) < frames).astype(np.float32)
        return self._run(features, sounding[None], self._mask(self._rows(len(samples))))

    def _mask(self, rows: int) -> NDArray[np.float32]:
        """What each row of each block sees of those around the block."""
        blocks, block, columns = self._module.get_input_info(self._inputs[2]).shape[2:]
        query = np.arange(blocks)[:, None, None] * block + np.arange(block)[:, None]
        key = np.arange(blocks)[:, None, None] * block - (self._left - 1) + np.arange(columns)
        behind = query - key
        near = ((behind >= 0) & (behind < self._left - 1)) | ((behind < 0) & (-behind < self._right))
        seen = near & (key >= 0) & (key < rows) & (query < rows)
        return np.where(seen, np.float32(0), np.float32(HIDDEN))[None, None]

    def _rows(self, samples: int) -> int:
        return -(-_gemma_frames(samples) // 4)


def _gemma_frames(samples: int) -> int:
    """Windows whose samples, and one more, are all of the sound or before it; the first has its middle at 0."""
    return (samples - HOP - 1) // HOP + 1
