"""Roles of the weights of encoders: what an image or a sound goes through before the language model."""

from __future__ import annotations

from .roles import Role, pair

_LAYER = "encoder.layers.{layer}"


def _norm(id_: str, name: str) -> tuple[Role, Role]:
    """A norm's weight, and the bias of one that centres."""
    return Role(id_, f"{name}.weight", "norm"), Role(f"{id_}_bias", f"{name}.bias", "bias")


PATCHES, PATCHES_BIAS = pair("encoder_patches", "encoder.patches")
ATTENTION_NORM, ATTENTION_NORM_BIAS = _norm("encoder_attention_norm", f"{_LAYER}.attention_norm")
QKV, QKV_BIAS = pair("encoder_qkv", f"{_LAYER}.attention.qkv")
Q, Q_BIAS = pair("encoder_q", f"{_LAYER}.attention.q")  # these three where nothing turns, else the one above
K, K_BIAS = pair("encoder_k", f"{_LAYER}.attention.k")
V, V_BIAS = pair("encoder_v", f"{_LAYER}.attention.v")
Q_NORM, _ = _norm("encoder_q_norm", f"{_LAYER}.attention.q_norm")
K_NORM, _ = _norm("encoder_k_norm", f"{_LAYER}.attention.k_norm")
OUT_NORM, _ = _norm("encoder_attention_out_norm", f"{_LAYER}.attention.out_norm")
OUT, OUT_BIAS = pair("encoder_attention_out", f"{_LAYER}.attention.out")
MLP_NORM, MLP_NORM_BIAS = _norm("encoder_mlp_norm", f"{_LAYER}.mlp_norm")
UP, UP_BIAS = pair("encoder_up", f"{_LAYER}.mlp.up")  # of a gated MLP, gate and up in turns
GATE, _ = pair("encoder_gate", f"{_LAYER}.mlp.gate")  # where the two are apart
UP_ALONE, _ = pair("encoder_up_alone", f"{_LAYER}.mlp.up_alone")
DOWN, DOWN_BIAS = pair("encoder_down", f"{_LAYER}.mlp.down")
DOWN_NORM, _ = _norm("encoder_down_norm", f"{_LAYER}.mlp.down_norm")
MERGER_NORM, MERGER_NORM_BIAS = _norm("encoder_merger_norm", "encoder.merger.norm")
MERGER_UP, MERGER_UP_BIAS = pair("encoder_merger_up", "encoder.merger.up")
MERGER_DOWN, MERGER_DOWN_BIAS = pair("encoder_merger_down", "encoder.merger.down")
STACK_NORM, STACK_NORM_BIAS = _norm("encoder_stack_norm", "encoder.stacks.{layer}.norm")
STACK_UP, STACK_UP_BIAS = pair("encoder_stack_up", "encoder.stacks.{layer}.up")
STACK_DOWN, STACK_DOWN_BIAS = pair("encoder_stack_down", "encoder.stacks.{layer}.down")
# Norm, up and down, each with its bias.
MERGER = (MERGER_NORM, MERGER_NORM_BIAS, MERGER_UP, MERGER_UP_BIAS, MERGER_DOWN, MERGER_DOWN_BIAS)
STACK = (STACK_NORM, STACK_NORM_BIAS, STACK_UP, STACK_UP_BIAS, STACK_DOWN, STACK_DOWN_BIAS)
# What makes one patch of those of a token before a merger with a gate, and what that begins with.
JOIN, JOIN_BIAS = pair("encoder_join", "encoder.join")
MERGER_PROJECT, _ = pair("encoder_merger_project", "encoder.merger.project")
LAST_NORM, LAST_NORM_BIAS = _norm("encoder_last_norm", "encoder.last_norm")
# Of a resampler: queries that are learned, and attention of these to all patches.
QUERIES = Role("encoder_queries", "encoder.resampler.queries", "linear")
QUERY_NORM, QUERY_NORM_BIAS = _norm("encoder_query_norm", "encoder.resampler.query_norm")
WIDEN = Role("encoder_widen", "encoder.resampler.widen.weight", "linear")
WIDE_NORM, WIDE_NORM_BIAS = _norm("encoder_wide_norm", "encoder.resampler.wide_norm")
SAMPLE_Q, SAMPLE_Q_BIAS = pair("encoder_sample_q", "encoder.resampler.q")
SAMPLE_K, SAMPLE_K_BIAS = pair("encoder_sample_k", "encoder.resampler.k")
SAMPLE_V, SAMPLE_V_BIAS = pair("encoder_sample_v", "encoder.resampler.v")
SAMPLE_OUT, SAMPLE_OUT_BIAS = pair("encoder_sample_out", "encoder.resampler.out")
SAMPLE_NORM, SAMPLE_NORM_BIAS = _norm("encoder_sample_norm", "encoder.resampler.norm")
PROJECT = Role("encoder_project", "encoder.resampler.project.weight", "linear")
EMBED = Role("encoder_embed", "encoder.embed.weight", "linear")  # pooled patches -> tokens
# What is subtracted from pooled patches, and what multiplies them then.
SHIFT, FACTORS = Role("encoder_shift", "encoder.shift", "bias"), Role("encoder_factors", "encoder.factors", "norm")
POSITIONS = Role("encoder_positions", "encoder.positions", "linear")  # a table, resized or looked up

# [1, 3 * frames, 1, 1], what is added to colours of 0 to 255, and what multiplies them then: as the processor has them.
COLOUR_SHIFT, COLOUR_SCALE = "encoder.colour_shift", "encoder.colour_scale"
# Computed tables [positions, head_dim / 4] of cos and sin, and those of queries, which have the scale of the scores.
ROPE = ("encoder.rope.cos", "encoder.rope.sin", "encoder.rope.query_cos", "encoder.rope.query_sin")
ZEROS = "encoder.zeros"  # [1, 1, n], behind the numbers of a patch up to whole groups of a quantised weight
ONE = "encoder.one"  # [1, 1, 1, 1], 1: what a query gives to the mask of the keys
