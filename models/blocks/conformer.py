"""A layer of conformers: halves of an MLP around attention in blocks and a convolution along time."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from ..family import Tensors, plain
from ..graphs.speech_builder import SpeechBuilder
from ..graphs.values import Ref
from ..weights import roles as model_roles
from ..weights.roles import Role
from ..weights.spec import LinearSpec
from ..weights.speech_roles import pair
from .clipped import ClippedLinear, clipped_tensors
from .weights import Weight

_EPSILON = 1e-6  # of norms that no key says it of
# What attention reads beside rows: places of the rows of each block and of those it sees, int32; the positions before
# the last row of a block's queries, [n, H]; 0 and the cap of the scores, [1].
ROWS, SEEN, POSITIONS, POSITION_ROWS = (f"encoder.{name}" for name in ("rows", "seen", "positions", "position_rows"))
NOTHING, CAP = "encoder.nothing", "encoder.cap"


def _linear(what: str) -> Role:
    return pair("encoder", what, layered=True).weight


def _norm(what: str) -> Role:
    return pair("encoder", what, "norm", layered=True).weight


_TAPS, _RELATIVE = _linear("conv.taps"), _linear("attention.relative")
_SCALE = model_roles.Role("encoder.attention.scale", "encoder.layers.{layer}.attention.scale", "factors")
_NAMES = {
    "first.up": "feed_forward1.ffw_layer_1",
    "first.down": "feed_forward1.ffw_layer_2",
    "attention.q": "self_attn.q_proj",
    "attention.k": "self_attn.k_proj",
    "attention.v": "self_attn.v_proj",
    "attention.out": "self_attn.post",
    "conv.start": "lconv1d.linear_start",
    "conv.end": "lconv1d.linear_end",
    "second.up": "feed_forward2.ffw_layer_1",
    "second.down": "feed_forward2.ffw_layer_2",
}
_NORMS = {
    "first.norm": "feed_forward1.pre_layer_norm",
    "first.out_norm": "feed_forward1.post_layer_norm",
    "attention.norm": "norm_pre_attn",
    "attention.out_norm": "norm_post_attn",
    "conv.norm": "lconv1d.pre_layer_norm",
    "conv.inner_norm": "lconv1d.conv_norm",
    "second.norm": "feed_forward2.pre_layer_norm",
    "second.out_norm": "feed_forward2.post_layer_norm",
    "last_norm": "norm_out",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ConformerLayer:
    """Norms, Linears without biases, and residual adds.

    Attributes:
        hidden: Length of a row.
        heads: Of attention.
        rows: Of a sound.
        block: Rows that see the same ones, but for the mask.
        seen: How many these are.
        cap: Of the scores.
        taps: Of the convolution.
        half: What the MLPs count.
        epsilon: Of the norms of the convolution.
        clipped: Linears have bounds.
    """

    hidden: int
    heads: int
    rows: int
    block: int
    seen: int
    cap: float
    taps: int
    half: float
    epsilon: float
    clipped: bool

    @property
    def blocks(self) -> int:
        """Of all rows; the last one may go beyond them."""
        return -(-self.rows // self.block)

    def tensors(self, layer: str) -> dict[Role, Tensors]:
        """Where weights come from, in a module `layer`, but for the convolution."""
        found: dict[Role, Tensors] = {}
        for what, name in _NAMES.items():
            found |= clipped_tensors(_linear(what), f"{layer}.{name}")
        found |= {_norm(what): plain(f"{layer}.{name}.weight") for what, name in _NORMS.items()}
        found[_RELATIVE] = plain(f"{layer}.self_attn.relative_k_proj.weight")
        found[_SCALE] = Tensors("plain", (f"{layer}.self_attn.per_dim_scale",), function="softplus")
        return found

    def weights(self) -> Iterator[Weight]:
        """Yields them in the order of use, but for the convolution."""
        # Queries have the factor of products with keys, over the cap. The keys of places have none of their own.
        head_dim = self.hidden // self.heads
        of_keys = math.log(1 + math.e) / math.log(2)
        of_queries = head_dim**-0.5 / math.log(2) * of_keys / self.cap
        for what in ("first", "second"):
            yield Weight(_norm(f"{what}.norm"), (self.hidden,))
            yield from self._linear(f"{what}.up").weights()
            yield from self._linear(f"{what}.down").weights()
            yield Weight(_norm(f"{what}.out_norm"), (self.hidden,), scale=self.half)
        yield Weight(_norm("attention.norm"), (self.hidden,))
        for what in ("q", "k", "v", "out"):
            yield from self._linear(f"attention.{what}").weights()
        yield Weight(_RELATIVE, (self.hidden,), self.hidden, scale=1 / of_keys)
        yield Weight(_SCALE, (head_dim,), scale=of_queries)
        yield Weight(_norm("attention.out_norm"), (self.hidden,))
        yield Weight(_norm("conv.norm"), (self.hidden,))
        yield from self._linear("conv.start").weights()
        yield Weight(_norm("conv.inner_norm"), (self.hidden,))
        yield from self._linear("conv.end").weights()
        yield Weight(_norm("last_norm"), (self.hidden,))

    def kernel(self, layer: str, number: int) -> LinearSpec:
        """The convolution of layer `number`, a module `layer`."""
        return LinearSpec(
            role=_TAPS,
            layer=number,
            format="dense",
            shape=(self.hidden, self.taps),
            tensors=(f"{layer}.lconv1d.depthwise_conv1d.weight",),
            tensor_shapes=((self.hidden, 1, self.taps),),
        )

    def lower(self, builder: SpeechBuilder, x: Ref, mask: Ref, layer: int) -> Ref:
        """Adds the layer to a graph: [1, T, H] -> [1, T, H], with a mask [1, blocks, block, seen]."""
        here = f"encoder.layers.{layer}"
        x = self._mlp(builder, x, "first", layer)
        x = self._attention(builder, x, mask, layer)
        x = self._convolution(builder, x, layer)
        x = self._mlp(builder, x, "second", layer)
        return self._normed(builder, f"{here}.last", x, "last_norm", layer)

    def _linear(self, what: str) -> ClippedLinear:
        more = {"up": 4, "start": 2}.get(what.split(".")[1], 1)
        inputs = 4 if what.endswith(".down") else 1
        return ClippedLinear(
            role=_linear(what), outputs=more * self.hidden, inputs=inputs * self.hidden, clipped=self.clipped
        )

    def _normed(self, builder: SpeechBuilder, name: str, x: Ref, what: str, layer: int) -> Ref:
        epsilon = self.epsilon if what.startswith("conv") else _EPSILON
        return builder.rms_norm(name, x, _norm(what).name_of(layer), epsilon)

    def _mlp(self, builder: SpeechBuilder, x: Ref, what: str, layer: int) -> Ref:
        here = f"encoder.layers.{layer}.{what}"
        y = self._normed(builder, f"{here}.normed", x, f"{what}.norm", layer)
        y = builder.function("Silu", f"{here}.inner", self._linear(f"{what}.up").lower(builder, f"{here}.up", y, layer))
        y = self._linear(f"{what}.down").lower(builder, f"{here}.down", y, layer)
        return builder.add(f"{here}.added", x, self._normed(builder, f"{here}.out", y, f"{what}.out_norm", layer))

    def _attention(self, builder: SpeechBuilder, x: Ref, mask: Ref, layer: int) -> Ref:
        here, head_dim = f"encoder.layers.{layer}.attention", self.hidden // self.heads
        normed = self._normed(builder, f"{here}.normed", x, "attention.norm", layer)

        def by_block(what: str, places: str, axes: tuple[int, ...]) -> Ref:
            flat = self._linear(f"attention.{what}").lower(builder, f"{here}.{what}_rows", normed, layer)
            rows = builder.gather(f"{here}.{what}_of_blocks", flat, builder.weight(places), 1)
            shape = (self.blocks, rows.shape[1] // self.blocks, self.heads, head_dim)
            rows = builder.reshape(f"{here}.{what}_heads", rows, shape)
            if what == "q":
                rows = builder.times(f"{here}.q_scaled", rows, _SCALE.name_of(layer))
            return builder.transpose(f"{here}.{what}", rows, axes)

        q, k, v = (
            by_block(*each)
            for each in (("q", ROWS, (2, 0, 1, 3)), ("k", SEEN, (2, 0, 3, 1)), ("v", SEEN, (2, 0, 1, 3)))
        )
        scores = builder.add(
            f"{here}.scores", builder.mat_mul(f"{here}.of_keys", q, k), self._by_place(builder, q, layer)
        )
        scores = builder.function("Tanh", f"{here}.scores_tanh", scores)
        scores = builder.times(f"{here}.scores_capped", scores, CAP)
        scores = builder.repeated("Add", f"{here}.scores_masked", scores, mask)
        mixed = builder.mat_mul(f"{here}.mixed", builder.softmax(f"{here}.shares", scores), v)
        mixed = builder.transpose(f"{here}.mixed_rows", mixed, (1, 2, 0, 3))
        mixed = builder.reshape(f"{here}.mixed_flat", mixed, (1, self.blocks * self.block, self.hidden))
        if mixed.shape[1] > self.rows:
            mixed = builder.part(f"{here}.mixed_part", mixed, 1, 0, self.rows)
        out = self._linear("attention.out").lower(builder, f"{here}.out", mixed, layer)
        return builder.add(f"{here}.added", x, self._normed(builder, f"{here}.end", out, "attention.out_norm", layer))

    def _by_place(self, builder: SpeechBuilder, q: Ref, layer: int) -> Ref:
        """Products of queries and keys of places, each row of a block shifted by one against the row before it."""
        here, count = f"encoder.layers.{layer}.attention", self.seen // 2 + 1
        places = builder.gather(f"{here}.places", builder.weight(POSITIONS), builder.weight(POSITION_ROWS), 0)
        keys = builder.linear(f"{here}.place_keys", places, _RELATIVE.name_of(layer))
        keys = builder.reshape(f"{here}.place_heads", keys, (count, self.heads, self.hidden // self.heads))
        keys = builder.transpose(f"{here}.place_keys_turned", keys, (1, 2, 0))
        flat = builder.reshape(f"{here}.q_flat", q, (self.heads, self.blocks * self.block, q.shape[3]))
        found = builder.mat_mul(f"{here}.of_places", flat, keys)
        found = builder.reshape(f"{here}.of_places_by_block", found, (self.heads, self.blocks, self.block, count))
        rest = (*found.shape[:3], self.seen + 1 - count)
        zeros = builder.expand(f"{here}.no_places", builder.weight(NOTHING), rest)
        wide = builder.concat(f"{here}.of_all_places", (found, zeros), 3)
        long = builder.reshape(f"{here}.in_a_row", wide, (*wide.shape[:2], self.block * (self.seen + 1)))
        kept = builder.part(f"{here}.in_a_row_kept", long, 2, 0, self.block * self.seen)
        return builder.reshape(f"{here}.shifted", kept, (*wide.shape[:3], self.seen))

    def _convolution(self, builder: SpeechBuilder, x: Ref, layer: int) -> Ref:
        here = f"encoder.layers.{layer}.conv"
        y = self._normed(builder, f"{here}.normed", x, "conv.norm", layer)
        y = self._linear("conv.start").lower(builder, f"{here}.start", y, layer)
        value, gate = (
            builder.part(f"{here}.{name}", y, 2, at * self.hidden, (at + 1) * self.hidden)
            for at, name in enumerate(("value", "gate"))
        )
        y = builder.gate_mul(f"{here}.gated", value, gate, "sigmoid")
        y = builder.reshape(f"{here}.rows", y, (1, 1, self.rows, self.hidden))
        y = builder.transpose(f"{here}.columns", y, (0, 3, 1, 2))
        y = builder.taps(f"{here}.taps", y, _TAPS.name_of(layer), self.taps)
        y = builder.reshape(f"{here}.back", builder.transpose(f"{here}.rows_again", y, (0, 2, 3, 1)), x.shape)
        y = builder.function("Silu", f"{here}.inner", self._normed(builder, f"{here}.end", y, "conv.inner_norm", layer))
        return builder.add(f"{here}.added", x, self._linear("conv.end").lower(builder, f"{here}.out", y, layer))
