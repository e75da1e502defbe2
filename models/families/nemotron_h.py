"""Nemotron-H: layers that are one block each, a state-space layer, attention without positions, an MLP, or experts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from ..blocks import Attention, Block, Mlp, Moe
from ..common.config_keys import Key, Only
from ..common.errors import CompileError
from ..family import HEADS_BY_LAYER, Family, Gguf, Tensors, plain
from ..model_config import Experts, ModelConfig
from ..weights import roles
from .shared.deepseek_experts import GROUPS, experts_of, groups_of, groups_of_gguf
from .shared.dense import CONTRACT, KEYS, TENSORS, TINY
from .shared.gguf import SIGMOID_KEYS, by_sigmoids, heads_by_layer
from .shared.state_space import NO_LIMIT, checked, gguf_names, layer_kinds, tensors, with_states

_LAYER = "backbone.layers.{layer}"
_NET = f"{_LAYER}.mixer"
_LETTERS = {"M": "linear_attention", "*": "full_attention", "-": "mlp", "E": "moe"}


def _layer(config: ModelConfig, layer: int) -> tuple[Block, ...]:
    flags = config.flags
    kinds = layer_kinds("layers_block_type", flags["layers_block_type"], config.num_layers, list(_LETTERS.values()))
    if kinds[layer] == "full_attention":
        return (Attention(rotated=False),)
    if kinds[layer] == "mlp":
        return (Mlp(alone="relu2", bias=flags["mlp_bias"]),)
    if kinds[layer] == "moe":
        normalise, scale = flags["norm_topk_prob"], flags["routed_scaling_factor"]
        groups = groups_of(flags)
        experts = Moe(
            order="sigmoid", normalise=normalise, scale=scale, groups=groups, shared_gate=False, alone="relu2"
        )
        return (experts,)
    heads = flags["mamba_num_heads"]
    net = checked(
        heads * flags["mamba_head_dim"],
        heads=heads,
        groups=flags["n_groups"],
        keys=flags["ssm_state_size"],
        taps=flags["conv_kernel"],
        epsilon=config.rms_norm_eps,
        conv_bias=flags["use_conv_bias"],
        in_bias=flags["use_bias"],
        out_bias=flags["use_bias"],
    )
    return (net,)


def _kinds(values: Mapping[str, Any]) -> tuple[str, ...]:
    """Those of a file that has a letter for each layer; other letters are named by what refuses them."""
    return tuple(_LETTERS.get(letter, letter) for letter in str(values["hybrid_override_pattern"]))


def _count(values: Mapping[str, Any]) -> int:
    return len(values["layers_block_type"])


def _experts(values: Mapping[str, Any]) -> Experts | None:
    if "moe" not in values["layers_block_type"]:
        return None
    if values["mlp_bias"]:
        raise CompileError("config.json: mlp_bias with layers of experts is not supported, expected false")
    shared, latent = values["moe_shared_expert_intermediate_size"], values["moe_latent_size"] or None
    return replace(experts_of({**values, "n_shared_experts": 0}), shared=shared, latent=latent)


def _of_gguf(get: Callable[[str], Any], config: Mapping[str, Any]) -> Mapping[str, Any]:
    """A layer has heads of keys, or an MLP or experts, or else a state-space layer."""
    heads, inner = heads_by_layer(get, config), get("feed_forward_length")
    layers, net_heads, values = config["num_hidden_layers"], config["mamba_num_heads"], get("ssm.inner_size")
    if not isinstance(inner, list) or len(inner) < layers:
        raise CompileError(f"feed_forward_length is {inner!r:.80}, expected one number for each of {layers} layers")
    if not all(isinstance(size, int) and size > 0 for size in (values, net_heads)) or values % net_heads:
        raise CompileError(
            f"ssm.inner_size={values!r:.40} and ssm.time_step_rank={net_heads!r:.40} must be positive, the first a "
            "multiple of the second"
        )
    sparse = "moe" if get("expert_count") else "mlp"
    kinds = zip(heads, inner[:layers], strict=True)
    return {
        **by_sigmoids(get, config),
        **groups_of_gguf(get),
        "layers_block_type": ["full_attention" if q else sparse if mlp else "linear_attention" for q, mlp in kinds],
        "mamba_head_dim": values // net_heads,
        "moe_shared_expert_intermediate_size": get("expert_shared_feed_forward_length") or config["intermediate_size"],
        "routed_scaling_factor": get("expert_weights_scale") or 1.0,
        "moe_latent_size": get("moe_latent_size") or 0,
        "mlp_bias": False,
    }


FAMILY = Family(
    model_type="nemotron_h",
    architecture="NemotronHForCausalLM",
    title="Nemotron-H",
    models="Nemotron-H 4B to 56B, Nemotron Nano 2 9B and 12B, Nemotron 3 Nano and Super (MoE), without the MTP layers",
    has="layers that are one block each by `hybrid_override_pattern` or `layers_block_type`: a "
    "[state-space layer](compile.md#state-space-layers), attention without positions, an MLP with relu2 and no "
    "gate, or `num_experts_per_tok` of `n_routed_experts` such MLPs for each token, chosen by sigmoids and a bias, "
    "beside a shared one, on rows of `moe_latent_size` numbers if it is there; `use_bias`, `use_conv_bias`, "
    "`mlp_bias`; `time_step_min` limits no step, as when transformers decodes (in its prefill it does)",
    keys=(
        Key("hybrid_override_pattern", "choice", absent=""),
        Key("layers_block_type", "names", absent=_kinds, null=_kinds, also="layer_types"),
        *KEYS,
        Key("num_hidden_layers", absent=_count),
        Key("num_key_value_heads", absent=8),
        Key("head_dim", absent=128, also="attention_head_dim"),
        Key("rms_norm_eps", "number", absent=1e-5),
        Key("max_position_embeddings", absent=4096),
        Key("mamba_num_heads", absent=128),
        Key("mamba_head_dim", absent=64),
        Key("ssm_state_size", absent=128, also="mamba_state_dim"),
        Key("n_groups", absent=8, also="mamba_n_groups"),
        Key("conv_kernel", absent=4, also="mamba_d_conv"),
        Key("use_conv_bias", "flag", absent=True, also="mamba_conv_bias"),
        Key("use_bias", "flag", absent=False),
        Key("mlp_bias", "flag", absent=False),
        Only("attention_bias", False),
        Only("mlp_hidden_act", "relu2"),
        Only("mamba_hidden_act", "silu"),
        NO_LIMIT,
        Key("n_routed_experts", absent=8, also="num_local_experts"),
        Key("num_experts_per_tok", absent=2),
        Key("moe_intermediate_size", absent=7688),
        Key("moe_shared_expert_intermediate_size", absent=7688),
        Key("moe_latent_size", "count", absent=0, null=0),
        Key("routed_scaling_factor", "number", absent=1.0),
        Key("norm_topk_prob", "flag", absent=True),
        Key("n_group", absent=1),
        Key("topk_group", absent=1),
    ),
    spelled={"rms_norm_eps": "layer_norm_epsilon"},
    layer=_layer,
    tensors={
        **TENSORS,
        **tensors(_NET),
        roles.EMBEDDING: plain("backbone.embeddings.weight"),
        roles.FINAL_NORM: plain("backbone.norm_f.weight"),
        roles.ATTENTION_NORM: plain(f"{_LAYER}.norm.weight"),
        roles.MLP_NORM: plain(f"{_LAYER}.norm.weight"),
        roles.QKV: Tensors("stack", tuple(f"{_NET}.{part}_proj.weight" for part in "qkv")),
        roles.ATTENTION_OUT: plain(f"{_NET}.o_proj.weight"),
        roles.UP: plain(f"{_NET}.up_proj.weight"),
        roles.UP_BIAS: plain(f"{_NET}.up_proj.bias"),
        roles.DOWN: plain(f"{_NET}.down_proj.weight"),
        roles.DOWN_BIAS: plain(f"{_NET}.down_proj.bias"),
        roles.ROUTER: plain(f"{_NET}.gate.weight"),
        roles.ROUTER_CHOICE: plain(f"{_NET}.gate.e_score_correction_bias"),
        roles.EXPERT_LATENT: plain(f"{_NET}.fc1_latent_proj.weight"),
        roles.EXPERT_UP: plain(f"{_NET}.experts.{{expert}}.up_proj.weight"),
        roles.EXPERT_DOWN: plain(f"{_NET}.experts.{{expert}}.down_proj.weight"),
        roles.EXPERT_LATENT_DOWN: plain(f"{_NET}.experts.{{expert}}.down_proj.weight"),
        roles.EXPERT_LATENT_OUT: plain(f"{_NET}.fc2_latent_proj.weight"),
        roles.SHARED_UP: plain(f"{_NET}.shared_experts.up_proj.weight"),
        roles.SHARED_DOWN: plain(f"{_NET}.shared_experts.down_proj.weight"),
    },
    contract=with_states(CONTRACT),
    gguf=Gguf(
        arch="nemotron_h",
        alike=("nemotron_h_moe",),
        interleaved=True,
        head="attention.value_length",  # as long as keys; rope.dimension_count is of no use
        layers="backbone.layers",
        names={
            **gguf_names("mixer"),
            "token_embd": "backbone.embeddings",
            "output_norm": "backbone.norm_f",
            "attn_norm": "norm",
            **{f"attn_{part}": f"mixer.{part}_proj" for part in "qkv"},
            "attn_output": "mixer.o_proj",
            **{f"ffn_{part}": f"mixer.{part}_proj" for part in ("up", "down")},
            "ffn_gate_inp": "mixer.gate",
            "exp_probs_b.bias": "mixer.gate.e_score_correction_bias",
            **{f"ffn_{part}_exps": f"mixer.experts.{{expert}}.{part}_proj" for part in ("up", "down")},
            **{f"ffn_{part}_shexp": f"mixer.shared_experts.{part}_proj" for part in ("up", "down")},
            "ffn_latent_down": "mixer.fc1_latent_proj",
            "ffn_latent_up": "mixer.fc2_latent_proj",
        },
        keys={
            "ssm.conv_kernel": "conv_kernel",
            "ssm.state_size": "ssm_state_size",
            "ssm.group_count": "n_groups",
            "ssm.time_step_rank": "mamba_num_heads",
        },
        also=(
            *SIGMOID_KEYS,
            *GROUPS,
            HEADS_BY_LAYER,
            "attention.layer_norm_epsilon",
            "expert_count",
            "expert_shared_count",
            "expert_shared_feed_forward_length",
            "expert_weights_scale",
            "feed_forward_length",
        ),
        derived=_of_gguf,
    ),
    experts=_experts,
    tiny={
        **{key: value for key, value in TINY.items() if key != "num_hidden_layers"},
        "head_dim": 32,
        "layer_norm_epsilon": 1e-5,
        "layers_block_type": ["linear_attention", "full_attention", "mlp", "moe", "linear_attention"],
        "mamba_num_heads": 8,
        "mamba_head_dim": 24,
        "ssm_state_size": 24,
        "n_groups": 2,
        "n_routed_experts": 8,
        "num_experts_per_tok": 3,
        "moe_intermediate_size": 64,
        "moe_shared_expert_intermediate_size": 128,
        "routed_scaling_factor": 2.5,
        "time_step_min": 1e-30,  # in prefill of transformers a limit, which packages do not have
    },
)
