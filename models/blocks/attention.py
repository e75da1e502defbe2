"""Self-attention with a KV cache, with rotary positions or without."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from ..common.errors import CompileError
from ..graphs.values import Ref
from ..model_config import ModelConfig
from ..weights import roles
from .conditioned import lower_norm, lower_residual, norm_weights
from .head_norms import head_norms_weight, lower_head_norms
from .part import GraphPart
from .weights import Weight

MAX_SHARING = 256  # query heads of a KV head in the kernels


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """Norm; q, k and v; their rotation; cache; attention; output projection, and its norm; residual add.

    Attributes:
        qk_norm: Each head of q and k is normalised before the rotation.
        head_norms: Each head of q and k is centred and normalised by a norm of its own, before the rotation.
        wide_norm: All heads of q are normalised as one row, and all of k.
        clip: q, k and v are kept between this number and its negative; None: they are not.
        late_norm: It is normalised behind the rotation instead.
        unit_heads: The norm of heads of q and k has no weight.
        qkv_bias: q, k and v have biases.
        out_bias: The output projection has a bias.
        window: Tokens that each token sees, the last of them itself; None for all before it.
        rotated: q and k are rotated by their positions; otherwise their order is known from what each sees alone.
        scale: Of the scores; None for 1 / sqrt(head_dim).
        softcap: The scores go through c * tanh(s / c) with this c; None: they do not.
        grows: q is multiplied by a factor that grows with its position: by `llama_4_scaling_beta`, or where it is not
            `rotated` by `attn_scale`.
        local_rope: The rotation is that of `ModelConfig.local_rope`.
        in_norm: Rows are normalised before the projections.
        out_norm: What the output projection gives is normalised before the residual add.
        sum_norm: The sum of the residual add is normalised, and no row before.
        head_dim: Of this layer; None for that of the model.
        kv_heads: Likewise.
        unit_values: Each head of v is normalised, by a norm without a weight.
        values: `own` of a projection, `keys` those of the k projection, or all of them, and k, those of another layer.
        source: Number of that layer.
        gated: The q projection has a gate for each element of q as well, whose sigmoid multiplies what attention gives.
        out_gate: A projection of its own has a gate for each query head, or for each element of one, whose
            `gate_function` multiplies what attention gives; None without it.
        heads: Query heads, where layers differ in them; None for the model's.
        out_scale: What multiplies the result, or the weight of its norm.
        sinks: Each query head has one more score, a weight, which takes its share and has no value.
    """

    qk_norm: bool = False
    head_norms: bool = False
    wide_norm: bool = False
    clip: float | None = None
    late_norm: bool = False
    unit_heads: bool = False
    qkv_bias: bool = False
    out_bias: bool = False
    window: int | None = None
    rotated: bool = True
    scale: float | None = None
    softcap: float | None = None
    sinks: bool = False
    gated: bool = False
    grows: bool = False
    local_rope: bool = False
    in_norm: bool = True
    out_norm: bool = False
    sum_norm: bool = False
    out_gate: Literal["head", "element"] | None = None
    gate_function: Literal["softplus", "sigmoid"] = "softplus"
    heads: int | None = None
    out_scale: float = 1.0
    head_dim: int | None = None
    kv_heads: int | None = None
    unit_values: bool = False
    values: Literal["own", "keys", "shared"] = "own"
    source: int | None = None

    def tables(self, which: str) -> tuple[str, str]:
        """Names of the tables that rotate `q` or `k`."""
        if self.grows and which == "q":
            return roles.QUERY_COS, roles.QUERY_SIN
        return (roles.LOCAL_COS, roles.LOCAL_SIN) if self.local_rope else (roles.ROPE_COS, roles.ROPE_SIN)

    @property
    def has_cache(self) -> bool:
        """Whether the layer has keys and values of its own."""
        return self.values != "shared"

    def cache_shape(self, config: ModelConfig, kv_heads: int, context: int) -> tuple[int, ...]:
        """Of keys and of values, on a device with `kv_heads` of the model's heads."""
        return (1, self.kv_heads or kv_heads, context, self.head_dim or config.head_dim)

    def weights(self, config: ModelConfig) -> Iterator[Weight]:
        hidden, head_dim = config.hidden_size, self.head_dim or config.head_dim
        heads, kv_heads = self.heads or config.num_heads, self.kv_heads or config.num_kv_heads
        if heads // kv_heads > MAX_SHARING:
            raise CompileError(
                f"config.json: {heads} query heads over {kv_heads} KV heads are not supported, expected at most "
                f"{MAX_SHARING} for each KV head"
            )
        q_rows, kv_rows = heads * head_dim, kv_heads * head_dim
        # A checkpoint may have the query heads of a KV head, its k and its v together.
        together, turned = (q_rows // kv_heads, head_dim, head_dim), (head_dim, config.rotary_dim)
        yield from norm_weights(config, roles.ATTENTION_NORM if self.in_norm or self.sum_norm else None)
        if self.values == "keys":
            yield Weight(roles.QK, (q_rows, kv_rows), hidden)
        elif self.values == "shared":
            yield Weight(roles.Q, (q_rows,), hidden)
        elif self.gated:
            sections = (q_rows, kv_rows, kv_rows, q_rows)
            outputs = (2 * q_rows, kv_rows, kv_rows)
            yield Weight(roles.QKV, outputs, hidden, sections=sections, head_parts=(head_dim, head_dim))
        else:
            yield Weight(roles.QKV, (q_rows, kv_rows, kv_rows), hidden, head_parts=together, turned=turned)
        if self.qkv_bias:
            yield Weight(roles.QKV_BIAS, (q_rows, kv_rows, kv_rows), head_parts=together, turned=turned)
        if self.wide_norm:
            yield Weight(roles.Q_NORM, (q_rows,))
            yield Weight(roles.K_NORM, (kv_rows,))
        if self.head_norms:
            yield head_norms_weight(head_dim, heads, kv_heads, turned)
        if self.qk_norm and not self.unit_heads:
            yield Weight(roles.Q_NORM, (head_dim,))
            if self.has_cache:
                yield Weight(roles.K_NORM, (head_dim,))
        if self.sinks:
            yield Weight(roles.SINKS, (heads,))
        if self.out_gate is not None:
            yield Weight(roles.OUT_GATE, (heads if self.out_gate == "head" else q_rows,), hidden)
        yield Weight(roles.ATTENTION_OUT, (hidden,), q_rows, scale=1.0 if self.out_norm else self.out_scale)
        if self.out_bias:
            yield Weight(roles.ATTENTION_OUT_BIAS, (hidden,))
        if self.out_norm:
            yield Weight(roles.ATTENTION_OUT_NORM, (hidden,), scale=config.residual_scale * self.out_scale)

    def lower(self, part: GraphPart, x: Ref, layer: int, residual: str) -> Ref:
        """Adds the block to a graph.

        Args:
            part: The graph.
            x: [B, T, H].
            layer: Its number in the model.
            residual: Name of the result.

        Returns:
            [B, T, H], or [1, 1, H] where only one row is needed from here on.
        """
        builder, config = part.builder, part.config
        here = f"layers.{layer}.attn"
        norm = roles.ATTENTION_NORM if self.in_norm else None
        normed, residual_gate = lower_norm(part, f"{here}.norm", x, norm, layer)
        projection = {"own": roles.QKV, "keys": roles.QK, "shared": roles.Q}[self.values]
        qkv = part.linear(f"{here}.qkv", normed, projection, layer, roles.QKV_BIAS if self.qkv_bias else None)
        if self.clip is not None:
            qkv = builder.function("Clip", f"{here}.clipped", qkv, {"alpha": -self.clip, "beta": self.clip})
        heads, head_dim = qkv, self.head_dim or config.head_dim
        if self.head_norms:
            heads = lower_head_norms(part, f"{here}.heads", qkv, head_dim, layer)
        mixed = _Mixed(block=self, part=part, layer=layer, here=here, qkv=qkv, normed=heads).lower()
        if self.out_gate is not None:
            gate = part.linear(f"{here}.gate", normed, roles.OUT_GATE, layer)
            mixed = builder.gate_mul(f"{here}.gated", mixed, gate, self.gate_function)
        if part.kept_row is not None and layer + 1 == config.num_layers:
            # Rows meet in attention only: what follows it in the last layer is needed of the row with the logits.
            x = builder.last_row(f"{here}.row", x, part.kept_row)
            mixed = builder.last_row(f"{here}.mix_row", mixed, part.kept_row)
        part.before[layer] = x, normed
        bias = roles.ATTENTION_OUT_BIAS if self.out_bias else None
        out = part.whole_hidden(f"{here}.out", lambda name: part.linear(name, mixed, roles.ATTENTION_OUT, layer, bias))
        if self.out_norm:
            out = part.norm(f"{here}.out_norm", out, roles.ATTENTION_OUT_NORM, layer)
        if self.sum_norm:
            return part.norm_of_hidden(residual, builder.add(f"{here}.sum", x, out), roles.ATTENTION_NORM, layer)
        return lower_residual(part, residual, x, out, residual_gate)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Mixed:
    """What attention makes of its projections, which lie side by side in `qkv`: the device's heads of q, of k, of v,
    and where it is gated those of q's gates; in `normed` behind norms that heads have each."""

    block: Attention
    part: GraphPart
    layer: int
    here: str
    qkv: Ref
    normed: Ref

    @property
    def head_dim(self) -> int:
        return self.block.head_dim or self.part.config.head_dim

    @property
    def all_heads(self) -> int:
        """Query heads on all devices."""
        return self.block.heads or self.part.config.num_heads

    @property
    def heads(self) -> range:
        """Those of this device."""
        return self.part.shard.even(self.all_heads)

    @property
    def kv_heads(self) -> int:
        return self.block.kv_heads or self.part.shard.kv_heads

    def lower(self) -> Ref:
        """Returns what all heads of all devices give, [B, T, heads * head_dim]."""
        norm = roles.Q_NORM if self.block.wide_norm else None
        q = self._positioned("q", self._heads("q", 0, len(self.heads), norm), roles.Q_NORM)
        keys, values = self._keys_and_values()

        def attend(name: str) -> Ref:
            return self._attend(name, q, keys, values)

        def gated(name: str) -> Ref:
            mixed = attend(f"{self.here}.mix")
            first, wide = (len(self.heads) + 2 * self.kv_heads) * self.head_dim, len(self.heads) * self.head_dim
            gate = self.part.builder.slice(f"{self.here}.gate", self.qkv, first, first + wide)
            return self.part.builder.gate_mul(name, mixed, gate, "sigmoid")

        name, mix = (f"{self.here}.gated", gated) if self.block.gated else (f"{self.here}.mix", attend)
        return self.part.whole(name, self.heads.start * self.head_dim, self.all_heads * self.head_dim, mix)

    def _keys_and_values(self) -> tuple[list[Ref], list[Ref]]:
        """The caches behind what this run adds to them, or those of the layer that the block shares."""
        block, part = self.block, self.part
        if not block.has_cache:
            assert block.source is not None
            return part.caches[block.source]
        index, behind_q = part.cached_layers.index(self.layer), len(self.heads)
        unturned = self._heads("k", behind_q, self.kv_heads, roles.K_NORM if block.wide_norm else None)
        k = self._positioned("k", unturned, roles.K_NORM)
        v = unturned if block.values == "keys" else self._heads("v", behind_q + self.kv_heads, self.kv_heads)
        if block.unit_values:
            v = part.builder.rms_norm(f"{self.here}.v_norm", v, roles.ones(self.head_dim), part.config.rms_norm_eps)
        keys = self._cached("k_cache", k, [slot.keys[index] for slot in part.slots])
        values = self._cached("v_cache", v, [slot.values[index] for slot in part.slots])
        part.caches[self.layer] = (keys, values)
        return keys, values

    def _attend(self, name: str, q: Ref, keys: Sequence[Ref], values: Sequence[Ref]) -> Ref:
        block, part = self.block, self.part
        which = 0 if block.window is not None else 1
        masks = [mask for slot in part.slots if (mask := slot.masks[which]) is not None]
        sinks = part.weight(roles.SINKS, self.layer) if block.sinks else None
        besides = part.config.family.contract.extra_mask is not None
        return part.builder.attention(
            name, q, keys, values, part.slots, block.window, sinks, masks, block.scale, block.softcap, besides=besides
        )

    def _heads(self, name: str, first: int, count: int, norm: roles.Role | None = None) -> Ref:
        batch, tokens, _ = self.qkv.shape
        begin, end = first * self.head_dim, (first + count) * self.head_dim
        row = self.qkv if name == "v" else self.normed
        flat = self.part.builder.slice(f"{self.here}.{name}_flat", row, begin, end)
        if norm is not None:
            flat = self._normed_row(name, flat, norm)
        return self.part.builder.reshape(f"{self.here}.{name}_heads", flat, (batch, tokens, count, self.head_dim))

    def _normed_row(self, name: str, flat: Ref, norm: roles.Role) -> Ref:
        """This device's heads, normalised together with those of all others."""
        part, width = self.part, flat.shape[-1]
        rank, count = part.shard.rank, part.shard.ndevice
        if count == 1:
            return part.norm(f"{self.here}.{name}_norm", flat, norm, self.layer)
        row = part.builder.all_gather(f"{self.here}.{name}_row", flat, rank * width, count * width)
        normed = part.norm(f"{self.here}.{name}_norm", row, norm, self.layer)
        return part.builder.slice(f"{self.here}.{name}_own", normed, rank * width, (rank + 1) * width)

    def _positioned(self, name: str, x: Ref, norm: roles.Role) -> Ref:
        """Normalised and rotated, in either order."""
        block = self.block
        early, late = block.qk_norm and not block.late_norm, block.qk_norm and block.late_norm
        if early:
            x = self._normed_heads(name, x, norm)
        if block.rotated or (block.grows and name == "q"):
            x = self._rotated(name, x)
        return self._normed_heads(name, x, norm) if late else x

    def _normed_heads(self, name: str, x: Ref, norm: roles.Role) -> Ref:
        name = f"{self.here}.{name}_norm"
        if not self.block.unit_heads:
            return self.part.norm(name, x, norm, self.layer)
        return self.part.builder.rms_norm(name, x, roles.ones(self.head_dim), self.part.config.rms_norm_eps)

    def _rotated(self, name: str, x: Ref) -> Ref:
        block, part = self.block, self.part
        if part.tables is not None:
            return part.builder.rope_by_rows(f"{self.here}.{name}", x, *part.tables)
        cos, sin = block.tables(name)
        return part.builder.rope(f"{self.here}.{name}", x, cos, sin, part.slots)

    def _cached(self, which: str, new: Ref, caches: Sequence[Ref]) -> list[Ref]:
        slots = self.part.slots
        names = [f"{self.here}.{which}" + (f"_batch_{slot}" if slot else "") for slot in range(len(slots))]
        return self.part.builder.kv_cache(names, new, caches, slots)


def attention_blocks(config: ModelConfig) -> list[Attention]:
    """Returns those of all layers."""
    blocks = (block for layer in range(config.num_layers) for block in config.blocks(layer))
    return [block for block in blocks if isinstance(block, Attention)]
