"""What makes one token of several side by side: mergers of vision towers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tcim_lite.hmm.weight_format import GROUP

from ..graphs.values import Ref
from ..weights import encoder_roles as roles
from ..weights.roles import Role
from .encoder import EncoderPart, Norm
from .weights import Weight


@dataclass(frozen=True, slots=True, kw_only=True)
class Merger:
    """Norm, tokens side by side as one, Linear, function, Linear.

    Attributes:
        hidden: Width of a token.
        tokens: That become one.
        width: Of that.
        norm: Before it, of each token.
        norm_behind: It is one of the tokens side by side instead.
        roles: Of norm, up and down, each with its bias.
        inner: Rows between the Linears; None for as many as the tokens have side by side.
        function: Between the Linears, an op.
        mean: The result is added to the mean of the tokens.
    """

    hidden: int
    tokens: int
    width: int
    norm: Norm
    roles: tuple[Role, ...]
    norm_behind: bool = False
    inner: int | None = None
    function: str = "Gelu"
    mean: bool = False

    def weights(self) -> Iterator[Weight]:
        norm, norm_bias, up, up_bias, down, down_bias = self.roles
        wide = self.hidden * self.tokens
        yield from self.norm.weights(wide if self.norm_behind else self.hidden, norm, norm_bias)
        inner, multiple = (wide, 1) if self.inner is None else (self.inner, GROUP)
        yield Weight(up, (inner,), wide, multiple=multiple)
        yield Weight(up_bias, (inner,), multiple=multiple)
        yield Weight(down, (self.width,), inner, -(-inner // multiple) * multiple)
        yield Weight(down_bias, (self.width,))

    def lower(
        self, part: EncoderPart, x: Ref, leading: tuple[int, ...], here: str, name: str, layer: int | None = None
    ) -> Ref:
        """Adds it to a graph: [1, T, H] -> [*leading, T / tokens, width], called `name`."""
        builder, (norm, norm_bias, up, up_bias, down, down_bias) = part.builder, self.roles
        shape = (*leading, x.shape[1] // self.tokens, self.hidden * self.tokens)
        tokens = x
        if self.norm_behind:
            x = builder.reshape(f"{here}.beside", x, shape)
        x = self.norm.lower(builder, f"{here}.normed", x, (norm, norm_bias), layer)
        if not self.norm_behind:
            x = builder.reshape(f"{here}.beside", x, shape)
        x = builder.linear(f"{here}.up", x, up.name_of(layer), up_bias.name_of(layer))
        x = builder.function(self.function, f"{here}.bent", x)
        if not self.mean:
            return builder.linear(name, x, down.name_of(layer), down_bias.name_of(layer))
        x = builder.linear(f"{here}.down", x, down.name_of(layer), down_bias.name_of(layer))
        count = tokens.shape[1] // self.tokens
        columns = builder.reshape(f"{here}.windows", tokens, (count, self.tokens, self.hidden))
        columns = builder.transpose(f"{here}.windows_turned", columns, (0, 2, 1))
        mean = builder.reshape(f"{here}.mean_flat", builder.mean(f"{here}.mean", columns), x.shape)
        return builder.add(name, mean, x)


@dataclass(frozen=True, slots=True, kw_only=True)
class GatedMerger:
    """A convolution over the patches of a token, Linear, norm, GELU, and a gated MLP.

    Attributes:
        hidden: Width of a patch.
        tokens: Patches that become one token.
        width: Of that.
        norm: Behind the first Linear.
        inner: Width of the MLP.
    """

    hidden: int
    tokens: int
    width: int
    norm: Norm
    inner: int

    @property
    def join(self) -> Weight:
        """The kernel of the convolution, whose numbers lie patch by patch for each number of a patch."""
        return Weight(roles.JOIN, (self.width,), self.hidden * self.tokens)

    def weights(self) -> Iterator[Weight]:
        """Yields the other weights in the order of use."""
        yield Weight(roles.JOIN_BIAS, (self.width,))
        yield Weight(roles.MERGER_PROJECT, (self.width,), self.width)
        yield from self.norm.weights(self.width, roles.MERGER_NORM, roles.MERGER_NORM_BIAS)
        yield Weight(roles.MERGER_UP, (self.inner, self.inner), self.width, multiple=GROUP)
        yield Weight(roles.MERGER_DOWN, (self.width,), self.inner, -(-self.inner // GROUP) * GROUP)

    def lower(
        self, part: EncoderPart, x: Ref, leading: tuple[int, ...], here: str, name: str, layer: int | None = None
    ) -> Ref:
        """As `Merger.lower`."""
        builder, count = part.builder, x.shape[1] // self.tokens
        cells = builder.reshape(f"{here}.cells", x, (count, self.tokens, self.hidden))
        cells = builder.transpose(f"{here}.cells_turned", cells, (0, 2, 1))
        x = builder.reshape(f"{here}.beside", cells, (*leading, count, self.hidden * self.tokens))
        x = builder.linear(f"{here}.joined", x, roles.JOIN.name, roles.JOIN_BIAS.name)
        x = builder.linear(f"{here}.projected", x, roles.MERGER_PROJECT.name)
        x = self.norm.lower(builder, f"{here}.normed", x, (roles.MERGER_NORM, roles.MERGER_NORM_BIAS), None)
        x = builder.function("Gelu", f"{here}.bent", x)
        x = builder.silu_mul(f"{here}.gated", builder.linear(f"{here}.up", x, roles.MERGER_UP.name))
        return builder.linear(name, x, roles.MERGER_DOWN.name)
