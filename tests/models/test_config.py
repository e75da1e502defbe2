"""Spellings and limits of `config.json`."""

from __future__ import annotations

import json
from typing import Any

import pytest
from twins import TWINS

from tcim_lite.models.common.errors import CompileError
from tcim_lite.models.common.profiles import profile_for
from tcim_lite.models.compiler.weights import weight_specs
from tcim_lite.models.families import FAMILIES, read_config


def test_old_and_new_spellings_agree(tiny_config: dict[str, Any]) -> None:
    yarn = {"factor": 4.0, "original_max_position_embeddings": 256}
    new = {**tiny_config, "dtype": "bfloat16", "rope_parameters": {"rope_type": "yarn", "rope_theta": 1e6, **yarn}}
    old = {**tiny_config, "torch_dtype": "bfloat16", "rope_theta": 1e6, "rope_scaling": {"type": "yarn", **yarn}}
    del old["rope_parameters"]
    assert read_config(new) == read_config(old)
    assert read_config(new).rope_scaling["rope_type"] == "yarn"


def test_apertus_files_without_theta_have_that_of_transformers() -> None:
    config = {**FAMILIES["apertus"].tiny_config, "rope_scaling": {"type": "linear", "factor": 2.0}}
    assert read_config(config).rope_theta == 12e6
    assert read_config({**config, "rope_theta": 5e5}).rope_theta == 5e5
    assert read_config({**config, "rope_scaling": {}}).rope_scaling["rope_type"] == "llama3"
    assert read_config({**config, "rope_scaling": {}, "rope_parameters": {}}).rope_scaling["rope_type"] == "default"


def test_laguna_takes_a_share_for_both_kinds_of_layers_that_say_none() -> None:
    config = {**FAMILIES["laguna"].tiny_config, "partial_rotary_factor": 0.25}
    assert (read_config(config).rotary_dim, read_config(config).local_rope.head_dim) == (32, 16)
    assert read_config({**config, "rope_parameters": None}).local_rope.head_dim == 64


def test_rope_scaling_null_means_default(tiny_config: dict[str, Any]) -> None:
    del tiny_config["rope_parameters"]
    config = read_config({**tiny_config, "rope_theta": 1000000, "rope_scaling": None})
    assert (config.rope_theta, config.rope_scaling["rope_type"]) == (1e6, "default")


def test_defaults(tiny_config: dict[str, Any]) -> None:
    for key in ("num_key_value_heads", "tie_word_embeddings", "attention_bias", "rms_norm_eps", "use_sliding_window"):
        tiny_config.pop(key)
    config = read_config({**tiny_config, "head_dim": None, "num_attention_heads": 4, "unknown": 1})
    assert (config.num_kv_heads, config.head_dim, config.rms_norm_eps) == (4, 16, 1e-6)
    assert not config.tie_word_embeddings
    assert not config.flags["attention_bias"]


@pytest.mark.parametrize(
    ("family", "changes", "chosen"),
    [
        ("ernie4_5_moe", {"moe_k": 2, "num_experts_per_tok": 4}, 4),
        ("ernie4_5_moe", {"moe_k": 2, "num_experts_per_tok": None}, 2),
        ("granitemoehybrid", {"num_experts_per_tok": 2, "num_experts": 0}, 2),
        ("hunyuan_v1_moe", {"moe_topk": [2, 2], "num_experts_per_tok": 3}, 3),
    ],
)
def test_of_two_names_of_a_key_the_one_of_transformers_counts(
    family: str, changes: dict[str, Any], chosen: int
) -> None:
    experts = read_config({**FAMILIES[family].tiny_config, **changes}).experts
    assert experts is not None
    assert experts.chosen == chosen


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"architectures": ["BertLMHeadModel"], "model_type": "bert"}, "BertLMHeadModel.*Qwen3ForCausalLM"),
        ({"architectures": ["Qwen3NextForCausalLM"], "model_type": "qwen3_moe"}, "Qwen3NextForCausalLM.*Qwen3 dense"),
        ({"architectures": ["Qwen3ForSequenceClassification"]}, "another architecture"),
        ({"architectures": None, "model_type": None}, "another architecture"),
        ({"hidden_act": "gelu"}, "hidden_act='gelu'"),
        ({"num_attention_heads": 5}, "num_attention_heads=5 is not a multiple of num_key_value_heads=2"),
        ({"head_dim": 33}, "head_dim=33 is odd"),
        ({"hidden_size": None}, "no 'hidden_size'"),
        ({"vocab_size": "83"}, "vocab_size must be a positive integer, got '83'"),
        ({"rms_norm_eps": -1}, "rms_norm_eps must be a positive number"),
        ({"tie_word_embeddings": "yes"}, "tie_word_embeddings must be true or false"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor=0.5 is not supported, expected 1"),
        ({"partial_rotary_factor": 0.0}, "partial_rotary_factor=0.0 is not supported"),
        ({"layer_types": ["full_attention", "linear_attention"]}, "layer_types"),
        ({"quantization_config": {"quant_method": "hqq"}}, "already quantised.*hqq"),
        ({"quantization_config": "fp8"}, "already quantised.*fp8"),
        ({"architectures": 5}, "another architecture"),
        ({"layer_types": 5}, "layer_types"),
        ({"max_window_layers": "x"}, "max_window_layers must be an integer, got 'x'"),
        ({"use_sliding_window": True, "max_window_layers": 0, "sliding_window": "x"}, "sliding_window must be"),
        ({"num_attention_heads": 10**9}, "num_attention_heads must be at most"),
        ({"num_hidden_layers": 4097}, "num_hidden_layers must be at most 4096, got 4097"),
        ({"rms_norm_eps": 1e300}, "range of float32"),
        ({"rope_parameters": {"rope_theta": 10**400}}, "rope_theta must be a positive number"),
        ({"rope_parameters": ""}, "rope_parameters must be an object, got ''"),
        ({"rope_scaling": 0}, "rope_scaling must be an object, got 0"),
    ],
)
def test_refusals(tiny_config: dict[str, Any], changes: dict[str, Any], message: str) -> None:
    with pytest.raises(CompileError, match=message):
        read_config({**tiny_config, **changes})


@pytest.mark.parametrize(
    ("family", "changes", "message"),
    [
        ("gemma4", {"per_layer_config": {"²": {}}}, "per_layer_config must have an object for each"),
        ("gemma4", {"per_layer_config": {"1": {"head_dim": [64]}}}, "per_layer_config: head_dim must be a positive"),
        ("gemma4", {"per_layer_config": {"0": {}, "1": {"head_dim": {}}}}, "expected one head_dim and one"),
        ("gemma3", {"final_logit_softcapping": 65505}, "final_logit_softcapping=65505 is beyond 65504"),
        ("qwen3", {"num_attention_heads": 514}, "514 query heads over 2 KV heads are not supported.* at most 256"),
        (
            "gemma4",
            {"num_attention_heads": 258, "attention_k_eq_v": True, "num_global_key_value_heads": 1},
            "258 query heads over 1 KV",
        ),
        ("laguna", {"num_attention_heads_per_layer": [514, 2]}, "514 query heads over 2 KV heads"),
        ("qwen3_moe", {"num_experts": 1 << 24}, "num_experts must be at most 4096, got 16777216"),
        ("glm_ocr", {"text_config": []}, r"text_config must be an object, got \[\]"),
        ("gemma2", {"is_causal": False}, "is_causal=False is not supported; Gemma 2 is compiled with True only"),
        ("bamba", {"partial_rotary_factor": 0.25}, "partial_rotary_factor=0.25 is not supported"),
        ("chatglm", {"ffn_hidden_size": 0}, "ffn_hidden_size must be a positive integer, got 0"),
        ("exaone", {"activation_function": "gelu"}, "activation_function='gelu' is not supported"),
    ],
)
def test_refusals_of_families(family: str, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(CompileError, match=message):
        weight_specs(read_config({**FAMILIES[family].tiny_config, **changes}), profile_for("float32", None))


def test_a_key_goes_by_the_name_that_the_file_has() -> None:
    config = dict(FAMILIES["qwen3_moe"].tiny_config)
    count = config.pop("num_experts")
    assert read_config({**config, "num_local_experts": count}).experts.count == count
    with pytest.raises(CompileError, match="num_local_experts must be a positive integer, got '8'"):
        read_config({**config, "num_local_experts": "8"})


def test_sliding_windows_by_layer(tiny_config: dict[str, Any]) -> None:
    sliding = {**tiny_config, "use_sliding_window": True, "sliding_window": 128, "max_window_layers": 1}
    assert read_config(sliding).windows == (None, 128)
    named = {"layer_types": ["sliding_attention", "full_attention"]}
    assert read_config({**sliding, **named}).windows == (128, None)
    for changes in ({"max_window_layers": 2}, {"use_sliding_window": False}, {"layer_types": ["full_attention"] * 2}):
        assert read_config({**sliding, **changes}).windows == (None, None)


SIZES = {
    "vocab_size": 83,
    "hidden_size": 192,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 64,
    "shared_expert_intermediate_size": 64,
    "n_routed_experts": 8,
    "n_shared_experts": 1,
}
YARN = {"rope_type": "yarn", "rope_theta": 1e6, "factor": 2.0}
POSITIONS = {"original_max_position_embeddings": 512}
LAYER_KINDS = ("full_attention", "sliding_attention")
# What no value of a flag means.
NONE = {
    "n_group": 1,
    "topk_group": 1,
    "attn_layer_indices": [],
    "position_embedding_type": "nope",
    "moe_latent_size": 0,
    "num_ln_in_parallel_attn": 2,
    "prefix_dense_intermediate_size": SIZES["intermediate_size"],
}
LEARNED = tuple(name for name, family in FAMILIES.items() if read_config(family.tiny_config).positions is not None)
UNTURNED = ("jamba",)  # without RoPE
OTHER_KEYS = ("falcon_mamba", "kimi_linear", "mamba", "mamba2", "openai-gpt")
BY_KIND = ("laguna", "lfm3", "mellum", "olmo3")  # of layers, their RoPE


def test_older_files_of_olmo3_scale_rope_where_there_is_no_window() -> None:
    raw = dict(FAMILIES["olmo3"].tiny_config)
    theta, scaling = raw.pop("rope_theta"), {**YARN, **POSITIONS, "rope_theta": 3e5}
    older = {key: value for key, value in scaling.items() if key != "rope_theta"}
    new = {"full_attention": scaling, "sliding_attention": {"rope_type": "default", "rope_theta": 3e5}}
    got = read_config({**raw, "rope_theta": 3e5, "rope_scaling": older})
    assert got == read_config({**raw, "rope_parameters": new})
    usual = read_config(raw)
    assert usual.local_rope is not None
    assert (usual.rope_theta, usual.local_rope.theta) == (theta, theta)


@pytest.mark.oracle
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"head_dim": 64, "rms_norm_eps": 1e-5, "max_position_embeddings": 777},
        {"rope_parameters": None, "rope_theta": 5e5},
        {"rope_parameters": None, "rope_theta": 5e5, "rope_scaling": {"type": "linear", "factor": 2.0}},
        {"rope_parameters": YARN},
        {"rope_scaling": YARN, "max_position_embeddings": 512},
        {"use_sliding_window": True, "sliding_window": 64, "max_window_layers": 3, "num_hidden_layers": 4},
        {"sliding_window": None},
        {"attention_bias": True, "tie_word_embeddings": True, "num_key_value_heads": 6},
    ],
)
@pytest.mark.parametrize(
    "family",
    [name for name, family in FAMILIES.items() if not family.nested and name not in ("minicpmv", *OTHER_KEYS, *TWINS)],
)
def test_reads_as_transformers_does(family: str, changes: dict[str, Any]) -> None:
    """A file with no key but the sizes and `changes` shows the defaults."""
    transformers = pytest.importorskip("transformers", reason="oracle")
    if family in ("phi3", "phimoe") and (changes.get("rope_parameters") or changes.get("rope_scaling")):
        pytest.skip("transformers takes LongRoPE alone here")
    if family == "cohere2_moe" and ("rope_scaling" in changes or changes.get("rope_parameters", 1) is None):
        pytest.skip("transformers has its own keys of RoPE here")
    raw = {**SIZES, **changes}
    if FAMILIES[family].contract.per_layer[0].role == "latent_cache":  # transformers cannot run others
        raw["num_key_value_heads"] = raw["num_attention_heads"]
    if family in ("deepseek_v3", "deepseek_v32"):  # in equal groups, which the usual 8 are not
        raw |= {"n_group": 4, "topk_group": 2}
    if family in ("lfm2", "lfm2_moe"):  # with an epsilon of another name, and an intermediate size that it changes
        kinds = ["full_attention", *["conv"] * (raw["num_hidden_layers"] - 1)]
        raw |= {"layer_types": kinds, "block_auto_adjust_ff_dim": False, "norm_eps": raw.get("rms_norm_eps", 1e-5)}
        raw |= {"rms_norm_eps": raw["norm_eps"], "block_ff_dim": raw["intermediate_size"]}
        raw["full_attn_idxs"] = [0]
    if family == "cohere2_moe":  # which scales a context that the scaling names
        raw |= {key: {**value, **POSITIONS} for key, value in changes.items() if value is YARN}
    if family == "lfm3":  # with an epsilon of another name
        raw["norm_eps"] = raw["rms_norm_eps"] = raw.get("rms_norm_eps", 1e-5)
    if family == "nemotron_h":  # which counts its layers
        raw["layers_block_type"] = ["linear_attention", "full_attention"] * (raw["num_hidden_layers"] // 2)
        raw["layer_norm_epsilon"] = raw.get("rms_norm_eps", 1e-5)
    if family in ("cwm", "falcon_h1", "hyperclovax", "nemotron_h"):  # which refuse it, and the last has no positions
        unread = ("attention_bias", *(("rope_parameters", "rope_scaling") if family == "nemotron_h" else ()))
        raw = {key: value for key, value in raw.items() if key not in unread}
    if family == "minicpm3":  # which changes the epsilon
        raw["scale_depth"] = None
    if family == "internlm3":  # transformers takes one value for both
        raw["mlp_bias"] = raw.get("attention_bias", False)
    if family == "exaone4" and changes.get("sliding_window", 1) is None:  # transformers divides by none
        raw["layer_types"] = ["full_attention"] * 2
    if family == "jamba":  # with attention in a layer of so few
        raw |= {"attn_layer_period": 2, "attn_layer_offset": 1}
    if family in UNTURNED:
        raw = {key: value for key, value in raw.items() if not key.startswith("rope")}
    if family in ("codegen", "gptj", *LEARNED):  # which have names of their own, and no other RoPE
        names = {**FAMILIES[family].spelled, "num_key_value_heads": "unread"}
        raw = {names.get(key) or key: value for key, value in raw.items() if not key.startswith("rope")}
    if family in ("codegen", "gptj"):
        raw |= {"rotary_dim": 16, "n_head": 4}
    if family == "gpt_neo":
        raw["attention_types"] = [[["global"], raw["num_layers"]]]
    if family == "falcon":  # whose class takes no size of heads
        raw.pop("head_dim", None)
    if family == "iquestcoder":  # which refuses it
        raw.pop("use_sliding_window", None)
    if family in BY_KIND:
        raw |= {"layer_types": [*LAYER_KINDS] * (raw["num_hidden_layers"] // 2)}
        scaled = raw.pop("rope_scaling", None) or raw.get("rope_parameters")
        if scaled:
            raw["rope_parameters"] = {kind: {**YARN, **POSITIONS} for kind in LAYER_KINDS}
    if (
        family in ("cwm", "flint", "laguna", "lfm3", "olmo3", "exaone_moe") and raw.get("sliding_window", 1) is None
    ):  # not in transformers
        del raw["sliding_window"]
    want = transformers.AutoConfig.for_model(family, **json.loads(json.dumps(raw)))
    got = read_config({"model_type": family, **raw})
    sizes = ("vocab_size", "hidden_size", "intermediate_size", "rms_norm_eps", "tie_word_embeddings")
    names = {name: name for name in (*sizes, "max_position_embeddings")}
    names |= {"num_layers": "num_hidden_layers", "num_heads": "num_attention_heads"}
    names |= {"num_kv_heads": "num_key_value_heads"}
    names = {ours: FAMILIES[family].spelled.get(theirs, theirs) for ours, theirs in names.items()}
    if family in ("falcon", *LEARNED):
        one = family in ("falcon", "gpt_bigcode")
        assert (names.pop("num_kv_heads"), got.num_kv_heads) == ("", 1 if one else got.num_heads)
    if family in ("biogpt", "opt", "xglm"):  # which have one epsilon
        assert (names.pop("rms_norm_eps"), got.rms_norm_eps) == ("", 1e-5)
    if family == "olmo":  # which has one epsilon
        assert (names.pop("rms_norm_eps"), got.rms_norm_eps) == ("rms_norm_eps", 1e-5)
    if family == "cohere2_moe" and want.rms_norm_eps is None:  # whose norms subtract the mean then
        assert (names.pop("rms_norm_eps"), got.rms_norm_eps, got.centred) == ("rms_norm_eps", 1e-5, True)
    for ours, theirs in names.items():
        assert getattr(got, ours) == getattr(want, theirs), ours
    for flag, value in got.flags.items():
        # Which is the intermediate size there; another form of `layers_block_type`; there that of all layers.
        if flag in ("block_ff_dim", "first_k_dense_replace", "hybrid_override_pattern", "layer_rope_theta"):
            continue
        theirs = getattr(want, FAMILIES[family].spelled.get(flag, flag))
        assert value == (NONE.get(flag) if theirs is None else theirs), flag
    unread = family in ("codegen", *LEARNED)
    heads = want.num_attention_heads
    assert got.head_dim == ((not unread and getattr(want, "head_dim", None)) or want.hidden_size // heads)
    if family in ("codegen", "gptj", "nemotron_h", *LEARNED, *UNTURNED):  # no positions, and no window
        return
    rope = want.rope_parameters
    if family in BY_KIND:
        rope, local = (rope[kind] for kind in LAYER_KINDS)
        assert got.local_rope is not None
        assert (got.local_rope.theta, got.local_rope.scaling["rope_type"]) == (local["rope_theta"], local["rope_type"])
        assert got.local_rope.head_dim == got.head_dim
        if rope["rope_type"] != "proportional":  # whose other frequencies are 0
            assert got.rotary_dim == got.head_dim * rope.get("partial_rotary_factor", 1)
    assert got.rope_theta == rope["rope_theta"]
    assert got.rope_scaling["rope_type"] == rope["rope_type"]
    types = getattr(want, "layer_types", None)
    # A model that has no window ignores the key.
    window = want.sliding_window if hasattr(type(want), "sliding_window") else None
    assert got.windows == tuple(
        window if kind == "sliding_attention" else None for kind in types or ["sliding_attention"] * got.num_layers
    )
