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
_UNKNOWN = "<unk>"  # the token in whose places MiniCPM-o has rows
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
    _has_option = True  # --audio-frames says how long sounds are
    least = _FRAMES_OF_A_ROW * HOP

    def __init__(self, path: Path, weights: Any, configs: Configs):
        self._module = tcim.load(str(path), option=tcim.Option(weights))
        self._inputs = [self._module.get_input_name(i) for i in range(self._module.get_num_inputs())]
        _, self._bins, self._frames = self._module.get_input_info(self._inputs[0]).shape
        self.most: float = self._frames * HOP
        self.part = self._frames * HOP
        self.placeholder, self.mark = self._stands_for_sound(configs)
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
            frames = -(-len(samples) // (HOP * _CHUNK)) * _CHUNK
            more = f", or compile with --audio-frames {frames} or more" if self._has_option else ""
            raise SoundError(
                f"a sound of {len(samples) / RATE:.2f} s, the encoder takes {self.most / RATE:g}; cut it{more}"
            )
        rows = self._rows(len(samples))
        return Prepared(f"{self._begin}{self.mark * rows}{self._end}", (rows,), samples)

    def see(self, inputs: Any) -> list[Features]:
        """Hears a sound."""
        return [Features(self._hear(inputs)[: self._rows(len(inputs))].copy())]

    @staticmethod
    def _stands_for_sound(configs: Configs) -> tuple[int, str]:
        """The token in whose places rows lie, and what a template writes."""
        return configs.token("audio_token_id")

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


class OmniReader(EncoderReader):
    """A `Reader` over the graph of MiniCPM-o, whose rows see those up to the end of their second.

    In a prompt the rows of each second stand between marks of their own.
    """

    writes_marks = True
    _has_option = False
    least = 4 * HOP

    def __init__(self, path: Path, weights: Any, configs: Configs):
        super().__init__(path, weights, configs)
        self._begin, self._end = "<|audio_start|>", "<|audio_end|>"
        self._step = int(configs.config.get("audio_pool_step", 2))
        self._seconds = float(configs.config.get("audio_chunk_length", 1.0))
        self._has_chunks = bool(configs.config.get("chunk_input", True))

    def prepare(self, samples: NDArray[np.float32]) -> Prepared:
        """As `EncoderReader.prepare`."""
        rows = self._counts(super().prepare(samples).counts[0])
        return Prepared("".join(f"{self._begin}{_UNKNOWN * count}{self._end}" for count in rows), rows, samples)

    def see(self, inputs: Any) -> list[Features]:
        """Hears a sound; a piece for each second."""
        (whole,) = super().see(inputs)
        ends = np.cumsum(self._counts(len(whole)))[:-1]
        return [Features(rows) for rows in np.split(whole.rows, ends)]

    def _counts(self, rows: int) -> tuple[int, ...]:
        most = (50 - self._step) // self._step + 1 if self._has_chunks else rows
        return tuple(min(most, rows - begin) for begin in range(0, rows, most))

    def _hear(self, samples: NDArray[np.float32]) -> NDArray[Any]:
        frames = -(-len(samples) // HOP)
        features = log_mel(samples, self._bins, self._frames)
        features[:, :, frames:] = 0
        rows = self._frames // 2
        seen = np.arange(rows) < (frames + 1) // 2
        if self._seconds > 0:
            chunk = int(50 * self._seconds)
            seen = seen & (np.arange(rows) < (np.arange(rows)[:, None] // chunk + 1) * chunk)
        mask = np.where(np.broadcast_to(seen, (rows, rows)), np.float32(0), np.float32(HIDDEN))
        return self._run(features, mask[None, None])

    def _rows(self, samples: int) -> int:
        return ((-(-samples // HOP) + 1) // 2 - self._step) // self._step + 1

    @staticmethod
    def _stands_for_sound(configs: Configs) -> tuple[int, str]:
        return configs.id_of(_UNKNOWN), "(<audio>./</audio>)"


def _gemma_frames(samples: int) -> int:
    """Windows whose samples, and one more, are all of the sound or before it; the first has its middle at 0."""
    return (samples - HOP - 1) // HOP + 1
