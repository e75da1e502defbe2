"""Packages with latent attention: their caches, their formats, YaRN, and files that repeat what heads share."""

from __future__ import annotations

import json

import numpy as np
import pytest
from llm_packages import LoadedPackage, compile_package
from oracle import assert_float32_graphs_agree, oracle_logits, random_model

from tcim_lite.bench.profile import step_times
from tcim_lite.hmm import WHOLE, read
from tcim_lite.llm import cache_names
from tcim_lite.models.families import FAMILIES

YARN = {
    "rope_type": "yarn",
    "rope_theta": 10000.0,
    "factor": 40.0,
    "mscale": 0.707,
    "mscale_all_dim": 0.707,
    "original_max_position_embeddings": 64,
}


def test_a_layer_has_one_cache_whole_on_each_device(tmp_path):
    """128 numbers of the latent and 32 that turn."""
    (tmp_path / "config.json").write_text(json.dumps(FAMILIES["deepseek_v3"].tiny_config))
    sizes = {"prefill_length": 8, "context_length": 32, "ndevice": 2, "single_device": True}
    package = compile_package(tmp_path, tmp_path / "out", random_weights=True, **sizes)
    module = LoadedPackage(package).prefill_module
    names = [f"model_layers_{layer}_self_attn_kcache_input" for layer in range(2)]
    assert cache_names(module) == names
    assert [module.get_input_name(index) for index in range(3, module.get_num_inputs())] == names
    assert module.get_input_info(names[0]).shape == (1, 1, 32, 160)
    parts = read(package.prefill_path.with_suffix(".hmms"))
    assert [part.values[part.inputs[3]].shape for part in parts.graphs] == [(1, 1, 32, 160)] * 2
    assert parts.split.inputs == (WHOLE,) * 5


def test_a_profile_tells_matrices_of_heads_from_experts(tmp_path):
    config = FAMILIES["deepseek_v3"].tiny_config | {"first_k_dense_replace": 2}
    (tmp_path / "config.json").write_text(json.dumps(config))
    sizes = {"prefill_length": 8, "context_length": 32}
    loaded = LoadedPackage(compile_package(tmp_path, tmp_path / "out", random_weights=True, **sizes))
    steps = step_times(loaded.prefill_module, 1, lambda: loaded.prefill([5, 6, 7]))
    forms = {op: [step.form for step in steps if step.op == op] for op in ("HeadLinear", "MoELinear")}
    # Of both layers: 64 numbers of q to 128 of the latent, and those to 64 of a head's value.
    assert forms == {"HeadLinear": ["128 x 64 linear_w8", "64 x 128 linear_w8"], "MoELinear": []}


@pytest.mark.oracle
@pytest.mark.parametrize(
    ("family", "changes"),
    [
        ("deepseek_v2", {"rope_parameters": YARN, "q_lora_rank": 64, "attention_bias": True}),
        ("deepseek_v2", {"rope_parameters": YARN, "topk_method": "greedy", "n_group": None, "topk_group": None}),
        ("deepseek_v3", {"rope_parameters": YARN, "rope_interleave": False, "q_lora_rank": None}),
        ("deepseek_v3", {"attention_bias": True, "norm_topk_prob": False, "n_group": 2, "topk_group": 1}),
        ("minicpm3", {"scale_depth": None, "dim_model_base": None, "v_head_dim": 40}),
    ],
)
def test_other_configs_agree_with_transformers(tmp_path, family, changes):
    assert_float32_graphs_agree(tmp_path, random_model({**FAMILIES[family].tiny, **changes}, family))


@pytest.mark.oracle
@pytest.mark.parametrize(
    ("quant", "bound"), [("float16", 0.01), ("w8a8h1_sefp", 0.08), ("w4a8h0_ssfp", 0.5), ("mxfp4a8", 0.6)]
)
def test_quantised_graphs_stay_near_transformers(tmp_path, quant, bound):
    """Not a derived bound, as in test_oracle.py."""
    model = random_model(FAMILIES["youtu"].tiny, "youtu")
    model.save_pretrained(tmp_path / "hf")
    package = compile_package(tmp_path / "hf", tmp_path / "out", quant=quant, prefill_length=32, context_length=128)
    tokens = np.random.default_rng(0).integers(0, 331, 100).tolist()
    loaded = LoadedPackage(package)
    loaded.prefill(tokens[:99])
    got, want = loaded.decode(tokens[99], 99).astype(np.float64), oracle_logits(model, tokens)[-1].astype(np.float64)
    assert np.linalg.norm(got - want) / np.linalg.norm(want) < bound
