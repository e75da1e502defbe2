"""The head: final norm and logits."""

from __future__ import annotations

from collections.abc import Iterator

from ..common import roles
from ..common.graph_values import Ref
from ..family import ModelConfig
from .part import GraphPart
from .weights import Weight


def head_weights(config: ModelConfig) -> Iterator[Weight]:
    """Yields its weights in the order of use."""
    yield Weight(roles.FINAL_NORM, (config.hidden_size,), scale=config.logit_scale)
    yield Weight(roles.HEAD, (config.vocab_size,), config.hidden_size)


def lower_head(part: GraphPart, normed: Ref) -> Ref:
    """What the final norm gives, [B, T, H] -> logits [B, T, V]."""
    return part.whole(
        part.config.family.contract.output,
        part.shard.vocab.start,
        part.config.vocab_size,
        lambda name: part.linear(name, normed, roles.HEAD),
    )
