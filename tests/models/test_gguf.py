"""Packages from GGUF files are those from safetensors bit for bit; what they ask for and is not there is named."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from family_checkpoints import family_config, family_tensors, write_family
from family_forms import in_the_grid
from gguf_families import ARCH, CHANGES, GEMMA4, LATENT, SIZES, STATE_SPACE, WITH_RATES, Type, compiled, make_gguf
from gguf_files import gguf_tensors, metadata_of, write_gguf
from safetensors.numpy import save_file

from tcim_lite.models.checkpoints.gguf import GgufCheckpoint
from tcim_lite.models.common.errors import CheckpointError, CompileError
from tcim_lite.models.compiler import CompileOptions, compile_checkpoint
from tcim_lite.models.families import FAMILIES, read_config

pytestmark = pytest.mark.filterwarnings("ignore:.*has no tokenizer files")

GEMMA_ROPE = {
    "full_attention": {"rope_type": "default", "rope_theta": 5e5},
    "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
}
LATENT_YARN = {
    "rope_type": "yarn",
    "rope_theta": 10000.0,
    "factor": 40.0,
    "original_max_position_embeddings": 32,
    "mscale": 0.707,
    "mscale_all_dim": 0.707,
}
LONGROPE = {
    "rope_type": "longrope",
    "rope_theta": 10000.0,
    "short_factor": np.linspace(1, 2, 16).tolist(),
    "long_factor": np.linspace(1, 30, 16).tolist(),
}


@pytest.mark.parametrize("quant", [pytest.param("w4a8h0_ssfp", marks=pytest.mark.slow), "float32"])
@pytest.mark.parametrize("family", [family for family in ARCH if family not in WITH_RATES])
def test_float_files_give_the_package_of_the_safetensors(tmp_path: Path, family: str, quant: str) -> None:
    folder = write_family(tmp_path / "hf", family_config(family, **CHANGES.get(family, {})), np.float16)
    kind = Type.F16 if quant == "w4a8h0_ssfp" else Type.F32
    want = compiled(folder, tmp_path / "a", quant=quant)
    got = compiled(make_gguf(tmp_path / "m.gguf", family, kind), tmp_path / "b", quant=quant)
    assert len(want) == 4
    assert got == want


@pytest.mark.parametrize(
    ("family", "changes"),
    [
        ("mixtral", {"sliding_window": 20}),
        ("phi3", {"rope_parameters": {**LONGROPE, "original_max_position_embeddings": 1024}}),
        ("phi3", {"rope_parameters": {**LONGROPE, "original_max_position_embeddings": 32}}),
        ("dots1", {"attention_bias": True}),
        ("deepseek_v2", {"topk_method": "greedy", "n_group": 1, "topk_group": 1, "q_lora_rank": 64}),
        ("deepseek_v2", {"rope_parameters": LATENT_YARN}),
        ("deepseek_v3", {"q_lora_rank": None, "norm_topk_prob": False}),
        ("deepseek_v3", {"rope_parameters": {**LATENT_YARN, "mscale": 1.0, "mscale_all_dim": 1.0}}),
        ("gemma4", {**GEMMA4, "attention_k_eq_v": True, "num_global_key_value_heads": 1}),  # 31B
        ("lfm2_moe", {"num_dense_layers": 0, "rope_theta": 1e6}),
        ("gpt_neox", {"use_parallel_residual": False}),
        ("olmo", {"clip_qkv": None}),
        ("stablelm", {"use_parallel_residual": False, "use_qkv_bias": False, "qk_layernorm": False}),
        ("starcoder2", {"use_bias": False}),
        ("exaone4", {"sliding_window": None}),
        ("gemma3", {**CHANGES["gemma3"], "sliding_window_pattern": 6, "rope_parameters": GEMMA_ROPE}),
        ("glm4_moe", {"attention_bias": False, "use_qk_norm": False, "norm_topk_prob": False}),
        ("glm4_moe", {"first_k_dense_replace": 0}),
        ("ministral3", {"rope_parameters": {"rope_type": "default", "rope_theta": 1e6}}),
        ("olmo3", {"num_hidden_layers": 4, "layer_types": ["full_attention", "sliding_attention"] * 2}),
        ("phi3", {"partial_rotary_factor": 0.75}),
        (
            "phi3",
            {"hidden_size": 264, "head_dim": 44, "partial_rotary_factor": 0.69},
        ),  # 30 of 44, whose quotient gives 29
        ("seed_oss", {"attention_bias": False, "attention_out_bias": True, "mlp_bias": True}),
        ("smollm3", {**CHANGES["smollm3"], "attention_bias": True, "mlp_bias": True}),
    ],
)
def test_what_a_family_may_have_is_found_in_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, family: str, changes: dict[str, Any]
) -> None:
    monkeypatch.setitem(CHANGES, family, changes)
    folder = write_family(tmp_path / "hf", family_config(family, **changes), np.float32)
    want = compiled(folder, tmp_path / "a", quant="float32")
    assert compiled(make_gguf(tmp_path / "m.gguf", family), tmp_path / "b", quant="float32") == want


def test_files_of_internlm2_are_those_of_llama(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CHANGES, "llama", changes := {"rope_parameters": {"rope_type": "default", "rope_theta": 1e6}})
    folder = write_family(tmp_path / "hf", family_config("llama", **changes), np.float32)
    want = compiled(folder, tmp_path / "a", quant="float32")
    monkeypatch.setitem(ARCH, "llama", "internlm2")
    assert compiled(make_gguf(tmp_path / "m.gguf", "llama"), tmp_path / "b", quant="float32") == want


@pytest.mark.parametrize(("family", "layers"), [("gemma2", 46), ("gemma3", 62)])
def test_the_scale_of_gemmas_27b_is_known_by_its_layers(family: str, layers: int) -> None:
    config = {"hidden_size": 4608, "num_attention_heads": 32, "head_dim": 128, "sliding_window": 4096}
    form = FAMILIES[family].gguf
    assert form is not None
    scales = [form.derived(lambda _: None, {**config, "num_hidden_layers": count}) for count in (layers, layers - 1)]
    assert [scale["query_pre_attn_scalar"] for scale in scales] == [4608 / 32, 128]


def fused(tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """As llama.cpp's converter writes them with --fuse-qkv."""
    made = {}
    for name, tensor in tensors.items():
        layer, _, part = name.partition(".attn_")
        if part.split(".")[0] in ("q", "k", "v"):
            name, kind = f"{layer}.attn_qkv", part.split(".")[1]
            parts = [tensors[f"{layer}.attn_{each}.{kind}"] for each in "qkv"]
            made[f"{name}.{kind}"] = np.concatenate(parts)
        else:
            made[name] = tensor
    return made


@pytest.mark.parametrize("kind", ["F32", "Q8_0"])
@pytest.mark.parametrize(
    "family",
    [
        in_the_grid(family)
        for family in ARCH
        if not family.startswith(("phi3", "gemma4", *LATENT)) and family not in STATE_SPACE
    ],
)
def test_q_k_and_v_may_be_one_tensor(tmp_path: Path, family: str, kind: str) -> None:
    config = family_config(family, **CHANGES.get(family, {}))
    tensors = gguf_tensors(config, family_tensors(config), ARCH[family])
    keys = {"general.architecture": ARCH[family], **metadata_of(config, ARCH[family])}
    want = compiled(write_gguf(tmp_path / "m.gguf", keys, tensors, Type[kind]), tmp_path / "a", quant="float32")
    path = write_gguf(tmp_path / "fused.gguf", keys, fused(tensors), Type[kind])
    assert compiled(path, tmp_path / "b", quant="float32") == want
    whole, cut = GgufCheckpoint(tmp_path / "m.gguf"), GgufCheckpoint(path)
    assert sorted(cut.names()) == sorted(whole.names())
    for name in whole.names():
        assert cut.shape(name) == whole.shape(name)
        rows = whole.shape(name)[0]
        for start, stop in ((0, rows), (rows // 3, max(rows - 1, 1)), (rows // 2, rows // 2 + 1)):
            np.testing.assert_array_equal(cut.read(name, start, stop), whole.read(name, start, stop))


@pytest.mark.parametrize("family", ["qwen3_moe", "mixtral", "deepseek_v3"])
def test_gate_and_up_of_experts_may_be_one_tensor(tmp_path: Path, family: str) -> None:
    """As llama.cpp's converter writes them with --fuse-gate-up-exps."""
    config = family_config(family)
    tensors = gguf_tensors(config, family_tensors(config), ARCH[family])
    keys = {"general.architecture": ARCH[family], **metadata_of(config, ARCH[family])}
    want = compiled(write_gguf(tmp_path / "m.gguf", keys, tensors), tmp_path / "a", quant="float32")
    for name in [name for name in tensors if ".ffn_gate_exps." in name]:
        parts = [tensors.pop(name), tensors.pop(name.replace("_gate_", "_up_"))]
        tensors[name.replace("_gate_", "_gate_up_")] = np.concatenate(parts, axis=1)
    assert compiled(write_gguf(tmp_path / "fused.gguf", keys, tensors), tmp_path / "b", quant="float32") == want


def test_q_k_and_v_in_one_tensor_have_the_rows_that_the_metadata_says(tmp_path: Path) -> None:
    config = family_config("qwen2")
    tensors = gguf_tensors(config, family_tensors(config), "qwen2")
    keys = {"general.architecture": "qwen2", **metadata_of(config, "qwen2")}
    made = fused(tensors)
    rows = len(made["blk.1.attn_qkv.weight"])
    made["blk.1.attn_qkv.weight"] = made["blk.1.attn_qkv.weight"][:-1]
    path = write_gguf(tmp_path / "short.gguf", keys, made)
    with pytest.raises(
        CheckpointError, match=rf"'blk\.1\.attn_qkv\.weight' in .* has shape \[{rows - 1}, .* \[{rows},"
    ):
        compiled(path, tmp_path / "a")
    both = fused(tensors) | {"blk.1.attn_k.weight": tensors["blk.1.attn_k.weight"]}
    path = write_gguf(tmp_path / "both.gguf", keys, both)
    with pytest.raises(CheckpointError, match=r"'blk\.1\.attn_qkv\.weight' and 'blk\.1\.attn_k\.weight', which both"):
        GgufCheckpoint(path)
    made = fused(tensors)
    del made["blk.1.attn_qkv.bias"]
    with pytest.raises(CheckpointError, match=r"no tensor 'blk\.1\.attn_q\.bias'"):
        compiled(write_gguf(tmp_path / "no_bias.gguf", keys, made), tmp_path / "b")


def test_layers_that_predict_further_tokens_are_left_out(tmp_path: Path) -> None:
    want = compiled(make_gguf(tmp_path / "m.gguf", "glm4_moe"), tmp_path / "a")
    config = family_config("glm4_moe")
    tensors = gguf_tensors(config, family_tensors(config), "glm4moe")
    tensors["blk.2.nextn.eh_proj.weight"] = np.zeros((192, 384), np.float32)
    keys = {"general.architecture": "glm4moe", **metadata_of(config, "glm4moe")}
    keys |= {"glm4moe.block_count": 3, "glm4moe.nextn_predict_layers": 1}
    path = write_gguf(tmp_path / "nextn.gguf", keys, tensors)
    with pytest.warns(match=r"holds 1 tensors .* such as 'blk\.2\.nextn\.eh_proj\.weight'; they are left out"):
        assert compiled(path, tmp_path / "b") == want


def test_early_mixtral_files_have_a_tensor_for_each_expert(tmp_path: Path) -> None:
    want = compiled(make_gguf(tmp_path / "m.gguf", "mixtral"), tmp_path / "a")
    config = family_config("mixtral")
    tensors = {}
    for name, tensor in gguf_tensors(config, family_tensors(config), "llama").items():
        parts = enumerate(tensor) if "_exps." in name else []
        tensors |= {name.replace("_exps.", f".{expert}."): part for expert, part in parts} or {name: tensor}
    assert "blk.1.ffn_down.7.weight" in tensors
    keys = {"general.architecture": "llama", **metadata_of(config, "llama")}
    assert compiled(write_gguf(tmp_path / "old.gguf", keys, tensors), tmp_path / "b") == want
    del tensors["blk.1.ffn_up.5.weight"]
    with pytest.raises(CheckpointError, match=r"has no tensor 'blk\.1\.ffn_up_exps\.weight' \(.*\.experts\.5\.w3"):
        compiled(write_gguf(tmp_path / "cut.gguf", keys, tensors), tmp_path / "c")


def test_factors_of_longrope_come_in_pairs(tmp_path: Path) -> None:
    config = family_config("phi3", rope_parameters={**LONGROPE, "original_max_position_embeddings": 1024})
    tensors = gguf_tensors(config, family_tensors(config), "phi3")
    del tensors["rope_factors_short.weight"]
    path = write_gguf(tmp_path / "m.gguf", {"general.architecture": "phi3", **metadata_of(config, "phi3")}, tensors)
    with pytest.raises(CheckpointError, match=r"has rope_factors_long\.weight alone, expected both rope_factors_long"):
        GgufCheckpoint(path).config  # noqa: B018


def test_a_file_in_parts_is_one_model(tmp_path: Path) -> None:
    want = compiled(make_gguf(tmp_path / "one.gguf", "llama"), tmp_path / "a")
    first = make_gguf(tmp_path / "m.gguf", "llama", parts=3)
    assert first.name == "m-00001-of-00003.gguf"
    assert compiled(first, tmp_path / "b") == want
    (tmp_path / "m-00002-of-00003.gguf").rename(tmp_path / "gone")
    with pytest.raises(CheckpointError, match=r"is part 1 of 3, and m-00002-of-00003\.gguf is not beside it"):
        GgufCheckpoint(first)


def test_config_says_what_the_file_says(tmp_path: Path) -> None:
    def config(family: str, **metadata: Any) -> dict[str, Any]:
        return GgufCheckpoint(make_gguf(tmp_path / "m.gguf", family, **metadata)).config

    assert config("mistral")["model_type"] == "mistral"
    assert config("mistral")["sliding_window"] == 20
    llama, rope = config("llama"), family_config("llama")["rope_parameters"]
    assert {**llama["rope_scaling"], "rope_theta": llama["rope_theta"]} == rope
    assert (llama["rms_norm_eps"], llama["tie_word_embeddings"], llama["attention_bias"]) == (1e-5, True, True)
    yarn = config("qwen2", **{"qwen2.rope.scaling.attn_factor": 2.0})["rope_scaling"]
    assert yarn["attention_factor"] == pytest.approx(2 * (0.1 * np.log(4.0) + 1))
    assert config("qwen2", **{"qwen2.attention.causal": True}) == config("qwen2")
    assert config("qwen2", **{"qwen2.rope.scaling.yarn_attn_factor": 0.87824886}) == config("qwen2")
    linear = config("qwen3", **{"qwen3.rope.scaling.type": "linear", "qwen3.rope.scaling.factor": 3.0})
    assert linear["rope_scaling"] == {"rope_type": "linear", "factor": 3.0}


@pytest.mark.parametrize("family", LATENT)
def test_early_files_have_keys_and_values_of_latent_attention_in_one_tensor(tmp_path: Path, family: str) -> None:
    """Those of converters of before April 2025: `attn_kv_b`, and the sizes of a head under the usual names."""
    want = compiled(make_gguf(tmp_path / "m.gguf", family), tmp_path / "a", quant="float32")
    config = family_config(family)
    made = gguf_tensors(config, family_tensors(config), "deepseek2")
    tensors = {}
    for name, tensor in made.items():
        if name.endswith(".attn_k_b.weight"):
            heads = [tensor.swapaxes(1, 2), made[name.replace("attn_k_b", "attn_v_b")]]
            joined = np.concatenate(heads, axis=1)
            tensors[name.replace("attn_k_b", "attn_kv_b")] = joined.reshape(-1, joined.shape[2])
        elif not name.endswith(".attn_v_b.weight"):
            tensors[name] = tensor
    keys = {"general.architecture": "deepseek2", **metadata_of(config, "deepseek2")}
    keys["deepseek2.attention.key_length"] = keys.pop("deepseek2.attention.key_length_mla")
    keys["deepseek2.attention.value_length"] = keys.pop("deepseek2.attention.value_length_mla")
    keys["deepseek2.attention.head_count_kv"] = config["num_attention_heads"]
    keys.pop("deepseek2.expert_gating_func", None)  # which later converters write
    assert compiled(write_gguf(tmp_path / "old.gguf", keys, tensors), tmp_path / "b", quant="float32") == want
    made["blk.1.attn_v_b.weight"] = made["blk.1.attn_v_b.weight"][:, :, 1:]
    path = write_gguf(tmp_path / "cut.gguf", {**keys, **metadata_of(config, "deepseek2")}, made)
    with pytest.raises(CheckpointError, match=r"'blk\.1\.attn_k_b\.weight' has shape .* expected heads, latent, keys"):
        compiled(path, tmp_path / "c", quant="float32")
    del made["blk.1.attn_v_b.weight"]
    path = write_gguf(tmp_path / "missing.gguf", {**keys, **metadata_of(config, "deepseek2")}, made)
    with pytest.raises(CheckpointError, match=r"has no tensor 'blk\.1\.attn_v_b\.weight' \(model\.layers\.1\."):
        compiled(path, tmp_path / "d", quant="float32")


GEMMA4_KINDS: dict[str, tuple[dict[str, Any], dict[str, tuple[int, ...]]]] = {
    "26B-A4B": (
        {"enable_moe_block": True, "num_experts": 8, "top_k_experts": 2, "moe_intermediate_size": 128},
        {f"model.layers.{layer}.router.per_expert_scale": (8,) for layer in range(4)},
    ),
    "E2B": (
        {"num_kv_shared_layers": 2, "use_double_wide_mlp": True, "hidden_size_per_layer_input": 64},
        {
            "model.per_layer_model_projection.weight": (256, 192),
            "model.per_layer_projection_norm.weight": (64,),
            "model.embed_tokens_per_layer.weight": (331, 256),
        },
    ),
}


@pytest.mark.parametrize("kind", GEMMA4_KINDS)
def test_gemma4_files_have_experts_and_inputs_of_layers(tmp_path: Path, kind: str) -> None:
    """`ffn_gate_up_exps`, the factors of experts in `ffn_down_exps.scale`; MLPs of two widths."""
    changes, more = GEMMA4_KINDS[kind]
    config, rng = family_config("gemma4", **GEMMA4, **changes), np.random.default_rng(3)
    tensors = family_tensors(config)
    tensors |= {name: (rng.standard_normal(shape) * 0.1 + 1).astype(np.float16) for name, shape in more.items()}
    (tmp_path / "hf").mkdir()
    (tmp_path / "hf/config.json").write_text(json.dumps(config))
    save_file({name: each.astype(np.float32) for name, each in tensors.items()}, tmp_path / "hf/model.safetensors")
    keys = {"general.architecture": "gemma4", **metadata_of(config, "gemma4")}
    path = write_gguf(tmp_path / "m.gguf", keys, gguf_tensors(config, tensors, "gemma4"))
    want = compiled(tmp_path / "hf", tmp_path / "a", quant="float32")
    assert compiled(path, tmp_path / "b", quant="float32") == want


def test_files_of_granite_4_without_experts_have_the_size_of_a_shared_mlp(tmp_path: Path) -> None:
    """GraniteHybridModel of the converter, of a model with attention alone: sizes of layers that it has not."""
    want = compiled(make_gguf(tmp_path / "m.gguf", "granite"), tmp_path / "a", quant="float32")
    inner = family_config("granite")["intermediate_size"]
    keys = {"feed_forward_length": 64, "expert_shared_feed_forward_length": inner, "expert_count": 0}
    keys |= {"expert_used_count": 0, "ssm.conv_kernel": 4, "ssm.inner_size": 384, "rope.scaling.finetuned": True}
    keys |= {"attention.head_count_kv": [family_config("granite")["num_key_value_heads"]] * 2}
    path = make_gguf(tmp_path / "new.gguf", "granite", **{f"granite.{key}": value for key, value in keys.items()})
    assert compiled(path, tmp_path / "b", quant="float32") == want


def test_early_files_of_exaone_have_the_epsilon_of_norms_that_do_not_centre(tmp_path: Path) -> None:
    config = family_config("exaone")
    keys = {"general.architecture": "exaone", **metadata_of(config, "exaone")}
    keys["exaone.attention.layer_norm_rms_epsilon"] = keys.pop("exaone.attention.layer_norm_epsilon")
    path = write_gguf(tmp_path / "m.gguf", keys, gguf_tensors(config, family_tensors(config), "exaone"))
    assert GgufCheckpoint(path).config["rms_norm_eps"] == config["layer_norm_epsilon"]


def test_files_of_qwen3_5_say_which_layers_have_linear_attention(tmp_path: Path) -> None:
    """Those of newer converters: `attention.recurrent_layers`, with layers that predict further tokens at the end."""
    flags = [False, True, True, False, False]
    keys = {"qwen35.attention.recurrent_layers": flags, "qwen35.block_count": 5, "qwen35.nextn_predict_layers": 1}
    config = GgufCheckpoint(make_gguf(tmp_path / "m.gguf", "qwen3_5", **keys)).config
    assert config["layer_types"] == ["full_attention", "linear_attention", "linear_attention", "full_attention"]
    short = make_gguf(tmp_path / "short.gguf", "qwen3_5", **{**keys, "qwen35.attention.recurrent_layers": flags[:3]})
    with pytest.raises(CompileError, match=r"attention\.recurrent_layers is .* expected one flag for each of 4 layers"):
        GgufCheckpoint(short).config  # noqa: B018


def test_experts_in_one_group_are_in_none(tmp_path: Path) -> None:
    """`expert_group_count` of newer converters, of a family without groups."""
    want = GgufCheckpoint(make_gguf(tmp_path / "m.gguf", "minimax_m2")).config
    keys = {"minimax-m2.expert_group_count": 1, "minimax-m2.expert_group_used_count": 1}
    assert GgufCheckpoint(make_gguf(tmp_path / "one.gguf", "minimax_m2", **keys)).config == want
    with pytest.raises(CheckpointError, match=r"minimax-m2\.expert_group_count=4 is not supported"):
        GgufCheckpoint(make_gguf(tmp_path / "four.gguf", "minimax_m2", **{"minimax-m2.expert_group_count": 4})).config  # noqa: B018


def test_early_gemma2_files_have_the_window_and_the_caps_of_llama_cpp(tmp_path: Path) -> None:
    config = family_config("gemma2", query_pre_attn_scalar=64)
    keys = metadata_of({**config, "attn_logit_softcapping": 1.0, "final_logit_softcapping": 1.0}, "gemma2")
    for key in ("attn_logit_softcapping", "final_logit_softcapping", "attention.sliding_window"):
        del keys[f"gemma2.{key}"]
    keys = {"general.architecture": "gemma2", **keys}
    path = write_gguf(tmp_path / "m.gguf", keys, gguf_tensors(config, family_tensors(config), "gemma2"))
    read = read_config(GgufCheckpoint(path).config)
    assert (read.flags["attn_logit_softcapping"], read.logit_cap) == (50.0, 30.0)
    assert read.windows == (4096, None)


def test_other_rope_factors_divide_the_frequencies(tmp_path: Path) -> None:
    """As llama.cpp does, whatever rule they come from."""
    from tcim_lite.models.common.rope import Rope

    config = family_config("llama")
    factors = np.linspace(1, 5, config["head_dim"] // 2, dtype=np.float32)
    tensors = {**gguf_tensors(config, family_tensors(config), "llama"), "rope_freqs.weight": factors}
    path = write_gguf(tmp_path / "m.gguf", {"general.architecture": "llama", **metadata_of(config, "llama")}, tensors)
    read = read_config(GgufCheckpoint(path).config)
    rope = Rope(head_dim=read.head_dim, theta=read.rope_theta, max_position_embeddings=64)
    got, factor = dataclasses.replace(rope, scaling=read.rope_scaling).inverse_frequencies(64)
    plain, _ = rope.inverse_frequencies(64)
    np.testing.assert_allclose(got, plain / factors, rtol=1e-6)
    assert factor == 1


def test_a_folder_with_a_gguf_file_says_which_to_give(tmp_path: Path) -> None:
    make_gguf(tmp_path / "m.gguf", "llama")
    with pytest.raises(CheckpointError, match=r"has no config\.json, but m\.gguf: give the path of that file"):
        compile_checkpoint(CompileOptions(checkpoint=tmp_path, output=tmp_path / "out", **SIZES))


def test_a_tensor_that_gpt_oss_misses_is_named_as_its_files_do(tmp_path: Path) -> None:
    config = family_config("gpt_oss", **CHANGES["gpt_oss"])
    keys = {"general.architecture": "gpt-oss", **metadata_of(config, "gpt-oss")}
    for name in ("attn_sinks.weight", "post_attention_norm.weight", "ffn_gate_inp.bias", "ffn_up_exps.bias"):
        tensors = gguf_tensors(config, family_tensors(config), "gpt-oss")
        del tensors[f"blk.1.{name}"]
        path = write_gguf(tmp_path / "m.gguf", keys, tensors)
        with pytest.raises(CheckpointError, match=rf"has no tensor 'blk\.1\.{name}' \(model\.layers\.1\."):
            compiled(path, tmp_path / "out")


def test_a_draft_of_a_gguf_file(tmp_path: Path) -> None:
    files = compiled(make_gguf(tmp_path / "m.gguf", "qwen2"), tmp_path / "out", draft_layers=1)
    assert {"qwen2_prefill_draft.hmm", "qwen2_decode_draft.hmm", "qwen2_verify.hmm"} <= set(files)


def test_values_that_are_not_finite_are_refused(tmp_path: Path) -> None:
    config = family_config("qwen3")
    tensors = gguf_tensors(config, family_tensors(config), "qwen3")
    tensors["blk.1.attn_k.weight"][3, 3] = np.nan
    path = write_gguf(tmp_path / "m.gguf", {"general.architecture": "qwen3", **metadata_of(config, "qwen3")}, tensors)
    with pytest.raises(CheckpointError, match=r"tensor 'blk\.1\.attn_k\.weight' in .*m\.gguf holds NaN or infinity"):
        compile_checkpoint(CompileOptions(checkpoint=path, output=tmp_path / "out", **SIZES))


def test_the_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = make_gguf(tmp_path / "m.gguf", "qwen3")
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(CompileError, match=r"needs the package 'gguf': pip install 'tcim-lite\[gguf\]'"):
        GgufCheckpoint(path)


def test_random_weights_need_the_metadata_only(tmp_path: Path) -> None:
    path = make_gguf(tmp_path / "m.gguf", "qwen3")
    assert "qwen3.hmw" in compiled(path, tmp_path / "out", random_weights=True)
    assert json.loads((tmp_path / "out/config.json").read_text())["model_type"] == "qwen3"
