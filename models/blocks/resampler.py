"""A perceiver's resampler: so many learned queries take what they want of all patches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..graphs.encoder_builder import EncoderBuilder
from ..graphs.values import Ref
from ..weights import encoder_roles as roles
from .attend import attend
from .encoder import Norm
from .weights import Weight

_PAIRS = {
    "q": (roles.SAMPLE_Q, roles.SAMPLE_Q_BIAS),
    "k": (roles.SAMPLE_K, roles.SAMPLE_K_BIAS),
    "v": (roles.SAMPLE_V, roles.SAMPLE_V_BIAS),
    "out": (roles.SAMPLE_OUT, roles.SAMPLE_OUT_BIAS),
}
_NORMS = {
    "wide": (roles.WIDE_NORM, roles.WIDE_NORM_BIAS),
    "query": (roles.QUERY_NORM, roles.QUERY_NORM_BIAS),
    "sample": (roles.SAMPLE_NORM, roles.SAMPLE_NORM_BIAS),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Resampler:
    """Linear and norm of the patches; attention of normed queries to these; norm, Linear.

    Attributes:
        hidden: Width of a patch.
        width: Of a token of the language model.
        queries: How many tokens come of it.
        heads: Of its attention.
        norm: Of all its norms.
    """

    hidden: int
    width: int
    queries: int
    heads: int
    norm: Norm

    def weights(self) -> Iterator[Weight]:
        """Yields its weights in the order of use; the queries are a constant of the graph."""
        yield Weight(roles.WIDEN, (self.width,), self.hidden)
        for norm in _NORMS.values():
            yield from self.norm.weights(self.width, *norm)
        for name, (weight, bias) in _PAIRS.items():
            scale = (self.width // self.heads) ** -0.5 if name == "q" else 1.0  # that of the scores
            yield Weight(weight, (self.width,), self.width, scale=scale)
            yield Weight(bias, (self.width,), scale=scale)
        yield Weight(roles.PROJECT, (self.width,), self.width)

    def lower(self, builder: EncoderBuilder, x: Ref, places: Sequence[Ref], key_mask: Ref, name: str) -> Ref:
        """Adds it to a graph.

        Args:
            builder: Of the graph.
            x: Patches of all frames, [N, T, H].
            places: What is added to the keys, each [N, T, width].
            key_mask: [1, 1, 1, N * T], added to the scores.
            name: Of the result, [1, queries, width].
        """
        here = "encoder.resampler"

        def normed(which: str, x: Ref) -> Ref:
            return self.norm.lower(builder, f"{here}.{which}_normed", x, _NORMS[which], None)

        def linear(which: str, x: Ref) -> Ref:
            weight, bias = _PAIRS[which]
            return builder.linear(f"{here}.{which}_flat", x, weight.name, bias.name)

        values = normed("wide", builder.linear(f"{here}.widened", x, roles.WIDEN.name))
        keys = values
        for index, place in enumerate(places):
            keys = builder.add(f"{here}.placed_{index}", keys, place)
        patches = x.shape[0] * x.shape[1]
        keys, values = (
            builder.reshape(f"{here}.{which}", part, (1, patches, self.width))
            for which, part in (("keys", keys), ("values", values))
        )
        learned = builder.weight(roles.QUERIES.name)
        queries = normed("query", builder.expand(f"{here}.learned", learned, learned.shape))  # norms read no weights
        head = (self.heads, self.width // self.heads)
        q, k, v = (
            builder.reshape(f"{here}.{which}_heads", linear(which, rows), (1, rows.shape[1], *head))
            for which, rows in (("q", queries), ("k", keys), ("v", values))
        )
        mixed = linear("out", attend(builder, here, (q, k, v), key_mask))
        return builder.linear(name, normed("sample", mixed), roles.PROJECT.name)
