"""Whisper's prompt under the mask of the vendor's program, whose tokens see each other both ways."""

from __future__ import annotations

import numpy as np
import pytest
from speech_host import PROMPT, example

pytest.importorskip("torch", reason="the oracle")
import torch
from whisper_models import bound, compiled, random_model, sound

pytestmark = pytest.mark.oracle


def test_a_prompt_whose_tokens_see_each_other_agrees_with_transformers(tmp_path):
    """The mask of prefill has no order; those of the decodes behind it have. Caches begin as the vendor's do."""
    model = random_model()
    model.save_pretrained(tmp_path / "hf")
    host = example("speech_recognition").SpeechModel(compiled(tmp_path / "hf", tmp_path / "out", quant="float32"))
    features, tokens = sound(model.config), [*PROMPT, 40, 99, 7]
    host.hear(features)
    ordered = host.run(host.prefill, PROMPT, 0).copy()
    for index in range(2 * model.config.decoder_layers):
        host.prefill.set_input(host.names[6 + index], np.full((1, 2, 1024, 64), -65504, np.float32))
    mask = np.ones((1, 2, len(PROMPT), 1024), np.float16)
    mask[:, :, :, len(PROMPT) :] *= -65504
    host.prefill.set_input(host.names[4], mask)
    host.prefill.run()
    host.prefill.sync()
    logits = [host.prefill.get_output("logits").numpy()[0].copy()]
    logits += [host.run(host.decode, tokens[at : at + 1], at) for at in range(len(PROMPT), len(tokens))]

    seen = torch.full((len(tokens), len(tokens)), -65504.0).triu(1)
    seen[: len(PROMPT), : len(PROMPT)] = 0
    with torch.no_grad():
        want = model(
            input_features=torch.tensor(features),
            decoder_input_ids=torch.tensor([tokens]),
            decoder_attention_mask=seen[None, None],
        ).logits[0]
    want, got, limit = want.numpy(), np.concatenate(logits), bound(model.config)
    assert np.abs(got - want).max() <= limit * np.abs(want).max()
    assert np.abs(ordered - want[: len(PROMPT)]).max() > 100 * limit * np.abs(want).max()
