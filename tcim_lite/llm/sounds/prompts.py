"""Sounds of prompts: which encoder hears them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

import tcim_lite.runtime as tcim

from ..media import Configs, MediaPrompts, Seen
from ..package import Package
from .encoder import ChunkReader, EncoderReader, GemmaReader, OmniReader
from .mel import RATE
from .wav import read_wav
from .whisper import WhisperReader

_LAST, _QUIET = RATE, RATE // 10  # samples in which a cut is looked for, and at a time
# By `model_type`: the graph that hears, and what feeds it.
_HEARD: dict[str, tuple[str, type[EncoderReader]]] = {
    "qwen3_asr": ("encode.hmm", EncoderReader),
    "glmasr": ("encode.hmm", EncoderReader),
    "qwen3_omni_moe": ("audio.hmm", ChunkReader),
    "minicpmo": ("audio.hmm", OmniReader),
    "gemma4": ("audio.hmm", GemmaReader),
}


class SoundPrompts(MediaPrompts):
    """The sounds of a package's prompts; thread-safe.

    A chat sends its sounds again in every turn, so features are kept, the latest of them, by a digest of the file.

    Args:
        reader: Of the package's encoder.
        family: `model_type` of the checkpoint, such as "qwen3_asr".

    Attributes:
        family: As given.
        whisper: What asks Whisper; None for language models that hear.
        mark: What a chat template writes for a sound.
        stand_in: As in `MixedPrompt`.
    """

    def __init__(self, reader: EncoderReader | WhisperReader, family: str):
        super().__init__(reader, lambda data: reader.prepare(read_wav(data)), "sounds")
        self._reader, self.family = reader, family
        self.whisper = reader if isinstance(reader, WhisperReader) else None

    @classmethod
    def open(cls, package: Package, tokenizer: Any, device: int = 0) -> SoundPrompts:
        """Loads the encoder of sounds of a package; that of Whisper is loaded with its decoder.

        Args:
            package: Of a model that hears.
            tokenizer: Its own, of the library tokenizers: `backend_tokenizer` of one of transformers.
            device: Where it runs.

        Raises:
            FileNotFoundError: The package has no encoder, or one that this cannot feed; the message says which.
            MediaError: Its configs lack something.
            TcimError: The graph cannot be loaded.
        """
        configs = Configs(package.tokenizer_folder, tokenizer)
        family = str(configs.config.get("model_type"))
        if family == "whisper":
            return cls(WhisperReader(package.tokenizer_folder, configs), family)
        graph, reader = _HEARD.get(family, ("", EncoderReader))
        whole = replace(package, name=package.name.removesuffix("_llm"))  # of which MiniCPM-o has a part so called
        if not graph or not whole.has(graph):
            raise FileNotFoundError(
                f"{package.name} has no encoder of sounds that can be fed here; take a package of Qwen3-ASR, GLM-ASR, "
                "Qwen3-Omni, MiniCPM-o or Gemma 4 (E2B, E4B), or for transcriptions alone of Whisper"
            )
        weights: Any = tcim.WeightManager(device)
        return cls(reader(whole.graph(graph), weights, configs), family)

    def parts(self, data: bytes) -> list[tuple[float, float, Seen]]:
        """A sound of any length, in parts that the encoder takes: begin and end in seconds, and what is there.

        A part ends where it is quiet. A last part that is too short for a row is left out.

        Raises:
            MediaError: It cannot be read, or is too short.
        """
        samples = read_wav(data)
        found, begin = list[tuple[float, float, Seen]](), 0
        while not found or len(samples) - begin >= self._reader.least:
            end = begin + quiet_end(samples[begin:], self._reader.part)
            found.append((begin / RATE, end / RATE, Seen(self._reader.prepare(samples[begin:end]))))
            begin = end
        return found


def quiet_end(samples: NDArray[np.float32], most: int) -> int:
    """How many samples of a sound are a part of it, at most `most`.

    A longer sound is cut in the middle of the quietest tenth of a second of the last second that fits, where hardly a
    word is cut. vLLM does the same.
    """
    if len(samples) <= most:
        return len(samples)
    size = min(_QUIET, most // 4)
    windows = samples[most - min(_LAST, most // 2) : most].astype(np.float64)
    windows = windows[len(windows) % size :].reshape(-1, size)
    quietest = int((windows**2).sum(axis=1).argmin())
    return most - (len(windows) - quietest) * size + size // 2
