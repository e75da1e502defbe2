"""Packages whose layers have short convolutions, against transformers, and token by token."""

from __future__ import annotations

import json

import numpy as np
import pytest
from engine_tools import check_engine_answers_as_the_generator
from llm_packages import LoadedPackage, compile_package
from oracle import assert_float32_graphs_agree, random_model

from tcim_lite.cli import main
from tcim_lite.diff.folder import Dump
from tcim_lite.llm import lanes_of
from tcim_lite.models.families import FAMILIES, read_config

TYPES = ["full_attention", "conv", "conv", "full_attention", "conv"]
CHANGES = {
    "as it is": {},
    "a convolution last, biases": {"num_hidden_layers": 5, "layer_types": TYPES, "conv_bias": True, "conv_L_cache": 2},
    "odd sizes, many taps, untied": {
        "hidden_size": 180,
        "intermediate_size": 250,
        "num_attention_heads": 3,
        "num_key_value_heads": 1,
        "conv_L_cache": 5,
        "tie_word_embeddings": False,
    },
}


@pytest.mark.oracle
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("family", ["lfm2", "lfm2_moe", "lfm3"])
def test_float32_graphs_agree_with_transformers(tmp_path, family, change):
    assert_float32_graphs_agree(tmp_path, random_model({**FAMILIES[family].tiny, **CHANGES[change]}, family))


@pytest.mark.oracle
@pytest.mark.parametrize(
    ("family", "changes"),
    [
        ("lfm2", {"block_auto_adjust_ff_dim": True, "block_multiple_of": 48, "block_ffn_dim_multiplier": 1.3}),
        ("lfm2_moe", {"use_expert_bias": False, "norm_topk_prob": False, "routed_scaling_factor": 2.5}),
        ("lfm2_moe", {"num_dense_layers": 0, "num_experts": 5, "moe_intermediate_size": 40}),
    ],
)
def test_other_mlps_agree_with_transformers(tmp_path, family, changes):
    assert_float32_graphs_agree(tmp_path, random_model({**FAMILIES[family].tiny, **changes}, family))


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lfm2")
    (folder / "config.json").write_text(json.dumps(FAMILIES["lfm2"].tiny_config | {"conv_bias": True}))
    sizes = {"prefill_length": 16, "context_length": 64}
    return compile_package(folder, folder / "out", random_weights=True, seed=7, quant="float16", **sizes)


def test_names_and_order(package):
    module = LoadedPackage(package).prefill_module
    names = [module.get_input_name(index) for index in range(module.get_num_inputs())]
    caches = [f"model_layers_{index}_self_attn_{kind}cache_input" for kind in "kv" for index in range(2)]
    states = [f"past_conv_cache_{index}" for index in range(2)]
    assert names == ["input_1", "valid_length", "current_length", *caches, *states]
    outputs = [module.get_output_name(index) for index in range(module.get_num_outputs())]
    assert outputs == ["logits", "conv_cache_out_0", "conv_cache_out_1"]
    assert module.get_input_info(states[0]).shape == (1, 192, 3)


@pytest.mark.usefixtures("strict_mode")
def test_a_dump_begins_with_states_of_zeros(package, tmp_path):
    command = ["dump", str(package.folder), "-o", str(tmp_path / "d"), "--tokens", "5,6,7", "--steps", "1"]
    assert main(command) == 0
    dumped = Dump.open(tmp_path / "d")
    assert not dumped.array(0, "past_conv_cache_0").any()
    assert dumped.array(1, "past_conv_cache_0").any()


def test_an_empty_variable_of_strict_mode_is_unset_for_bench(package, monkeypatch, capsys, known_limits):
    monkeypatch.setenv("TCIM_LITE_STRICT", "")
    assert main(["bench", str(package.folder), "--quick", "--depth", "32"]) == 0
    assert "decode at 32" in capsys.readouterr().out
    monkeypatch.setenv("TCIM_LITE_STRICT", "warn")
    assert main(["bench", str(package.folder), "--quick"]) == 2
    assert "strict mode reports for states of linear attention or convolutions" in capsys.readouterr().err


def test_chunks_are_their_tokens_one_by_one(package):
    """In float16 too: what the state has are rows that are rounded anyway."""
    tokens, loaded = np.random.default_rng(1).integers(0, 331, 40).tolist(), LoadedPackage(package)
    (lane,) = lanes_of(loaded.prefill_module)
    expected = None
    for split in (40, 1, 2, 15, 16, 17, 39):
        logits = loaded.prefill(tokens[:split])
        for position in range(split, len(tokens)):
            logits = loaded.decode(tokens[position], position)
        names = (*lane.caches, *lane.carried)
        found = [logits, *(loaded.prefill_module.get_dev_input(name).numpy() for name in names)]
        expected = expected or found
        for got, want in zip(found, expected, strict=True):
            np.testing.assert_array_equal(got, want)


def test_engine_answers_as_the_generator_does(package):
    prompts = [np.random.default_rng(seed).integers(0, 331, count).tolist() for seed, count in ((1, 20), (2, 3))]
    check_engine_answers_as_the_generator(package, prompts)


def test_files_have_other_names_for_some_keys():
    config = FAMILIES["lfm2"].tiny_config
    old = {key: value for key, value in config.items() if key not in ("layer_types", "tie_word_embeddings")}
    read = read_config({**old, "full_attn_idxs": [1, 3], "tie_embedding": False, "block_ff_dim": 96, "norm_eps": 1e-3})
    assert read.flags["layer_types"] == read_config(config).flags["layer_types"]
    assert (read.tie_word_embeddings, read.intermediate_size, read.rms_norm_eps) == (False, 96, 1e-3)
