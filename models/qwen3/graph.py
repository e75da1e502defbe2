"""The graphs of Qwen3: inputs, names and order by spec llm-graphs sections 2.1, 2.2, 2.4 and 2.8."""

from __future__ import annotations

from collections.abc import Sequence

from tcim_lite.hmm import Graph, WeightEntry

from ..common.graph_builder import GraphBuilder, Ref, Slot
from ..common.profiles import Profile
from .config import Qwen3Config
from .graph_specs import GraphSpec
from .weights import ROPE_COS, ROPE_SIN


def slot_suffix(slot: int) -> str:
    """Returns what the input names of a batch slot end in; slot 0 has the plain names."""
    return f"_batch_{slot}" if slot else ""


def residual_name(blocks: int) -> str:
    """Returns the name of the hidden states after so many blocks: every block ends with its second residual add."""
    return f"add_{2 * blocks - 1}"


def build_graph(
    config: Qwen3Config, profile: Profile, weights: Sequence[WeightEntry], spec: GraphSpec, *, context_length: int
) -> Graph:
    """Returns the graph `spec` describes, its caches [1, Hkv, C, D] with C rows of `context_length`."""
    assert spec.batch == 1 or spec.tokens == 1
    blocks = spec.blocks or range(config.num_layers)
    builder = GraphBuilder(spec.name, profile.tensor_dtype, weights)
    source = residual_name(blocks.start) if blocks.start else "input_1"
    x = builder.input(source, (spec.batch, spec.tokens, config.hidden_size))
    slots = _slots(builder, config, spec, blocks, context_length)
    # Of one token, that token is the live row.
    live_rows = slots[0].current if spec.tokens > 1 else None
    for index, layer in enumerate(blocks):
        x = _attention(builder, config, x, slots, layer, index)
        x = _mlp(builder, config, x, layer)
    if blocks.stop < config.num_layers:
        return builder.build([x], live_rows=live_rows)
    if live_rows is not None and not spec.all_logits:
        x = builder.last_row("last_row", x, live_rows)
    return builder.build([_head(builder, config, x)], live_rows=live_rows)


def _slots(
    builder: GraphBuilder, config: Qwen3Config, spec: GraphSpec, blocks: range, context_length: int
) -> list[Slot]:
    shape = (1, config.num_kv_heads, context_length, config.head_dim)
    # The vendor's pipeline splitter interleaves keys and values; its exporters put all keys first.
    pairs = [(which, layer) for which in "kv" for layer in blocks]
    if spec.blocks is not None:
        pairs = [(which, layer) for layer in blocks for which in "kv"]
    slots = []
    for suffix in map(slot_suffix, range(spec.batch)):
        valid = builder.input(f"valid_length{suffix}", (1,), "int32")
        current = builder.input(f"current_length{suffix}", (1,), "int32")
        caches = {
            (which, layer): builder.state(f"model_layers_{layer}_self_attn_{which}cache_input{suffix}", shape)
            for which, layer in pairs
        }
        keys, values = (tuple(caches[which, layer] for layer in blocks) for which in "kv")
        slots.append(Slot(valid, current, keys, values))
    return slots


def _attention(
    builder: GraphBuilder, config: Qwen3Config, x: Ref, slots: Sequence[Slot], layer: int, index: int
) -> Ref:
    """`index` counts the blocks of this graph, `layer` those of the model."""
    prefix, here = f"layers.{layer}", f"layers.{layer}.attn"
    biases = [f"{prefix}.self_attn.{name}.bias" if config.attention_bias else None for name in ("qkv", "o_proj")]
    batch, tokens, _ = x.shape
    head_dim, num_q, num_kv = config.head_dim, config.num_heads, config.num_kv_heads

    normed = builder.rms_norm(f"{here}.norm", x, f"{prefix}.input_layernorm.weight", config.rms_norm_eps)
    qkv = builder.linear(f"{here}.qkv", normed, f"{prefix}.self_attn.qkv.weight", biases[0])

    def heads(name: str, first: int, count: int) -> Ref:
        part = builder.slice(f"{here}.{name}_flat", qkv, first * head_dim, (first + count) * head_dim)
        return builder.reshape(f"{here}.{name}_heads", part, (batch, tokens, count, head_dim))

    def positioned(name: str, part: Ref) -> Ref:
        weight = f"{prefix}.self_attn.{name}_norm.weight"
        normed = builder.rms_norm(f"{here}.{name}_norm", part, weight, config.rms_norm_eps)
        return builder.rope(f"{here}.{name}", normed, ROPE_COS, ROPE_SIN, slots)

    def cached(which: str, new: Ref, caches: Sequence[Ref]) -> list[Ref]:
        names = [f"{here}.{which}{slot_suffix(slot)}" for slot in range(len(slots))]
        return builder.kv_cache(names, new, caches, slots)

    q = positioned("q", heads("q", 0, num_q))
    k = positioned("k", heads("k", num_q, num_kv))
    v = heads("v", num_q + num_kv, num_kv)
    keys = cached("k_cache", k, [slot.keys[index] for slot in slots])
    values = cached("v_cache", v, [slot.values[index] for slot in slots])
    mixed = builder.attention(f"{here}.mix", q, keys, values, slots)
    out = builder.linear(f"{here}.out", mixed, f"{prefix}.self_attn.o_proj.weight", biases[1])
    return builder.add(f"add_{2 * layer}", x, out)


def _mlp(builder: GraphBuilder, config: Qwen3Config, x: Ref, layer: int) -> Ref:
    prefix, here = f"layers.{layer}", f"layers.{layer}.mlp"
    normed = builder.rms_norm(f"{here}.norm", x, f"{prefix}.post_attention_layernorm.weight", config.rms_norm_eps)
    gate_up = builder.linear(f"{here}.gate_up", normed, f"{prefix}.mlp.gate_up.weight")
    product = builder.silu_mul(f"{here}.silu_mul", gate_up)
    out = builder.linear(f"{here}.out", product, f"{prefix}.mlp.down_proj.weight")
    return builder.add(residual_name(layer + 1), x, out)


def _head(builder: GraphBuilder, config: Qwen3Config, x: Ref) -> Ref:
    normed = builder.rms_norm("final_norm", x, "norm.weight", config.rms_norm_eps)
    return builder.linear("logits", normed, "lm_head.weight")
