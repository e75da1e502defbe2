"""A layer of encoders with norms on both sides of attention and of a gated MLP, without biases."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tcim_lite.hmm.weight_format import GROUP

from ..graphs.encoder_builder import EncoderBuilder
from ..graphs.values import Ref
from ..weights import encoder_roles as roles
from ..weights.roles import Role, ones
from .attend import attend
from .clipped import ClippedLinear
from .weights import Weight


@dataclass(frozen=True, slots=True, kw_only=True)
class PatchLayer:
    """Norm, attention, norm, residual add; norm, MLP with GELU of a gate, norm, residual add.

    Attributes:
        hidden: Width of a patch.
        heads: Of queries, keys and values alike, each of which has a norm; that of values has no weight.
        head_dim: Of a head, whose halves turn by the column and by the row.
        inner: Of the MLP.
        epsilon: Of all norms.
        clipped: Linears have bounds, each its own.
    """

    hidden: int
    heads: int
    head_dim: int
    inner: int
    epsilon: float
    clipped: bool = False

    @property
    def padded(self) -> int:
        """`inner` with zeros behind it, up to whole groups of a quantised weight."""
        return -(-self.inner // GROUP) * GROUP

    def weights(self) -> Iterator[Weight]:
        rows = self.heads * self.head_dim
        yield Weight(roles.ATTENTION_NORM, (self.hidden,))
        if self.clipped:
            for role in (roles.Q, roles.K, roles.V):
                yield from self._linear(role).weights()
        else:
            yield Weight(roles.QKV, (rows, rows, rows), self.hidden)
        yield Weight(roles.Q_NORM, (self.head_dim,))
        yield Weight(roles.K_NORM, (self.head_dim,))
        yield from self._linear(roles.OUT).weights()
        yield Weight(roles.OUT_NORM, (self.hidden,))
        yield Weight(roles.MLP_NORM, (self.hidden,))
        if self.clipped:
            for role in (roles.GATE, roles.UP_ALONE, roles.DOWN):
                yield from self._linear(role).weights()
        else:
            yield Weight(roles.UP, (self.inner, self.inner), self.hidden, multiple=GROUP)
            yield Weight(roles.DOWN, (self.hidden,), self.inner, self.padded)
        yield Weight(roles.DOWN_NORM, (self.hidden,))

    def lower(
        self, builder: EncoderBuilder, x: Ref, layer: int, tables: Sequence[tuple[Ref, Ref]], key_mask: Ref | None
    ) -> Ref:
        """Adds the layer to a graph: [1, T, H] -> [1, T, H].

        Args:
            builder: Of the graph.
            x: Patches.
            layer: Its number.
            tables: Rows of cos and sin of the patches, [1, T, head_dim / 4], by the column and by the row.
            key_mask: [1, 1, 1, T], added to the scores; None where no patch is padding.
        """
        here, rows = f"encoder.layers.{layer}", self.heads * self.head_dim

        def norm(name: str, of: Ref, role: Role) -> Ref:
            return builder.rms_norm(f"{here}.{name}", of, role.name_of(layer), self.epsilon)

        def linear(name: str, of: Ref, role: Role) -> Ref:
            return self._linear(role).lower(builder, f"{here}.{name}", of, layer)

        normed = norm("attention_normed", x, roles.ATTENTION_NORM)
        qkv = None if self.clipped else builder.linear(f"{here}.qkv", normed, roles.QKV.name_of(layer))

        def heads(name: str, index: int) -> Ref:
            if qkv is None:
                flat = linear(f"{name}_flat", normed, (roles.Q, roles.K, roles.V)[index])
            else:
                flat = builder.part(f"{here}.{name}_flat", qkv, 2, index * rows, (index + 1) * rows)
            return builder.reshape(f"{here}.{name}_heads", flat, (*x.shape[:2], self.heads, self.head_dim))

        def turned(name: str, of: Ref) -> Ref:
            half = self.head_dim // 2
            parts = [
                builder.rope_by_rows(
                    f"{here}.{name}_{axis}_turned",
                    builder.part(f"{here}.{name}_{axis}", of, 3, axis * half, (axis + 1) * half),
                    *tables[axis],
                )
                for axis in range(2)
            ]
            return builder.concat(f"{here}.{name}", parts, 3)

        q = turned("q", norm("q_normed", heads("q", 0), roles.Q_NORM))
        k = turned("k", norm("k_normed", heads("k", 1), roles.K_NORM))
        v = builder.rms_norm(f"{here}.v", heads("v", 2), ones(self.head_dim), self.epsilon)
        out = linear("out", attend(builder, here, (q, k, v), key_mask), roles.OUT)
        x = builder.add(f"{here}.attended", x, norm("out_normed", out, roles.OUT_NORM))
        normed = norm("mlp_normed", x, roles.MLP_NORM)
        if self.clipped:
            gate = builder.function("GeluTanh", f"{here}.gelu", linear("gate", normed, roles.GATE))
            inner = builder.mul(f"{here}.gelu_mul", gate, linear("up", normed, roles.UP_ALONE))
            down = linear("down", inner, roles.DOWN)
        else:
            up = builder.linear(f"{here}.up", normed, roles.UP.name_of(layer))
            inner = builder.silu_mul(f"{here}.gelu_mul", up, "gelu_tanh")
            down = builder.linear(f"{here}.down", inner, roles.DOWN.name_of(layer))
        return builder.add(f"{here}.added", x, norm("down_normed", down, roles.DOWN_NORM))

    def _linear(self, role: Role) -> ClippedLinear:
        """One of those that may have bounds."""
        rows = self.heads * self.head_dim
        sizes = {roles.OUT: (self.hidden, rows), roles.DOWN: (self.hidden, self.inner)}
        inner = role in (roles.GATE, roles.UP_ALONE)
        outputs, inputs = sizes.get(role, (self.inner if inner else rows, self.hidden))
        return ClippedLinear(role=role, outputs=outputs, inputs=inputs, clipped=self.clipped)
