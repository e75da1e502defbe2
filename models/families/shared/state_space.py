"""What families with state-space layers share: config keys, checkpoint tensors, graph inputs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ...blocks import Mamba2
from ...common.config_keys import Key, Only
from ...common.errors import CompileError
from ...contract import Contract, Port
from ...family import Tensors, plain, tensors_of
from ...model_config import ModelConfig
from ...weights import roles

_OLD_KINDS = {"mamba": "linear_attention", "attention": "full_attention"}
_TAGGED = {"__float__": "Infinity"}  # as transformers 5 writes it
NO_LIMIT = Only("time_step_limit", [0.0, math.inf], also=(None, [0.0, _TAGGED], [0, _TAGGED], [0, math.inf]))

KEYS: tuple[Key | Only, ...] = (
    Key("mamba_n_heads", absent=128),
    Key("mamba_n_groups", absent=1),
    Key("mamba_d_state", absent=256),
    Key("mamba_d_conv", absent=4),
    Key("mamba_expand", absent=2),
    Key("mamba_conv_bias", "flag", absent=True),
    NO_LIMIT,
)
GGUF_KEYS: Mapping[str, str] = {
    "ssm.conv_kernel": "mamba_d_conv",
    "ssm.state_size": "mamba_d_state",
    "ssm.group_count": "mamba_n_groups",
    "ssm.time_step_rank": "mamba_n_heads",
}


def gguf_names(net: str) -> dict[str, str]:
    """Returns the names of the tensors of a state-space layer."""
    modules = {"ssm_in": "in_proj", "ssm_conv1d": "conv1d", "ssm_norm": "norm", "ssm_out": "out_proj"}
    vectors = {"ssm_dt.bias": "dt_bias", "ssm_a": "A_log", "ssm_d": "D"}
    return {own: f"{net}.{theirs}" for own, theirs in (modules | vectors).items()}


# As small as it gets with several groups and sizes that are no powers of two.
TINY: Mapping[str, Any] = {"mamba_n_heads": 8, "mamba_n_groups": 2, "mamba_d_state": 24, "mamba_expand": 2}


def with_states(contract: Contract) -> Contract:
    """Returns the graph inputs and outputs of a family some of whose layers have linear attention."""
    return replace(
        contract,
        linear_mask=Port("linear_mask", "linear_attn_mask", ""),
        carried=(
            Port("conv_state", "past_conv_cache_{layer}", ""),
            Port("recurrent_state", "past_recurrent_state_{layer}", ""),
        ),
        carried_outputs=("conv_cache_out_{layer}", "recurrent_state_out_{layer}"),
    )


def layer_kinds(key: str, kinds: Sequence[str], layers: int, known: Sequence[str]) -> tuple[str, ...]:
    """Returns the kinds of layers as transformers 5 calls them.

    Raises:
        CompileError: There are not `layers` of the `known` ones, or none has attention.
    """
    found = tuple(_OLD_KINDS.get(kind, kind) for kind in kinds)
    if len(found) != layers or not set(found) <= set(known):
        raise CompileError(f"config.json: {key} must name {layers} layers, {' or '.join(known)}, got {kinds!r:.80}")
    if "full_attention" not in found:  # programs learn the context's length from a cache
        raise CompileError(f"config.json: none of the {layers} layers of {key} has attention, expected one at least")
    return found


def state_space(config: ModelConfig, inner: int, **options: Any) -> Mamba2:
    """Returns the block of a layer with `inner` values, of a config with the keys above."""
    flags = config.flags
    return checked(
        inner,
        heads=flags["mamba_n_heads"],
        groups=flags["mamba_n_groups"],
        keys=flags["mamba_d_state"],
        taps=flags["mamba_d_conv"],
        conv_bias=flags["mamba_conv_bias"],
        **{"epsilon": config.rms_norm_eps, **options},
    )


def checked(inner: int, *, heads: int, groups: int, **options: Any) -> Mamba2:
    """Returns the block whose heads share out `inner` values and are shared out by groups.

    Raises:
        CompileError: They are not shared out evenly.
    """
    for what, count, of in (("heads", heads, inner), ("groups", groups, heads)):
        if of % count:
            raise CompileError(
                f"config.json: {count} {what} of state-space layers do not divide their {of} "
                f"{'values' if of == inner else 'heads'}"
            )
    return Mamba2(heads=heads, values=inner // heads, groups=groups, **options)


def rank_of(said: int | str, hidden: int) -> int:
    """Returns how many numbers steps are made of, of Mamba 1; "auto" is one for 16 of a hidden state."""
    return math.ceil(hidden / 16) if isinstance(said, str) else said


def usual_rank(values: Mapping[str, Any]) -> int:
    """The same of a file that does not say."""
    return rank_of("auto", values["hidden_size"])


def selective_tensors(net: str) -> Mapping[roles.Role, Tensors]:
    """Returns where the weights of a layer as in Mamba 1 come from, its norms aside."""
    modules = {
        (roles.SSM_IN, roles.SSM_IN_BIAS): "in_proj",
        (roles.SSM_TAPS, roles.SSM_TAPS_BIAS): "conv1d",
        (roles.SSM_STEPS, roles.SSM_STEPS_BIAS): "dt_proj",
        (roles.SSM_OUT, roles.SSM_OUT_BIAS): "out_proj",
    }
    return {
        **tensors_of(modules, f"{net}."),
        roles.SSM_SELECT: plain(f"{net}.x_proj.weight"),
        roles.SSM_RATES: Tensors("matrix", (f"{net}.A_log",), function="minus_exp"),
        roles.SSM_SKIPS: plain(f"{net}.D"),
    }


def tensors(net: str) -> Mapping[roles.Role, Tensors]:
    """Returns where the weights of a state-space layer come from."""
    return {
        **tensors_of(
            {
                (roles.SSM_IN, roles.SSM_IN_BIAS): "in_proj",
                (roles.SSM_TAPS, roles.SSM_TAPS_BIAS): "conv1d",
                (roles.SSM_OUT, roles.SSM_OUT_BIAS): "out_proj",
            },
            f"{net}.",
        ),
        roles.SSM_RATE: Tensors("plain", (f"{net}.A_log",), function="minus_exp"),
        roles.SSM_STEP_BIAS: plain(f"{net}.dt_bias"),
        roles.SSM_SKIP: plain(f"{net}.D"),
        roles.SSM_NORM: plain(f"{net}.norm.weight"),
        roles.SSM_NORM_FACTORS: plain(f"{net}.norm.weight"),
    }
