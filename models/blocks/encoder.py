"""Layers of encoders, whose tokens all see each other: attention and MLP, with layer norms or RMS norms."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tcim_lite.hmm.weight_format import GROUP

from ..graphs.encoder_builder import EncoderBuilder
from ..graphs.values import Ref
from ..weights import encoder_roles as roles
from ..weights.roles import Role
from .attend import attend
from .weights import Weight

APART = ((roles.Q, roles.Q_BIAS), (roles.K, roles.K_BIAS), (roles.V, roles.V_BIAS))


@dataclass(frozen=True, slots=True)
class Windows:
    """Windows of equal size, one behind the other.

    Attributes:
        start: Their first token.
        count: How many there are.
        tokens: In each.
    """

    start: int
    count: int
    tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderPart:
    """The graph of an encoder, while blocks are lowered into it.

    Attributes:
        builder: Collects the ops.
        tables: Rows of cos and sin of the tokens, [1, T, head_dim / 2]: two for keys, two for queries, which have the
            scale of the scores; none where nothing turns.
        windows: Of a layer with windows what its tokens see, all tokens in turn; empty where `window_mask` says it.
        window_mask: [1, T, T], added to the scores of layers with windows.
        key_mask: [N, 1, 1, T], added to the scores of all layers.
    """

    builder: EncoderBuilder
    tables: Sequence[Ref] = ()
    windows: Sequence[Windows] = ()
    window_mask: Ref | None = None
    key_mask: Ref | None = None


@dataclass(frozen=True, slots=True)
class Norm:
    """A norm over the last axis: of centred numbers with a bias, or the root of their mean square."""

    centred: bool
    epsilon: float = 1e-6

    def weights(self, width: int, weight: Role, bias: Role) -> Iterator[Weight]:
        """Yields its weights."""
        yield Weight(weight, (width,))
        if self.centred:
            yield Weight(bias, (width,))

    def lower(self, builder: EncoderBuilder, name: str, x: Ref, roles: tuple[Role, Role], layer: int | None) -> Ref:
        """Adds it to a graph; `roles` are those of the weight and the bias."""
        weight, bias = (role.name_of(layer) for role in roles)
        if self.centred:
            return builder.layer_norm(name, x, weight, bias, self.epsilon)
        return builder.rms_norm(name, x, weight, self.epsilon)


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderAttention:
    """Norm; q, k and v; their rotation; attention; projection; residual add.

    Attributes:
        hidden: Width of a token.
        heads: Of queries, keys and values alike.
        norm: Before it.
        windowed: Tokens see those of their window only.
        turned: q and k turn, by tables that have the scale of the scores; otherwise q, k and v are Linears of their
            own, of which q has the scale.
        head_norm: Of each head of q and k before that; None without one.
    """

    hidden: int
    heads: int
    norm: Norm
    windowed: bool = False
    turned: bool = True
    head_norm: Norm | None = None

    @property
    def head_dim(self) -> int:
        return self.hidden // self.heads

    def weights(self) -> Iterator[Weight]:
        yield from self.norm.weights(self.hidden, roles.ATTENTION_NORM, roles.ATTENTION_NORM_BIAS)
        if self.turned:
            rows = (self.hidden, self.hidden, self.hidden)
            yield Weight(roles.QKV, rows, self.hidden)
            yield Weight(roles.QKV_BIAS, rows)
            for role in (roles.Q_NORM, roles.K_NORM) if self.head_norm else ():
                yield Weight(role, (self.head_dim,))
        else:
            for weight, bias in APART:
                scale = self.head_dim**-0.5 if weight == roles.Q else 1.0
                yield Weight(weight, (self.hidden,), self.hidden, scale=scale)
                yield Weight(bias, (self.hidden,), scale=scale)
        yield Weight(roles.OUT, (self.hidden,), self.hidden)
        yield Weight(roles.OUT_BIAS, (self.hidden,))

    def lower(self, part: EncoderPart, x: Ref, layer: int) -> Ref:
        """Adds the block to a graph: [N, T, H] -> [N, T, H], where nothing turns; N is 1 where something does."""
        builder, here = part.builder, f"encoder.layers.{layer}.attention"
        normed = self.norm.lower(builder, f"{here}.normed", x, (roles.ATTENTION_NORM, roles.ATTENTION_NORM_BIAS), layer)
        qkv = self._turned(part, here, normed, layer) if self.turned else self._apart(part, here, normed, layer)
        mixed = self._mixed(part, here, qkv)
        out = builder.linear(f"{here}.out", mixed, roles.OUT.name_of(layer), roles.OUT_BIAS.name_of(layer))
        return builder.add(f"{here}.added", x, out)

    def _apart(self, part: EncoderPart, here: str, normed: Ref, layer: int) -> tuple[Ref, Ref, Ref]:
        """q, k and v of Linears of their own, [N, T, heads, D]."""
        builder, shape = part.builder, (*normed.shape[:2], self.heads, self.head_dim)

        def heads(name: str, pair: tuple[Role, Role]) -> Ref:
            weight, bias = (role.name_of(layer) for role in pair)
            flat = builder.linear(f"{here}.{name}_flat", normed, weight, bias)
            return builder.reshape(f"{here}.{name}_heads", flat, shape)

        q, k, v = (heads(name, pair) for name, pair in zip("qkv", APART, strict=True))
        return q, k, v

    def _turned(self, part: EncoderPart, here: str, normed: Ref, layer: int) -> tuple[Ref, Ref, Ref]:
        """q, k and v of one Linear, [1, T, heads, D], q and k rotated."""
        builder = part.builder
        qkv = builder.linear(f"{here}.qkv", normed, roles.QKV.name_of(layer), roles.QKV_BIAS.name_of(layer))

        def heads(name: str, index: int) -> Ref:
            first, stop = index * self.hidden, (index + 1) * self.hidden
            if name == "v":  # rotations read a part where it lies, what follows here does not
                flat = builder.part(f"{here}.v_flat", qkv, 2, first, stop)
            else:
                flat = builder.slice(f"{here}.{name}_flat", qkv, first, stop)
            return builder.reshape(f"{here}.{name}_heads", flat, (*normed.shape[:2], self.heads, self.head_dim))

        def normed_heads(name: str, index: int, role: Role) -> Ref:
            x = heads(name, index)
            if self.head_norm is None:
                return x
            return builder.rms_norm(f"{here}.{name}_normed", x, role.name_of(layer), self.head_norm.epsilon)

        key_cos, key_sin, query_cos, query_sin = part.tables
        q = builder.rope_by_rows(f"{here}.q", normed_heads("q", 0, roles.Q_NORM), query_cos, query_sin)
        k = builder.rope_by_rows(f"{here}.k", normed_heads("k", 1, roles.K_NORM), key_cos, key_sin)
        return q, k, heads("v", 2)

    def _mixed(self, part: EncoderPart, here: str, qkv: tuple[Ref, Ref, Ref]) -> Ref:
        """[N, T, heads, D] each -> [N, T, H]."""
        if not self.windowed or part.window_mask is not None:
            return attend(part.builder, here, qkv, part.key_mask, part.window_mask if self.windowed else None)
        builder, tokens = part.builder, qkv[0].shape[1]
        found = []
        for index, windows in enumerate(part.windows):
            stop = windows.start + windows.count * windows.tokens
            cut = list(qkv)
            if stop - windows.start < tokens:
                cut = [
                    builder.part(f"{here}.{name}_{index}", ref, 1, windows.start, stop)
                    for name, ref in zip("qkv", qkv, strict=True)
                ]
            shape = (windows.count, windows.tokens, *qkv[0].shape[2:])
            q, k, v = (
                builder.reshape(f"{here}.{name}_windows_{index}", ref, shape)
                for name, ref in zip("qkv", cut, strict=True)
            )
            mixed = attend(builder, f"{here}.windows_{index}", (q, k, v), part.key_mask)
            found.append(builder.reshape(f"{here}.mix_{index}", mixed, (1, stop - windows.start, self.hidden)))
        return found[0] if len(found) == 1 else builder.concat(f"{here}.mix", found, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderMlp:
    """Norm, up, function, down, residual add.

    Attributes:
        hidden: Width of a token.
        inner: Of what lies between.
        norm: Before it.
        function: Of the elements between, an op; None for silu of a gate, which multiplies them.
        steepness: f(x) is function(steepness * x) / steepness; both factors are in the weights.
    """

    hidden: int
    inner: int
    norm: Norm
    function: str | None
    steepness: float = 1.0

    @property
    def padded(self) -> int:
        """`inner` with zeros behind it, up to whole groups of a quantised weight."""
        return -(-self.inner // GROUP) * GROUP

    def weights(self) -> Iterator[Weight]:
        rows = (self.inner,) if self.function else (self.inner, self.inner)
        yield from self.norm.weights(self.hidden, roles.MLP_NORM, roles.MLP_NORM_BIAS)
        yield Weight(roles.UP, rows, self.hidden, multiple=GROUP, scale=self.steepness)
        yield Weight(roles.UP_BIAS, rows, multiple=GROUP, scale=self.steepness)
        yield Weight(roles.DOWN, (self.hidden,), self.inner, self.padded, scale=1 / self.steepness)
        yield Weight(roles.DOWN_BIAS, (self.hidden,))

    def lower(self, part: EncoderPart, x: Ref, layer: int) -> Ref:
        """Adds the block to a graph: [1, T, H] -> [1, T, H]."""
        builder, here = part.builder, f"encoder.layers.{layer}.mlp"
        normed = self.norm.lower(builder, f"{here}.normed", x, (roles.MLP_NORM, roles.MLP_NORM_BIAS), layer)
        up = builder.linear(f"{here}.up", normed, roles.UP.name_of(layer), roles.UP_BIAS.name_of(layer))
        bent = (
            builder.function(self.function, f"{here}.bent", up)
            if self.function
            else builder.silu_mul(f"{here}.bent", up)
        )
        down = builder.linear(f"{here}.down", bent, roles.DOWN.name_of(layer), roles.DOWN_BIAS.name_of(layer))
        return builder.add(f"{here}.added", x, down)
