"""The ends of a model: what its input goes through first, final norm, logits."""

from __future__ import annotations

from collections.abc import Iterator

from ..common import roles
from ..common.graph_values import Ref
from ..model_config import ModelConfig
from .part import GraphPart
from .weights import Weight


def input_weights(config: ModelConfig) -> Iterator[Weight]:
    """Yields those of the Linear that makes hidden states of the input, if there is one."""
    if config.input_size is not None:
        yield Weight(roles.INPUT_PROJECTION, (config.hidden_size,), config.input_size)
        yield Weight(roles.INPUT_PROJECTION_BIAS, (config.hidden_size,))


def head_weights(config: ModelConfig, *, head: bool = True) -> Iterator[Weight]:
    """Yields those of the final norm and the head, if there is one, in the order of use."""
    scale = config.logit_scale / (config.logit_cap or 1.0)
    yield Weight(roles.FINAL_NORM, (config.hidden_size,), scale=scale if head else 1.0)
    if head:
        heads = config.heads if config.heads > 1 else None
        yield Weight(roles.HEAD, (config.head_outputs,), config.hidden_size, experts=heads)


def lower_input(part: GraphPart, x: Ref) -> Ref:
    """The graph's input -> hidden states."""
    if part.config.input_size is None:
        return x
    return part.linear("input_projection", x, roles.INPUT_PROJECTION, bias=roles.INPUT_PROJECTION_BIAS)


def lower_head(part: GraphPart, normed: Ref, number: Ref | None = None) -> Ref:
    """What the final norm gives, [B, T, H] -> logits [B, T, V]; of one row, [1, V] where the contract says so.

    `number`, int32 [1], chooses one of several heads for the only row; they lie as experts do, so one is read.
    """
    name, config, builder = part.config.family.contract.output, part.config, part.builder
    if number is None:
        flat = config.family.contract.flat_logits and normed.shape[:2] == (1, 1)
        rows = f"{name}.rows" if flat else name
        capped = config.logit_cap is not None
        logits = part.whole(
            f"{name}.uncapped" if capped else rows,
            part.shard.vocab.start,
            config.head_outputs,
            lambda name: part.linear(name, normed, roles.HEAD),
        )
        if capped:  # The norm before the head has divided by the cap.
            logits = builder.times(rows, builder.tanh(f"{name}.tanh", logits), roles.LOGIT_CAP)
        return builder.reshape(name, logits, (1, config.head_outputs)) if flat else logits
    scores = (1, 1, config.heads)
    assert normed.shape[:2] == (1, 1)
    chosen = builder.gather("head.chosen", builder.weight(roles.HEAD_NUMBERS), number, 0)
    ids, _ = builder.moe_route("head.route", builder.reshape("head.scores", chosen, scores), 1, "topk_softmax", False)
    logits = builder.moe_linear("head.logits", normed, ids, part.weight(roles.HEAD))
    return builder.reshape(name, logits, (1, 1, config.head_outputs))
