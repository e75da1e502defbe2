"""Multi-head latent attention: the cache has one row for all heads, from which each would make its keys and values.

Of a head with the matrices U of its keys and W of its values, q . (U c) is (U^T q) . c, and the sum of shares times W c
is W times the sum of shares times c. So q goes through U^T before attention and what attention gives through W behind
it, and attention itself is that of many query heads over one KV head: the rows of the cache are its keys and its
values. Beside the latent c they have a key that turns, which all heads share.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..common.errors import CompileError
from ..graphs.values import Ref
from ..model_config import ModelConfig
from ..weights import roles
from .attention import MAX_SHARING
from .conditioned import lower_norm, lower_residual, norm_weights
from .part import GraphPart
from .weights import Weight

LATENT_EPSILON = 1e-6  # of the norms of latents, whatever that of hidden states is


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentAttention:
    """Norm; q, by a latent of its own or not, and the latent; rotation; cache; attention; output projection; residual
    add. `ModelConfig.head_dim` elements of a head turn, and it has others.

    Attributes:
        latent: Size of the latent that keys and values are made of.
        unturned: Elements of a head of q and k that do not turn.
        values: Size of a head of v.
        query_latent: Size of the latent that q is made of; None for a projection of the hidden states.
        bias: The projections to latents and the output projection have biases.
        scale: Of the scores.
        in_pairs: Neighbours turn together in the checkpoint, otherwise the two halves.
        rotated: Those elements turn by their positions; otherwise they are what all heads share of k, and no more.
    """

    latent: int
    unturned: int
    values: int
    query_latent: int | None
    bias: bool
    scale: float
    in_pairs: bool
    rotated: bool = True

    has_cache = True

    @property
    def queries(self) -> roles.Role:
        """That of the projection to q."""
        return roles.DIRECT_QUERIES if self.query_latent is None else roles.QUERIES

    def cache_shape(self, config: ModelConfig, kv_heads: int, context: int) -> tuple[int, ...]:
        """Of the cache, which every device has whole."""
        return (1, 1, context, self.latent + config.head_dim)

    def weights(self, config: ModelConfig) -> Iterator[Weight]:
        hidden, heads, turns = config.hidden_size, config.num_heads, config.head_dim
        if heads > MAX_SHARING:
            raise CompileError(f"config.json: {heads} heads are not supported, expected at most {MAX_SHARING}")
        yield from norm_weights(config, roles.ATTENTION_NORM)
        if self.query_latent is not None:
            yield Weight(roles.QUERY_LATENT, (self.query_latent,), hidden)
            if self.bias:
                yield Weight(roles.QUERY_LATENT_BIAS, (self.query_latent,))
            yield Weight(roles.QUERY_LATENT_NORM, (self.query_latent,))
        queries = (heads * self.unturned, heads * turns)
        inputs, parts = self.query_latent or hidden, (self.unturned, turns)
        yield Weight(self.queries, queries, inputs, head_parts=parts, pairs=self.in_pairs)
        row = (self.latent, turns)
        yield Weight(roles.LATENT, row, hidden, head_parts=row, pairs=self.in_pairs)
        if self.bias:
            yield Weight(roles.LATENT_BIAS, row, head_parts=row, pairs=self.in_pairs)
        yield Weight(roles.LATENT_NORM, (self.latent,))
        both = (self.unturned, self.values)
        whole = (heads * sum(both), self.latent)
        yield Weight(roles.KEY_HEADS, (self.latent,), self.unturned, experts=heads, head_parts=both, whole=whole)
        yield Weight(roles.VALUE_HEADS, (self.values,), self.latent, experts=heads, head_parts=both, whole=whole)
        yield Weight(roles.ATTENTION_OUT, (hidden,), heads * self.values)
        if self.bias:
            yield Weight(roles.ATTENTION_OUT_BIAS, (hidden,))

    def lower(self, part: GraphPart, x: Ref, layer: int, residual: str) -> Ref:
        """Adds the block to a graph; arguments and result as `Attention.lower`."""
        builder, config, here = part.builder, part.config, f"layers.{layer}.attn"
        normed, residual_gate = lower_norm(part, f"{here}.norm", x, roles.ATTENTION_NORM, layer)
        q = part.linear(f"{here}.q", self._query_rows(part, normed, layer), self.queries, layer)
        bias = roles.LATENT_BIAS if self.bias else None
        row = part.linear(f"{here}.latent", normed, roles.LATENT, layer, bias)
        heads = part.shard.even(config.num_heads)
        mixed = part.whole(
            f"{here}.mix",
            heads.start * self.values,
            config.num_heads * self.values,
            lambda name: self._mix(part, layer, q, row, name),
        )
        if part.kept_row is not None and layer + 1 == config.num_layers:
            x = builder.last_row(f"{here}.row", x, part.kept_row)
            mixed = builder.last_row(f"{here}.mix_row", mixed, part.kept_row)
        out_bias = roles.ATTENTION_OUT_BIAS if self.bias else None
        out = part.whole_hidden(
            f"{here}.out", lambda name: part.linear(name, mixed, roles.ATTENTION_OUT, layer, out_bias)
        )
        return lower_residual(part, residual, x, out, residual_gate)

    def _query_rows(self, part: GraphPart, normed: Ref, layer: int) -> Ref:
        """What q is made of."""
        if self.query_latent is None:
            return normed
        here, bias = f"layers.{layer}.attn", roles.QUERY_LATENT_BIAS if self.bias else None
        latent = part.linear(f"{here}.q_latent", normed, roles.QUERY_LATENT, layer, bias)
        norm = part.weight(roles.QUERY_LATENT_NORM, layer)
        return part.builder.rms_norm(f"{here}.q_latent_norm", latent, norm, LATENT_EPSILON)

    def _mix(self, part: GraphPart, layer: int, q: Ref, row: Ref, name: str) -> Ref:
        """Attention of the device's heads, [B, T, heads * values]; `row` has the latent and the key that turns."""
        builder, turns, here = part.builder, part.config.head_dim, f"layers.{layer}.attn"
        batch, tokens, _ = q.shape
        heads = len(part.shard.even(part.config.num_heads))
        q_turned = self._turned(part, f"{here}.q_turned", q, heads * self.unturned, heads)
        k_turned = self._turned(part, f"{here}.k_turned", row, self.latent, 1)

        latent = builder.slice(f"{here}.latent_part", row, 0, self.latent)
        latent = builder.rms_norm(f"{here}.latent_norm", latent, part.weight(roles.LATENT_NORM, layer), LATENT_EPSILON)
        latent = builder.reshape(f"{here}.latent_head", latent, (batch, tokens, 1, self.latent))
        new = builder.concat(f"{here}.cache_row", (latent, k_turned), 3)
        index = part.cached_layers.index(layer)
        names = [f"{here}.latent_cache" + (f"_batch_{slot}" if slot else "") for slot in range(len(part.slots))]
        caches = builder.kv_cache(names, new, [slot.keys[index] for slot in part.slots], part.slots)

        q_rest = builder.slice(f"{here}.q_rest", q, 0, heads * self.unturned)
        q_rest = builder.reshape(f"{here}.q_rest_heads", q_rest, (batch, tokens, heads, self.unturned))
        q_rest = builder.head_linear(f"{here}.q_keys", q_rest, part.weight(roles.KEY_HEADS, layer))
        q_all = builder.concat(f"{here}.q_row", (q_rest, q_turned), 3)
        mixed = builder.attention(f"{here}.attend", q_all, caches, caches, part.slots, scale=self.scale)
        mixed = builder.reshape(f"{here}.attend_heads", mixed, (batch, tokens, heads, self.latent + turns))
        mixed = builder.part(f"{here}.attend_latent", mixed, 3, 0, self.latent)
        mixed = builder.head_linear(f"{here}.mix_heads", mixed, part.weight(roles.VALUE_HEADS, layer))
        return builder.reshape(name, mixed, (batch, tokens, heads * self.values))

    def _turned(self, part: GraphPart, name: str, rows: Ref, first: int, heads: int) -> Ref:
        """Columns of [B, T, n] from `first` on, rotated by the tokens' positions, [B, T, heads, turns]."""
        turns = part.config.head_dim
        shape = (*rows.shape[:2], heads, turns)
        if not self.rotated:
            own = part.builder.part(f"{name}_flat", rows, 2, first, first + heads * turns)
            return part.builder.reshape(f"{name}_heads", own, shape)
        flat = part.builder.slice(f"{name}_flat", rows, first, first + heads * turns)
        apart = part.builder.reshape(f"{name}_heads", flat, shape)
        return part.builder.rope(name, apart, roles.ROPE_COS, roles.ROPE_SIN, part.slots)
