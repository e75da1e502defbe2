"""Roles of weights. A role says what a weight is to the model, what the package calls it and how devices share it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Cut = Literal["heads", "matrices", "hidden", "inner", "inner_alone", "expert_inner", "expert_alone", "vocab"]


@dataclass(frozen=True, slots=True)
class Role:
    """What a weight is to the model.

    Attributes:
        id: Short name of the role.
        name: Of the weight in the package; `{layer}` stands for the layer's number.
        kind: `linear` is a packed matrix, `norm` and `bias` are fp32 vectors, `taps` those of a convolution, [taps, N],
            `factors` a vector in the dtype of the graphs' tensors, `least` and `most` such ones of bounds.
        cut: Outputs that several devices share out: those of heads, of the hidden size, of the intermediate size with
            a gate beside it or alone, of the experts' intermediate size likewise, or of the vocabulary; or `matrices`,
            one for each head. None: every device has the whole weight.
    """

    id: str
    name: str
    kind: Literal["linear", "norm", "bias", "taps", "factors", "least", "most"]
    cut: Cut | None = None

    def name_of(self, layer: int | None) -> str:
        """Returns the name in the package."""
        return self.name.format(layer=layer)

    def dtype(self, tensors: str) -> str:
        """Returns that of a vector, where that of the graphs' tensors is `tensors`."""
        return tensors if self.kind in ("factors", "least", "most") else "float32"


def pair(id_: str, name: str, cut: Cut | None = None) -> tuple[Role, Role]:
    """Returns the roles of a Linear's weight and of its bias."""
    return Role(id_, f"{name}.weight", "linear", cut), Role(f"{id_}_bias", f"{name}.bias", "bias", cut)


ATTENTION_NORM = Role("attention_norm", "layers.{layer}.input_layernorm.weight", "norm")
QKV, QKV_BIAS = pair("qkv", "layers.{layer}.self_attn.qkv", "heads")
# Of a layer whose values are its keys, and of one that takes keys and values of another.
QK = Role("qk", "layers.{layer}.self_attn.qk.weight", "linear")
Q = Role("q", "layers.{layer}.self_attn.q.weight", "linear")
OUT_GATE = Role("out_gate", "layers.{layer}.self_attn.out_gate.weight", "linear")
SINKS = Role("sinks", "layers.{layer}.self_attn.sinks", "bias", "heads")
Q_NORM = Role("q_norm", "layers.{layer}.self_attn.q_norm.weight", "norm")
K_NORM = Role("k_norm", "layers.{layer}.self_attn.k_norm.weight", "norm")
# Where each head has a norm of its own, those of q and k side by side, and ones for v.
QKV_FACTORS = Role("qkv_factors", "layers.{layer}.self_attn.qkv_norm.weight", "factors", "heads")
# Of latent attention: to the latent that q is made of, q, and to that of keys and values with the key that turns beside
# it; then of each head what makes the query of the latent, and the value of what attention makes of latents.
QUERY_LATENT, QUERY_LATENT_BIAS = pair("query_latent", "layers.{layer}.self_attn.query_latent")
QUERY_LATENT_NORM = Role("query_latent_norm", "layers.{layer}.self_attn.query_latent_norm.weight", "norm")
QUERIES = Role("queries", "layers.{layer}.self_attn.queries.weight", "linear", "heads")
DIRECT_QUERIES = Role("direct_queries", QUERIES.name, "linear", "heads")  # of hidden states, without such a latent
LATENT, LATENT_BIAS = pair("latent", "layers.{layer}.self_attn.latent")
LATENT_NORM = Role("latent_norm", "layers.{layer}.self_attn.latent_norm.weight", "norm")
KEY_HEADS = Role("key_heads", "layers.{layer}.self_attn.key_heads.weight", "linear", "matrices")
VALUE_HEADS = Role("value_heads", "layers.{layer}.self_attn.value_heads.weight", "linear", "matrices")
ATTENTION_OUT, ATTENTION_OUT_BIAS = pair("attention_out", "layers.{layer}.self_attn.o_proj", "hidden")
ATTENTION_OUT_NORM = Role("attention_out_norm", "layers.{layer}.self_attn.out_norm.weight", "norm")
MLP_NORM = Role("mlp_norm", "layers.{layer}.post_attention_layernorm.weight", "norm")
GATE_UP, GATE_UP_BIAS = pair("gate_up", "layers.{layer}.mlp.gate_up", "inner")
UP, UP_BIAS = pair("up", "layers.{layer}.mlp.up_proj", "inner_alone")  # of an MLP without a gate
XIELU_POSITIVE = Role("xielu_positive", "layers.{layer}.mlp.xielu.positive", "factors")
XIELU_NEGATIVE = Role("xielu_negative", "layers.{layer}.mlp.xielu.negative", "factors")
XIELU_SLOPE = Role("xielu_slope", "layers.{layer}.mlp.xielu.slope", "factors")
DOWN, DOWN_BIAS = pair("down", "layers.{layer}.mlp.down_proj", "hidden")
MLP_OUT_NORM = Role("mlp_out_norm", "layers.{layer}.mlp.out_norm.weight", "norm")
# Of experts beside an MLP, what they give and what it gives.
MLP_ALONE_NORM = Role("mlp_alone_norm", "layers.{layer}.mlp.alone_norm.weight", "norm")
ROUTER_NORM = Role("router_norm", "layers.{layer}.mlp.router_norm.weight", "norm")
EXPERTS_NORM = Role("experts_norm", "layers.{layer}.mlp.experts.norm.weight", "norm")
EXPERTS_OUT_NORM = Role("experts_out_norm", "layers.{layer}.mlp.experts.out_norm.weight", "norm")
EXPERT_FACTORS = Role("expert_factors", "layers.{layer}.mlp.experts.factors", "factors")
# Of per-layer inputs.
LAYER_INPUTS = Role("layer_inputs", "per_layer_projection.weight", "linear")
LAYER_INPUTS_NORM = Role("layer_inputs_norm", "per_layer_projection_norm.weight", "norm")
LAYER_INPUT_GATE = Role("layer_input_gate", "layers.{layer}.per_layer_input.gate.weight", "linear")
LAYER_INPUT_OUT = Role("layer_input_out", "layers.{layer}.per_layer_input.projection.weight", "linear")
LAYER_INPUT_NORM = Role("layer_input_norm", "layers.{layer}.per_layer_input.norm.weight", "norm")
LAYER_SCALE = Role("layer_scale", "layers.{layer}.scale", "factors")
# Of AltUp: to streams of hidden states and from them, and in each layer what coefficients are made by.
ALTUP_IN = Role("altup_in", "altup.in.weight", "linear")
ALTUP_OUT = Role("altup_out", "altup.out.weight", "linear", "matrices")
ALTUP_NORM = Role("altup_norm", "layers.{layer}.altup.norm.weight", "norm")
ALTUP_ROUTER = Role("altup_router", "layers.{layer}.altup.router.weight", "linear")
ALTUP_PREDICT = Role("altup_predict", "layers.{layer}.altup.predict", "factors")
ALTUP_CORRECT = Role("altup_correct", "layers.{layer}.altup.correct", "factors")
ALTUP_CORRECTED = Role("altup_corrected", "layers.{layer}.altup.corrected_scale", "factors")
LAUREL_DOWN = Role("laurel_down", "layers.{layer}.laurel.down.weight", "linear")
LAUREL_UP = Role("laurel_up", "layers.{layer}.laurel.up.weight", "linear")
LAUREL_NORM = Role("laurel_norm", "layers.{layer}.laurel.norm.weight", "norm")
SPARSE_GATE_UP = Role("sparse_gate_up", GATE_UP.name, "linear")  # one under the other, where few gates are kept
LAYER_TABLE = Role("layer_table", "per_layer_embedding", "linear")  # a file of its own, never in a graph
ROUTER, ROUTER_BIAS = pair("router", "layers.{layer}.mlp.router")
ROUTER_CHOICE = Role("router_choice", "layers.{layer}.mlp.router.choice_bias", "bias")
EXPERT_GATE_UP, EXPERT_GATE_UP_BIAS = pair("expert_gate_up", "layers.{layer}.mlp.experts.gate_up", "expert_inner")
EXPERT_UP = Role("expert_up", "layers.{layer}.mlp.experts.up_proj.weight", "linear", "expert_alone")  # without a gate
EXPERT_DOWN, EXPERT_DOWN_BIAS = pair("expert_down", "layers.{layer}.mlp.experts.down_proj", "hidden")
# Of experts of latent rows: to these, the last projection, which no device shares out, and back.
EXPERT_LATENT = Role("expert_latent", "layers.{layer}.mlp.experts.latent_in.weight", "linear")
EXPERT_LATENT_DOWN = Role("expert_latent_down", EXPERT_DOWN.name, "linear")
EXPERT_LATENT_OUT = Role("expert_latent_out", "layers.{layer}.mlp.experts.latent_out.weight", "linear")
SHARED_GATE_UP = Role("shared_gate_up", "layers.{layer}.mlp.shared_expert.gate_up.weight", "linear")
SHARED_UP = Role("shared_up", "layers.{layer}.mlp.shared_expert.up_proj.weight", "linear")
SHARED_DOWN = Role("shared_down", "layers.{layer}.mlp.shared_expert.down_proj.weight", "linear")
SHARED_GATE = Role("shared_gate", "layers.{layer}.mlp.shared_expert_gate.weight", "linear")
DELTA_IN = Role("delta_in", "layers.{layer}.linear_attn.in_proj.weight", "linear", "heads")
DELTA_GATES = Role("delta_gates", "layers.{layer}.linear_attn.gates.weight", "linear", "heads")
DELTA_TAPS = Role("delta_taps", "layers.{layer}.linear_attn.conv1d.weight", "taps", "heads")
DELTA_RATE = Role("delta_rate", "layers.{layer}.linear_attn.rate", "bias", "heads")
DELTA_BIAS = Role("delta_bias", "layers.{layer}.linear_attn.dt_bias", "bias", "heads")
DELTA_NORM = Role("delta_norm", "layers.{layer}.linear_attn.norm.weight", "norm")
DELTA_OUT = Role("delta_out", "layers.{layer}.linear_attn.out_proj.weight", "linear", "hidden")
# Of Kimi's: q, k and v, and their taps; to decays of keys and to gates, in two steps; the rate of each head's decay.
KDA_IN = Role("kda_in", "layers.{layer}.linear_attn.in_proj.weight", "linear")
KDA_TAPS = Role("kda_taps", "layers.{layer}.linear_attn.conv1d.weight", "taps")
KDA_DECAY_DOWN = Role("kda_decay_down", "layers.{layer}.linear_attn.decay_down.weight", "linear")
KDA_DECAY_UP, KDA_DECAY_BIAS = pair("kda_decay_up", "layers.{layer}.linear_attn.decay_up")
KDA_RATE = Role("kda_rate", "layers.{layer}.linear_attn.rate", "factors")
KDA_BETA = Role("kda_beta", "layers.{layer}.linear_attn.beta.weight", "linear")
KDA_GATE_DOWN = Role("kda_gate_down", "layers.{layer}.linear_attn.gate_down.weight", "linear")
KDA_GATE_UP = Role("kda_gate_up", "layers.{layer}.linear_attn.gate_up.weight", "linear")
# Of a state-space layer: to gates, values, B, C and steps; the taps of its convolution; of each head what the logarithm
# of its decay is a multiple of, a bias of its steps, and what of its values is added behind the recurrence.
SSM_IN, SSM_IN_BIAS = pair("ssm_in", "layers.{layer}.ssm.in_proj", "heads")
SSM_TAPS = Role("ssm_taps", "layers.{layer}.ssm.conv1d.weight", "taps", "heads")
SSM_TAPS_BIAS = Role("ssm_taps_bias", "layers.{layer}.ssm.conv1d.bias", "bias", "heads")
SSM_RATE = Role("ssm_rate", "layers.{layer}.ssm.rate", "bias", "heads")
SSM_STEP_BIAS = Role("ssm_step_bias", "layers.{layer}.ssm.dt_bias", "bias", "heads")
SSM_SKIP = Role("ssm_skip", "layers.{layer}.ssm.skip", "bias", "heads")
SSM_NORM = Role("ssm_norm", "layers.{layer}.ssm.norm.weight", "norm")
SSM_NORM_FACTORS = Role("ssm_norm_factors", SSM_NORM.name, "factors", "heads")  # of several groups
SSM_OUT, SSM_OUT_BIAS = pair("ssm_out", "layers.{layer}.ssm.out_proj", "hidden")
# Of one whose channels have states each (Mamba 1): of values, to what steps are made of, B and C, and their norms; then
# to steps, the rate of each element of a state, and what of values is added behind the recurrence.
SSM_SELECT = Role("ssm_select", "layers.{layer}.ssm.select.weight", "linear")
SSM_RANK_NORM = Role("ssm_rank_norm", "layers.{layer}.ssm.rank_norm.weight", "norm")
SSM_KEY_NORM = Role("ssm_key_norm", "layers.{layer}.ssm.key_norm.weight", "norm")
SSM_QUERY_NORM = Role("ssm_query_norm", "layers.{layer}.ssm.query_norm.weight", "norm")
SSM_STEPS, SSM_STEPS_BIAS = pair("ssm_steps", "layers.{layer}.ssm.steps")
SSM_RATES = Role("ssm_rates", "layers.{layer}.ssm.rates", "factors")
SSM_SKIPS = Role("ssm_skips", "layers.{layer}.ssm.skips", "factors")
# Of a short convolution: to two gates and values, its taps, and from what the second gate leaves.
CONV_IN, CONV_IN_BIAS = pair("conv_in", "layers.{layer}.conv.in_proj", "heads")
CONV_TAPS = Role("conv_taps", "layers.{layer}.conv.taps.weight", "taps", "heads")
CONV_BIAS = Role("conv_bias", "layers.{layer}.conv.taps.bias", "bias", "heads")
CONV_OUT, CONV_OUT_BIAS = pair("conv_out", "layers.{layer}.conv.out_proj", "hidden")
# Of multi-token prediction: beside a layer behind the model's last.
MTP_EMBEDDING_NORM = Role("mtp_embedding_norm", "mtp.embedding_norm.weight", "norm")
MTP_HIDDEN_NORM = Role("mtp_hidden_norm", "mtp.hidden_norm.weight", "norm")
MTP_JOIN = Role("mtp_join", "mtp.fc.weight", "linear")
MTP_FINAL_NORM = Role("mtp_final_norm", "mtp.norm.weight", "norm")
POSITIONS = Role("positions", "positions.weight", "factors")  # a row for each position, where positions are learned
INPUT_PROJECTION, INPUT_PROJECTION_BIAS = pair("input_projection", "input_projection")
# Of two Linears that rows of text go through, and of two for other rows, where rows of the input are made so.
TEXT_UP, TEXT_UP_BIAS = pair("text_up", "text_input.up")
TEXT_DOWN, TEXT_DOWN_BIAS = pair("text_down", "text_input.down")
OTHER_UP, OTHER_UP_BIAS = pair("other_up", "other_input.up")
OTHER_DOWN, OTHER_DOWN_BIAS = pair("other_down", "other_input.down")
OUTPUT_PROJECTION = Role("output_projection", "output_projection.weight", "linear")  # before the head
HIDDEN_NORM = Role("hidden_norm", "norm.hidden.weight", "norm")  # the final one of hidden states that are an output
HIDDEN_PROJECTION = Role("hidden_projection", "hidden_projection.weight", "linear")  # of those of an assistant
CENTROIDS = Role("centroids", "centroids.weight", "linear")  # of clusters of tokens; of the same
FINAL_NORM = Role("final_norm", "norm.weight", "norm")


def _condition(norm: Role) -> tuple[Role, Role]:
    """Of a Linear that makes scale, shift and gate of a norm, where an input of the graph says them, and its bias."""
    name = norm.name.removesuffix(".weight") + ".condition"
    return Role(f"{norm.id}_condition", f"{name}.weight", "linear"), Role(f"{norm.id}_bias", f"{name}.bias", "bias")


CONDITIONS = {norm: _condition(norm) for norm in (ATTENTION_NORM, MLP_NORM, FINAL_NORM)}
# Of norms that centre rows.
NORM_BIASES = {
    norm: Role(f"{norm.id}_shift", norm.name.replace("weight", "bias"), "bias")
    for norm in (ATTENTION_NORM, MLP_NORM, FINAL_NORM)
}
HEAD, HEAD_BIAS = pair("head", "lm_head", "vocab")
EMBEDDING = Role("embedding", "embedding", "linear")  # a file of its own, never in a graph
# What makes rows for a model of speech, and the norm of such a row as a vector of length 1.
SPEAKER = pair("speaker_up", "speaker.up"), pair("speaker_down", "speaker.down")
SPEAKER_UNIT = "speaker.unit"
UNIT_KEYS = "linear_attn.unit_keys"  # [K], 1 / sqrt(K): the norm of a head as a vector of length 1
# Computed tables [context, head_dim / 2], not read from a checkpoint; and, where tokens have three positions, int32
# [head_dim / 2]: which of the tables' columns at these positions, one behind the other, a frequency takes.
ROPE_COS, ROPE_SIN, ROPE_COLUMNS = "rope.cos", "rope.sin", "rope.columns"
LOCAL_COS, LOCAL_SIN = "rope.local.cos", "rope.local.sin"  # of layers with a window, where they turn otherwise
LOGIT_CAP = "logit_cap"  # [1]
ALTUP_ONE, ALTUP_SHARE = "altup.one", "altup.share"  # [1], as those below
ALTUP_ROUTER_SCALE, ALTUP_ROW_SCALE, ALTUP_LEAST = "altup.router_scale", "altup.row_scale", "altup.least"
LAUREL_STATE_SCALE, LAUREL_SCALE = "laurel.state_scale", "laurel.scale"
POSITION_ROWS = "positions.rows"  # int32 [context]: which row of the table a position has
ONE = "one"  # [1, 1, 1]

QUERY_COS, QUERY_SIN = "rope.query.cos", "rope.query.sin"  # of q, where it grows with its position


def cutoff(layer: int) -> str:
    """Returns the name of how many deviations above their mean gates of a layer must be to be kept, [1]."""
    return f"layers.{layer}.mlp.cutoff"


def ones(count: int) -> str:
    """Returns the name of the weight of a norm of so many elements that has none of its own."""
    return f"ones.{count}"


# [heads, heads], where there are several: row n has its 1 at n.
HEAD_NUMBERS = "heads.numbers"
