"""Whisper packages through the host code of the example; without torch, for programs that tests start."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from imported import imported

from tcim_lite.llm import Package

EXAMPLES = Path(__file__).parents[2] / "examples"
PROMPT = [1, 7, 9, 11]


def example(name: str):
    return imported(EXAMPLES / f"{name}.py")


def answered(package: Package, features: np.ndarray, steps: int = 20) -> tuple[list[np.ndarray], np.ndarray, list[int]]:
    """What the encoder gives, the logits of the prompt and of each step, and all tokens."""
    model = example("speech_recognition").SpeechModel(package)
    model.hear(features)
    names = [model.encoder.get_output_name(i) for i in range(model.encoder.get_num_outputs())]
    sounds = [model.encoder.get_output(name).numpy() for name in names]
    model.run(model.decode, PROMPT[:1], 0)  # the language; its row is written again
    logits, tokens = [model.run(model.prefill, PROMPT, 0)], list(PROMPT)
    for _ in range(steps):
        tokens.append(int(logits[-1][-1].argmax()))
        logits.append(model.run(model.decode, tokens[-1:], len(tokens) - 1))
    return sounds, np.concatenate(logits), tokens
