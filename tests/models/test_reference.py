"""The numpy reference of a compiled package: consistent with itself, and close to transformers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tcim_lite.runtime as rt
from tcim_lite.models.common.profiles import QUANTS
from tcim_lite.models.families import FAMILIES
from tcim_lite.models.reference.arithmetic import quantize_activations
from tcim_lite.models.reference.model import Reference, ReferenceCache

Make = Callable[..., Path]
TOKENS = [int(token) for token in np.random.default_rng(1).integers(0, 83, 40)]


@pytest.mark.parametrize("quant", ["w4a8h0_ssfp", "mxfp4a8", "float16", "float32"])
def test_prefill_and_decode_agree_at_every_split(make_checkpoint: Make, make_package: Make, quant: str) -> None:
    reference = Reference(make_package(make_checkpoint(), quant=quant))
    tokens = TOKENS[:6]
    whole = reference.run(tokens, ReferenceCache())
    assert whole.shape == (6, 83)
    for split in range(1, 6):
        cache = ReferenceCache()
        parts = [reference.run(tokens[:split], cache), reference.run(tokens[split:], cache)]
        np.testing.assert_array_equal(np.concatenate(parts), whole)


def test_activation_codes() -> None:
    x = np.zeros((1, 192), np.float32)
    x[0, :3] = (1.0, -0.5, 1 / 128)
    x[0, 64] = 6e-8  # the smallest fp16: the exponent stops at -30
    codes, exponents = quantize_activations(x)
    assert exponents.tolist() == [[-6, -30, -30]]
    assert codes[0, :3].tolist() == [64, -32, 0]  # 0.5 rounds to even
    assert codes[0, 64] == np.rint(np.float32(6e-8) * 2.0**30)
    # 65504 has exponent 15 - 6 = 9, and rounds up to 128, which is clamped.
    codes, exponents = quantize_activations(np.full((1, 64), -65504, np.float32))
    assert (exponents[0, 0], codes[0, 0]) == (9, -127)


@pytest.mark.filterwarnings("ignore")  # no tokenizer
@pytest.mark.parametrize("quant", QUANTS)
@pytest.mark.parametrize("family", ["qwen3", "llama"])
def test_the_runtime_gives_these_logits(tmp_path: Path, make_package: Make, family: str, quant: str) -> None:
    """To a few units in the last place of the largest; what a unit changes in a code is a step of 128."""
    config = FAMILIES[family].tiny_config | {"attention_bias": True, "mlp_bias": False}
    (tmp_path / "config.json").write_text(json.dumps(config))
    package = make_package(tmp_path, quant=quant, random_weights=True, all_logits=True, prefill_length=40)
    module = rt.load(package / f"{family}_prefill.hmm")
    reference = Reference(package)
    module.set_input("input_1", reference.embedding[TOKENS][None])
    module.set_input("valid_length", 0)
    module.set_input("current_length", len(TOKENS))
    module.run(True)
    got, want = module.get_output("logits").numpy()[0], reference.run(TOKENS, ReferenceCache())
    limit = {"float32": 2.0**-20, "float16": 2.0**-9}.get(quant, 2.0**-6)
    assert np.abs(got - want).max() < limit * np.abs(want).max()


@pytest.mark.filterwarnings("ignore")
def test_other_blocks_are_refused(tmp_path: Path, make_package: Make) -> None:
    (tmp_path / "config.json").write_text(json.dumps(FAMILIES["mixtral"].tiny_config))
    package = make_package(tmp_path, random_weights=True)
    with pytest.raises(NotImplementedError, match="blocks of a Qwen3 or Llama, not of Mixtral"):
        Reference(package)


@pytest.mark.oracle
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"tie_word_embeddings": True, "attention_bias": True},
        {"num_attention_heads": 5, "num_key_value_heads": 1, "intermediate_size": 100},
        {
            "rope_parameters": {
                "rope_type": "yarn",
                "rope_theta": 1e4,
                "factor": 4.0,
                "original_max_position_embeddings": 16,
            }
        },
    ],
)
def test_logits_are_those_of_transformers(make_checkpoint: Make, make_package: Make, changes: dict[str, Any]) -> None:
    torch = pytest.importorskip("torch", reason="oracle")
    transformers = pytest.importorskip("transformers", reason="oracle")
    checkpoint = make_checkpoint(**changes)
    oracle = transformers.Qwen3ForCausalLM.from_pretrained(
        checkpoint, dtype=torch.float32, attn_implementation="eager", local_files_only=True
    )
    with torch.no_grad():
        want = oracle(torch.tensor([TOKENS])).logits[0].numpy()
    spread = want.std()
    assert np.isfinite(want).all()

    exact = Reference(make_package(checkpoint, quant="float32")).run(TOKENS, ReferenceCache())
    assert np.abs(exact - want).max() < 1e-5 * spread
    half = Reference(make_package(checkpoint, quant="float16")).run(TOKENS, ReferenceCache())
    assert np.abs(half - want).std() < 0.005 * spread
    if json.loads((checkpoint / "config.json").read_text())["intermediate_size"] % 64:
        return
    # hidden_size is 64: one group, so that quantisation errors hardly average out.
    for quant, limit in (("w8a8h1_sefp", 0.05), ("w4a8h0_ssfp", 0.3)):
        got = Reference(make_package(checkpoint, quant=quant)).run(TOKENS, ReferenceCache())
        assert np.abs(got - want).std() < limit * spread, quant
