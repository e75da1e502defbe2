"""Layers of encoders, whose tokens all see each other: attention and MLP, with layer norms or RMS norms."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..common import encoder_roles as roles
from ..common.encoder_builder import EncoderBuilder
from ..common.graph_values import Ref
from ..common.roles import Role
from .weights import Weight

_GROUP = 64  # inner sizes are padded to whole groups of a quantised weight


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
            scale of the scores.
        windows: Of a layer with windows what its tokens see, all tokens in turn; empty where `window_mask` says it.
        window_mask: [1, T, T], added to the scores of layers with windows.
        key_mask: [1, 1, 1, T], added to the scores of all layers.
    """

    builder: EncoderBuilder
    tables: Sequence[Ref]
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
    """

    hidden: int
    heads: int
    norm: Norm
    windowed: bool = False

    def weights(self) -> Iterator[Weight]:
        """Yields its weights in the order of use."""
        yield from self.norm.weights(self.hidden, roles.ATTENTION_NORM, roles.ATTENTION_NORM_BIAS)
        yield Weight(roles.QKV, (3 * self.hidden,), self.hidden)
        yield Weight(roles.QKV_BIAS, (3 * self.hidden,))
        yield Weight(roles.OUT, (self.hidden,), self.hidden)
        yield Weight(roles.OUT_BIAS, (self.hidden,))

    def lower(self, part: EncoderPart, x: Ref, layer: int) -> Ref:
        """Adds the block to a graph: [1, T, H] -> [1, T, H]."""
        builder, here = part.builder, f"encoder.layers.{layer}.attention"
        normed = self.norm.lower(builder, f"{here}.normed", x, (roles.ATTENTION_NORM, roles.ATTENTION_NORM_BIAS), layer)
        qkv = builder.linear(f"{here}.qkv", normed, roles.QKV.name_of(layer), roles.QKV_BIAS.name_of(layer))

        def heads(name: str, index: int) -> Ref:
            first, stop = index * self.hidden, (index + 1) * self.hidden
            if name == "v":  # rotations read a part where it lies, what follows here does not
                flat = builder.part(f"{here}.v_flat", qkv, 2, first, stop)
            else:
                flat = builder.slice(f"{here}.{name}_flat", qkv, first, stop)
            return builder.reshape(f"{here}.{name}_heads", flat, (*x.shape[:2], self.heads, self.hidden // self.heads))

        key_cos, key_sin, query_cos, query_sin = part.tables
        q = builder.rope_by_rows(f"{here}.q", heads("q", 0), query_cos, query_sin)
        k = builder.rope_by_rows(f"{here}.k", heads("k", 1), key_cos, key_sin)
        mixed = self._mixed(part, here, (q, k, heads("v", 2)))
        out = builder.linear(f"{here}.out", mixed, roles.OUT.name_of(layer), roles.OUT_BIAS.name_of(layer))
        return builder.add(f"{here}.added", x, out)

    def _mixed(self, part: EncoderPart, here: str, qkv: tuple[Ref, Ref, Ref]) -> Ref:
        """[1, T, heads, D] each -> [1, T, H]."""
        if not self.windowed or part.window_mask is not None:
            return self._attention(part, here, qkv, part.window_mask if self.windowed else None)
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
            mixed = self._attention(part, f"{here}.windows_{index}", (q, k, v), None)
            found.append(builder.reshape(f"{here}.mix_{index}", mixed, (1, stop - windows.start, self.hidden)))
        return found[0] if len(found) == 1 else builder.concat(f"{here}.mix", found, 1)

    def _attention(self, part: EncoderPart, here: str, qkv: tuple[Ref, Ref, Ref], mask: Ref | None) -> Ref:
        """[N, T, heads, D] each -> [N, T, H]: each row of axis 0 by itself."""
        builder = part.builder
        number, tokens, heads, _ = qkv[0].shape
        q = builder.transpose(f"{here}.q_turned", qkv[0], (0, 2, 1, 3))
        k = builder.transpose(f"{here}.k_turned", qkv[1], (0, 2, 3, 1))
        v = builder.transpose(f"{here}.v_turned", qkv[2], (0, 2, 1, 3))
        if part.key_mask is not None:
            # One more column of q, ones, and one more row of k, the mask: the product adds it to the scores, which so
            # need not be kept.
            ones = builder.expand(f"{here}.ones", builder.weight(roles.ONE), (number, heads, tokens, 1))
            row = builder.expand(f"{here}.mask_row", part.key_mask, (number, heads, 1, tokens))
            q = builder.concat(f"{here}.q_masked", (q, ones), 3)
            k = builder.concat(f"{here}.k_masked", (k, row), 2)
        scores = builder.mat_mul(f"{here}.scores", q, k)
        if mask is not None:
            scores = builder.add_repeated(
                f"{here}.scores_masked", scores, builder.reshape(f"{here}.mask", mask, (1, *mask.shape))
            )
        mixed = builder.mat_mul(f"{here}.mixed", builder.softmax(f"{here}.shares", scores), v)
        turned = builder.transpose(f"{here}.mixed_turned", mixed, (0, 2, 1, 3))
        return builder.reshape(f"{here}.mixed_flat", turned, (number, tokens, self.hidden))


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderMlp:
    """Norm, up, function, down, residual add.

    Attributes:
        hidden: Width of a token.
        inner: Of what lies between.
        norm: Before it.
        function: Of the elements between, an op; None for silu of a gate, which multiplies them.
    """

    hidden: int
    inner: int
    norm: Norm
    function: str | None

    @property
    def padded(self) -> int:
        """`inner` with padding, which is zero."""
        return -(-self.inner // _GROUP) * _GROUP

    def weights(self) -> Iterator[Weight]:
        """Yields its weights in the order of use."""
        rows = (self.inner,) if self.function else (self.inner, self.inner)
        yield from self.norm.weights(self.hidden, roles.MLP_NORM, roles.MLP_NORM_BIAS)
        yield Weight(roles.UP, rows, self.hidden, multiple=_GROUP)
        yield Weight(roles.UP_BIAS, rows, multiple=_GROUP)
        yield Weight(roles.DOWN, (self.hidden,), self.inner, self.padded)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Merger:
    """Norm, tokens side by side as one, Linear, GELU, Linear.

    Attributes:
        hidden: Width of a token.
        tokens: That become one.
        width: Of that.
        norm: Before it, of each token.
        norm_behind: It is one of the tokens side by side instead.
        roles: Of norm, up and down, each with its bias.
    """

    hidden: int
    tokens: int
    width: int
    norm: Norm
    roles: tuple[Role, ...]
    norm_behind: bool = False

    def weights(self) -> Iterator[Weight]:
        """Yields its weights in the order of use."""
        norm, norm_bias, up, up_bias, down, down_bias = self.roles
        wide = self.hidden * self.tokens
        yield from self.norm.weights(wide if self.norm_behind else self.hidden, norm, norm_bias)
        yield Weight(up, (wide,), wide)
        yield Weight(up_bias, (wide,))
        yield Weight(down, (self.width,), wide)
        yield Weight(down_bias, (self.width,))

    def lower(
        self, part: EncoderPart, x: Ref, leading: tuple[int, ...], here: str, name: str, layer: int | None = None
    ) -> Ref:
        """Adds it to a graph: [1, T, H] -> [*leading, T / tokens, width], called `name`."""
        builder, (norm, norm_bias, up, up_bias, down, down_bias) = part.builder, self.roles
        shape = (*leading, x.shape[1] // self.tokens, self.hidden * self.tokens)
        if self.norm_behind:
            x = builder.reshape(f"{here}.beside", x, shape)
        x = self.norm.lower(builder, f"{here}.normed", x, (norm, norm_bias), layer)
        if not self.norm_behind:
            x = builder.reshape(f"{here}.beside", x, shape)
        x = builder.linear(f"{here}.up", x, up.name_of(layer), up_bias.name_of(layer))
        x = builder.function("Gelu", f"{here}.bent", x)
        return builder.linear(name, x, down.name_of(layer), down_bias.name_of(layer))
