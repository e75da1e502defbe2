"""The ends of a model: what its input goes through first, final norm, logits, rows for a model of speech."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ..graphs.values import Ref
from ..model_config import ModelConfig
from ..weights import roles
from .conditioned import norm_weights
from .mixed_input import lower_mixed_input, mixed_input_weights
from .part import GraphPart
from .positions import lower_positions, position_weights
from .weights import Weight

_LEAST_SQUARE = 1e-24  # as in torch's normalize


def input_weights(config: ModelConfig) -> Iterator[Weight]:
    """Yields those of the Linear that makes hidden states of the input, and of learned positions, if there are any."""
    yield from mixed_input_weights(config)
    if config.input_size is not None:
        yield Weight(roles.INPUT_PROJECTION, (config.hidden_size,), config.input_size)
        if _has_input_bias(config):
            yield Weight(roles.INPUT_PROJECTION_BIAS, (config.hidden_size,))
    yield from position_weights(config)


def head_weights(config: ModelConfig, *, head: bool = True, norm: bool = True) -> Iterator[Weight]:
    """Yields those of the final norm and the head, as far as there are any, in the order of use."""
    scale = config.logit_scale / (config.logit_cap or 1.0)
    if norm and config.final_norm:
        yield from norm_weights(config, roles.FINAL_NORM, scale if head else 1.0)
    if head and config.output_size is not None:
        yield Weight(roles.OUTPUT_PROJECTION, (config.output_size,), config.hidden_size)
    if head:
        rows: tuple[int, ...] = (config.head_outputs,)
        chosen = config.family.contract.head_number is not None
        if config.heads > 1 and not chosen:
            rows *= config.heads
        yield Weight(
            roles.HEAD,
            rows,
            config.output_size or config.hidden_size,
            experts=config.heads if chosen else None,
            scale=1.0 if config.norm_weight else scale,  # which else the weight of the norm takes
        )
        if config.head_bias:
            yield Weight(roles.HEAD_BIAS, rows, scale=scale)
    if (width := config.speaker_size) is not None:
        for pair, inputs in zip(roles.SPEAKER, (config.hidden_size, width), strict=True):
            yield Weight(pair[0], (width,), inputs)
            yield Weight(pair[1], (width,))


def lower_input(part: GraphPart, x: Ref, given: Mapping[str, Ref]) -> Ref:
    """The graph's input, and by role what it has of each row -> hidden states."""
    if part.config.source_size is not None:
        return lower_mixed_input(part, x, given)
    if part.config.input_size is not None:
        bias = roles.INPUT_PROJECTION_BIAS if _has_input_bias(part.config) else None
        x = part.linear("input_projection", x, roles.INPUT_PROJECTION, bias=bias)
    if part.config.input_norm:
        x = part.builder.rms_norm("input_norm", x, roles.ones(x.shape[-1]), part.config.rms_norm_eps)
    return x if part.config.positions is None else lower_positions(part, x)


def _has_input_bias(config: ModelConfig) -> bool:
    return roles.INPUT_PROJECTION_BIAS in config.family.tensors


def lower_head(
    part: GraphPart, normed: Ref, number: Ref | None = None, mask: Ref | None = None, *, name: str | None = None
) -> Ref:
    """What the final norm gives, [B, T, H] -> logits [B, T, V]; of one row, [1, V] where the contract says so.

    `number`, int32 [1], chooses one of several heads for the only row; they lie as experts do, so one is read. Without
    it several heads make [B, T, V, heads], or with `mask`, [1, T, heads, 1], the sum of each times its number. They are
    called as the contract says, or `name`.
    """
    name, config, builder = name or part.config.family.contract.output, part.config, part.builder
    if config.output_size is not None:
        normed = part.linear("output_projection", normed, roles.OUTPUT_PROJECTION)
    if number is None and config.heads > 1:
        side_by_side = part.linear(f"{name}.flat", normed, roles.HEAD)
        apart = builder.reshape(f"{name}.heads", side_by_side, (*normed.shape[:2], config.heads, config.head_outputs))
        if mask is None:
            return builder.transpose(name, apart, (0, 1, 3, 2))
        counts = builder.reshape(f"{name}.counts", mask, mask.shape[:3])
        if part.kept_row is not None:
            counts = builder.last_row(f"{name}.counts_row", counts, part.kept_row)
        return builder.moe_combine(name, apart, counts)
    if number is None:
        flat = config.family.contract.flat_logits and normed.shape[:2] == (1, 1)
        rows = f"{name}.rows" if flat else name
        capped = config.logit_cap is not None
        logits = part.whole(
            f"{name}.uncapped" if capped else rows,
            part.shard.vocab.start,
            config.head_outputs,
            lambda name: part.linear(name, normed, roles.HEAD, bias=roles.HEAD_BIAS if config.head_bias else None),
        )
        if capped:  # The norm before the head, or the head, has divided by the cap.
            logits = builder.times(rows, builder.function("Tanh", f"{name}.tanh", logits), roles.LOGIT_CAP)
        return builder.reshape(name, logits, (1, config.head_outputs)) if flat else logits
    scores = (1, 1, config.heads)
    assert normed.shape[:2] == (1, 1)
    chosen = builder.gather("head.chosen", builder.weight(roles.HEAD_NUMBERS), number, 0)
    ids, _ = builder.moe_route("head.route", builder.reshape("head.scores", chosen, scores), 1, "topk_softmax", False)
    logits = builder.moe_linear("head.logits", normed, ids, part.weight(roles.HEAD))
    return builder.reshape(name, logits, (1, 1, config.head_outputs))


def lower_speaker(part: GraphPart, normed: Ref) -> Ref:
    """What the final norm gives, [1, T, H] -> rows of length 1 for a model of speech, [1, T, speaker_size]."""
    builder, (first, second) = part.builder, roles.SPEAKER
    x = builder.function("Relu", "speaker.bent", part.linear("speaker.up", normed, first[0], bias=first[1]))
    x = part.linear("speaker.down", x, second[0], bias=second[1])
    return builder.rms_norm(part.config.family.contract.hidden, x, roles.SPEAKER_UNIT, _LEAST_SQUARE)
