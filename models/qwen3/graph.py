"""The graphs of Qwen3: inputs, names and order by spec llm-graphs sections 2.1, 2.2, 2.4 and 2.8."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tcim_lite.hmm import WHOLE, Graph, Split, WeightEntry

from ..common.graph_builder import GraphBuilder, Ref, Slot
from ..common.profiles import Profile
from .config import Qwen3Config
from .graph_specs import GraphSpec
from .shards import Shard
from .weights import ROPE_COS, ROPE_SIN, padded_intermediate


def slot_suffix(slot: int) -> str:
    """Returns what the input names of a batch slot end in; slot 0 has the plain names."""
    return f"_batch_{slot}" if slot else ""


def residual_name(blocks: int) -> str:
    """Returns the name of the hidden states after so many blocks: every block ends with its second residual add."""
    return f"add_{2 * blocks - 1}"


def build_graph(
    config: Qwen3Config,
    profile: Profile,
    weights: Sequence[WeightEntry],
    spec: GraphSpec,
    context_length: int,
    shard: Shard,
) -> Graph:
    """Returns the graph `spec` describes as one device runs it, its caches [1, Hkv, C, D] with its own heads only."""
    assert spec.batch == 1 or spec.tokens == 1
    assert spec.ndevice == shard.ndevice
    blocks = spec.blocks or range(config.num_layers)
    builder = GraphBuilder(spec.name, profile.tensor_dtype, weights)
    source = residual_name(blocks.start) if blocks.start else "input_1"
    x = builder.input(source, (spec.batch, spec.tokens, config.hidden_size))
    slots = _slots(builder, config, spec, blocks, context_length, len(shard.my_kv_heads))
    # Of one token, that token is the live row.
    live_rows = slots[0].current if spec.tokens > 1 else None
    model = _Model(builder, config, shard, slots)
    for index, layer in enumerate(blocks):
        is_last = layer + 1 == config.num_layers
        x = model.attention(x, layer, index, None if spec.all_logits or not is_last else live_rows)
        x = model.mlp(x, layer)
    if blocks.stop == config.num_layers:
        x = model.head(x)
    return builder.build([x], live_rows=live_rows)


def split_of(part: Graph) -> Split:
    """Returns how the parts of a graph share its inputs: caches are cut by heads, all else is whole."""
    kinds = [part.values[id_].kind for id_ in part.inputs]
    return Split([1 if kind == "state" else WHOLE for kind in kinds], [WHOLE] * len(part.outputs))


def _slots(
    builder: GraphBuilder, config: Qwen3Config, spec: GraphSpec, blocks: range, context_length: int, kv_heads: int
) -> list[Slot]:
    shape = (1, kv_heads, context_length, config.head_dim)
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


@dataclass(frozen=True, slots=True)
class _Model:
    """Adds the parts of the model to a graph, as far as they are the shard's, and gathers what the others compute."""

    builder: GraphBuilder
    config: Qwen3Config
    shard: Shard
    slots: Sequence[Slot]

    def attention(self, x: Ref, layer: int, index: int, kept_row: Ref | None) -> Ref:
        """`index` counts the blocks of this graph, `layer` those of the model.

        Returns [B, T, H], or [1, 1, H], row `kept_row` - 1, if that is given.
        """
        builder, config, shard, slots = self.builder, self.config, self.shard, self.slots
        prefix, here = f"layers.{layer}", f"layers.{layer}.attn"
        batch, tokens, _ = x.shape
        head_dim, num_q, num_kv = config.head_dim, len(shard.my_heads), len(shard.my_kv_heads)

        normed = builder.rms_norm(f"{here}.norm", x, f"{prefix}.input_layernorm.weight", config.rms_norm_eps)
        qkv = self._linear(f"{here}.qkv", normed, f"{prefix}.self_attn.qkv", biased=config.attention_bias)

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
        mixed = self._whole(
            f"{here}.mix",
            shard.mixed.start,
            config.num_heads * head_dim,
            lambda name: builder.attention(name, q, keys, values, slots),
        )
        if kept_row is not None:
            # Rows meet in attention only: what follows it in the last block is needed of the row with the logits.
            x = builder.last_row(f"{here}.row", x, kept_row)
            mixed = builder.last_row(f"{here}.mix_row", mixed, kept_row)
        weight = f"{prefix}.self_attn.o_proj"
        out = self._whole(
            f"{here}.out",
            shard.hidden.start,
            config.hidden_size,
            lambda name: self._linear(name, mixed, weight, biased=config.attention_bias),
        )
        return builder.add(f"add_{2 * layer}", x, out)

    def mlp(self, x: Ref, layer: int) -> Ref:
        builder, config, shard = self.builder, self.config, self.shard
        prefix, here = f"layers.{layer}", f"layers.{layer}.mlp"
        normed = builder.rms_norm(f"{here}.norm", x, f"{prefix}.post_attention_layernorm.weight", config.rms_norm_eps)
        gate_up = self._linear(f"{here}.gate_up", normed, f"{prefix}.mlp.gate_up")
        product = self._whole(
            f"{here}.silu_mul",
            shard.inner.start,
            padded_intermediate(config),
            lambda name: builder.silu_mul(name, gate_up),
        )
        out = self._whole(
            f"{here}.out",
            shard.hidden.start,
            config.hidden_size,
            lambda name: self._linear(name, product, f"{prefix}.mlp.down_proj"),
        )
        return builder.add(residual_name(layer + 1), x, out)

    def head(self, x: Ref) -> Ref:
        normed = self.builder.rms_norm("final_norm", x, "norm.weight", self.config.rms_norm_eps)
        return self._whole(
            "logits",
            self.shard.vocab.start,
            self.config.vocab_size,
            lambda name: self._linear(name, normed, "lm_head"),
        )

    def _linear(self, name: str, x: Ref, weight: str, *, biased: bool = False) -> Ref:
        bias = self.shard.weight_name(f"{weight}.bias") if biased else None
        return self.builder.linear(name, x, self.shard.weight_name(f"{weight}.weight"), bias)

    def _whole(self, name: str, begin: int, width: int, make: Callable[[str], Ref]) -> Ref:
        """Returns all columns of what `make` gives this device's columns of, from `begin` on."""
        if self.shard.ndevice == 1:
            return make(name)
        return self.builder.all_gather(name, make(f"{name}.part"), begin, width)
