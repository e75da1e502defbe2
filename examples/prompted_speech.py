"""Language models that hear, Qwen3-ASR and GLM-ASR: rows of a sound stand in the prompt as embeddings of tokens do."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

import tcim_lite.runtime as tcim
from tcim_lite.llm import Package, context_length, last_logits, load_pair, run_graph
from tcim_lite.llm.sounds import HOP, log_mel

CHUNK, CHUNK_ROWS = 100, 13  # of Qwen3-ASR: frames of a whole chunk, and what they become
FRAMES_OF_A_ROW = 8


@dataclass(frozen=True)
class Prompt:
    """What the models were trained with, before and behind a sound."""

    before: str
    after: str


# By a token that only the tokenizer of that model has.
PROMPTS = {
    "<|audio_pad|>": Prompt(
        "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\n<|audio_start|>",
        "<|audio_end|><|im_end|>\n<|im_start|>assistant\n",
    ),
    "<|begin_of_audio|>": Prompt(
        "<|user|>\n<|begin_of_audio|>",
        "<|end_of_audio|><|user|>\nPlease transcribe this audio into text<|assistant|>\n",
    ),
}


def prompt_for(vocabulary: Mapping[str, int]) -> Prompt | None:
    """That of a model that hears; None for others, such as Whisper."""
    return next((prompt for token, prompt in PROMPTS.items() if token in vocabulary), None)


class HearingModel:
    """Encoder, prefill and decode. The encoder has weights of its own; prefill and decode share theirs, and caches."""

    def __init__(self, package: Package, device: int = 0):
        weights = tcim.WeightManager(device)
        path = package.folder / f"{package.name}_encode.hmm"
        self.encoder = tcim.load(str(path), option=tcim.Option(weights))
        self.prefill, self.decode = load_pair(package.prefill_path, package.decode_path, weights)
        self.embedding = package.embedding_for(self.prefill)
        self.context = context_length(self.prefill)
        self.inputs = [self.encoder.get_input_name(i) for i in range(self.encoder.get_num_inputs())]
        _, self.bins, self.frames = self.encoder.get_input_info(self.inputs[0]).shape

    def parts(self, samples: np.ndarray) -> Iterator[np.ndarray]:
        """A sound in pieces that the encoder takes; the vendor's program asks about each by itself."""
        for start in range(0, len(samples), self.frames * HOP):
            piece = samples[start : start + self.frames * HOP]
            if len(piece) >= FRAMES_OF_A_ROW * HOP or not start:
                yield piece

    def hear(self, samples: np.ndarray) -> np.ndarray:
        """Rows [n, H] for the prompt, of at most `frames` frames."""
        frames = min(len(samples) // HOP, self.frames)
        if frames < FRAMES_OF_A_ROW:
            raise ValueError(
                f"{len(samples)} samples are too few; a row of the prompt is about {FRAMES_OF_A_ROW * HOP}"
            )
        self.encoder.set_input(self.inputs[0], log_mel(samples, self.bins, self.frames))
        if len(self.inputs) > 1:  # Qwen3-ASR's encoder lets no row see what lies behind the sound
            self.encoder.set_input(self.inputs[1], np.array([frames], np.int32))
            rows = frames // CHUNK * CHUNK_ROWS - (-(frames % CHUNK) // FRAMES_OF_A_ROW)
        else:
            rows = (frames + 1) // 2 // 4
        self.encoder.run()
        self.encoder.sync()
        return self.encoder.get_output(self.encoder.get_output_name(0)).numpy()[0, :rows]

    def transcribe(
        self, before: list[int], sound: np.ndarray, after: list[int], ends: Collection[int], limit: int
    ) -> Iterator[int]:
        """Yields tokens greedily until one of `ends`, the limit or a full context.

        The vendor's prefill graph takes the whole prompt in one run; a prompt of several runs gives the same.
        """
        rows = np.concatenate([self.embedding[before], sound.astype(self.embedding.dtype), self.embedding[after]])
        if len(rows) >= self.context:
            raise ValueError(f"a prompt of {len(rows)} rows fills the context of {self.context}")
        length = self.prefill.get_input_info(self.prefill.get_input_name(0)).shape[1]
        for done in range(0, len(rows), length):
            part = rows[done : done + length]
            padded = np.pad(part, ((0, length - len(part)), (0, 0)))
            logits = last_logits(run_graph(self.prefill, padded[None], done, len(part)), len(part))
        for position in range(len(rows), min(len(rows) + limit, self.context)):
            if (token := int(logits.argmax())) in ends:
                return
            yield token
            logits = last_logits(run_graph(self.decode, self.embedding[[token]][None], position, 1), 1)
