"""AltUp, LAuReL and per-layer inputs of Gemma 3n: hidden states are several streams, of which blocks read one.

The streams of a token lie side by side, [1, T, streams * H]. `AltUpPredict` guesses all of them from what they were and
hands the first one to attention and MLP; `AltUpCorrect` corrects the others by how far the guess of the first one was
off.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..graphs.values import Ref
from ..model_config import ModelConfig
from ..weights import roles
from .part import GraphPart
from .per_layer import gated_inputs
from .weights import Weight

_LEAST_SQUARE = 1e-5  # of the mean square that a stream is divided by the root of, as in transformers
_LEAST_FP16 = 2.0**-24


def constants(config: ModelConfig) -> Iterator[tuple[str, float]]:
    """Yields numbers that the blocks multiply by or add, if the model has streams."""
    if config.streams > 1:
        yield roles.ALTUP_ONE, 1.0
        yield roles.ALTUP_ROUTER_SCALE, 1 / config.hidden_size
        yield roles.ALTUP_ROW_SCALE, config.hidden_size**-0.5
        yield roles.ALTUP_SHARE, 1 / config.streams
        yield roles.ALTUP_LEAST, max(_LEAST_SQUARE * config.residual_scale**2, _LEAST_FP16)
        yield roles.LAUREL_STATE_SCALE, config.residual_scale
        yield roles.LAUREL_SCALE, 0.5**0.5


def stream_weights(config: ModelConfig) -> Iterator[Weight]:
    """Yields those of the Linears that make streams of embeddings, and one row of them behind the layers."""
    if config.streams > 1:
        hidden, others = config.hidden_size, config.streams - 1
        yield Weight(roles.ALTUP_IN, (hidden,) * others, hidden)
        yield Weight(roles.ALTUP_OUT, (hidden,), hidden, experts=others)


def lower_streams(part: GraphPart, x: Ref) -> Ref:
    """Embeddings [1, T, H] -> [1, T, streams * H]: they, and Linears of them with as large a mean square."""
    config = part.config
    rows = (*x.shape[:2], config.streams - 1, config.hidden_size)
    others = part.builder.reshape("streams.others", part.linear("streams.in", x, roles.ALTUP_IN), rows)
    sized = _as_large_as(part, "streams", others, x)
    return part.builder.concat("streams", (x, part.builder.reshape("streams.sized", sized, _flat(sized))), 2)


def join_streams(part: GraphPart, x: Ref) -> Ref:
    """[1, T, streams * H] -> [1, T, H]: the mean of the first, and of Linears of the others that are as large."""
    builder, config = part.builder, part.config
    hidden = config.hidden_size
    first = builder.part("joined.first", x, 2, 0, hidden)
    others = builder.part("joined.rest", x, 2, hidden, x.shape[2])
    others = builder.reshape("joined.others", others, (*x.shape[:2], config.streams - 1, hidden))
    others = _as_large_as(
        part, "joined", builder.head_linear("joined.out", others, part.weight(roles.ALTUP_OUT)), first
    )
    total = first
    for stream in range(config.streams - 1):
        part_of = builder.part(f"joined.stream{stream}", others, 2, stream, stream + 1)
        total = builder.add(f"joined.sum{stream}", total, builder.reshape(f"joined.row{stream}", part_of, first.shape))
    return builder.times("joined", total, roles.ALTUP_SHARE)


def _as_large_as(part: GraphPart, here: str, others: Ref, first: Ref) -> Ref:
    """[1, T, n, H] with the root of the mean square of each row as that of `first`, [1, T, H]."""
    builder = part.builder
    least = builder.weight(roles.ALTUP_LEAST)
    wanted = builder.function("Sqrt", f"{here}.wanted", _mean_square(part, f"{here}.first", first))
    wanted = builder.reshape(f"{here}.wanted_rows", wanted, (*first.shape[:2], 1, 1))
    found = builder.repeated("Max", f"{here}.at_least", _mean_square(part, f"{here}.each", others), least)
    factors = builder.repeated("Div", f"{here}.factors", wanted, builder.function("Sqrt", f"{here}.found", found))
    return builder.repeated("Mul", f"{here}.large", others, factors)


def _mean_square(part: GraphPart, here: str, x: Ref) -> Ref:
    """[.., H] -> [.., 1]; the sum of squares of H elements could be beyond fp16."""
    scaled = part.builder.times(f"{here}.scaled", x, roles.ALTUP_ROW_SCALE)
    return part.builder.function_of_rows("ReduceSumSquare", f"{here}.square", scaled)


def _flat(x: Ref) -> tuple[int, int, int]:
    return x.shape[0], x.shape[1], x.shape[2] * x.shape[3]


def _modalities(part: GraphPart, here: str, x: Ref, layer: int) -> Ref:
    """[1, T, H] -> [1, T, 1, streams]."""
    normed = part.norm_of_hidden(f"{here}.norm", x, roles.ALTUP_NORM, layer)
    routed = part.linear(f"{here}.router", normed, roles.ALTUP_ROUTER, layer)
    scaled = part.builder.times(f"{here}.scaled", routed, roles.ALTUP_ROUTER_SCALE)
    found = part.builder.function("Tanh", f"{here}.modalities", scaled)
    return part.builder.reshape(f"{here}.modalities_row", found, (*found.shape[:2], 1, part.config.streams))


def _coefficients(part: GraphPart, here: str, modalities: Ref, role: roles.Role, layer: int) -> Ref:
    """[1, T, 1, streams] -> [1, T, n, 1], by a matrix [n, streams]."""
    matrix = part.builder.weight(part.weight(role, layer))
    products = part.builder.repeated("Mul", f"{here}.products", modalities, matrix)
    return part.builder.function_of_rows("ReduceSum", f"{here}.coefficients", products)


@dataclass(frozen=True, slots=True)
class AltUpPredict:
    """Each stream plus a sum of all, by coefficients of the first one; hands on the first."""

    def weights(self, config: ModelConfig) -> Iterator[Weight]:
        """Yields the router, which `AltUpCorrect` uses too, and the coefficients."""
        count = config.streams
        yield Weight(roles.ALTUP_NORM, (config.hidden_size,))
        yield Weight(roles.ALTUP_ROUTER, (count,), config.hidden_size)
        yield Weight(roles.ALTUP_PREDICT, (count,), sections=(count * count,))

    def lower(self, part: GraphPart, x: Ref, layer: int, residual: str) -> Ref:
        """[1, T, streams * H] -> the first stream's guess, [1, T, H]; other arguments as `Attention.lower`."""
        builder, config, here = part.builder, part.config, f"layers.{layer}.predict"
        count, hidden = config.streams, config.hidden_size
        first = builder.part(f"{here}.first", x, 2, 0, hidden)
        modalities = _modalities(part, here, first, layer)
        found = _coefficients(part, here, modalities, roles.ALTUP_PREDICT, layer)
        matrix = builder.reshape(f"{here}.matrix", found, (*x.shape[:2], count, count))
        streams = builder.reshape(f"{here}.streams", x, (*x.shape[:2], count, hidden))
        sums = builder.mat_mul_each(f"{here}.sums", matrix, streams)
        guesses = builder.add(f"{here}.guesses", sums, streams)
        part.streams[layer] = builder.reshape(f"{here}.flat", guesses, x.shape)
        return builder.part(residual, part.streams[layer], 2, 0, hidden)


@dataclass(frozen=True, slots=True)
class Laurel:
    """LAuReL: what attention reads, normalised, and two Linears of it, normalised, are added to what it gives, and the
    sum is divided by the root of 2.

    Attributes:
        rank: Of the two Linears.
    """

    rank: int

    def weights(self, config: ModelConfig) -> Iterator[Weight]:
        yield Weight(roles.LAUREL_DOWN, (self.rank,), config.hidden_size)
        yield Weight(roles.LAUREL_UP, (config.hidden_size,), self.rank)
        yield Weight(roles.LAUREL_NORM, (config.hidden_size,), scale=config.residual_scale)

    def lower(self, part: GraphPart, x: Ref, layer: int, residual: str) -> Ref:
        """Adds the block to a graph; arguments as `Attention.lower`. Returns what has the shape of `x`."""
        builder, here = part.builder, f"layers.{layer}.laurel"
        normed = part.normed_before(f"{here}.row", x, layer)
        down = part.linear(f"{here}.down", normed, roles.LAUREL_DOWN, layer)
        up = part.linear(f"{here}.up", down, roles.LAUREL_UP, layer)
        learned = part.norm(f"{here}.norm", up, roles.LAUREL_NORM, layer)
        own = builder.add(f"{here}.own", builder.times(f"{here}.states", normed, roles.LAUREL_STATE_SCALE), learned)
        return builder.times(residual, builder.add(f"{here}.sum", x, own), roles.LAUREL_SCALE)


@dataclass(frozen=True, slots=True)
class AltUpCorrect:
    """Each guess plus a share of how far the first one was off; then the layer's inputs, added to all but the first.

    Attributes:
        scaled: The corrected first stream, of which the gate of these inputs is made, is multiplied by a weight.
    """

    scaled: bool = True

    def weights(self, config: ModelConfig) -> Iterator[Weight]:
        yield Weight(roles.ALTUP_CORRECT, (config.streams,), sections=(config.streams,))
        if self.scaled:
            yield Weight(roles.ALTUP_CORRECTED, (config.hidden_size,))
        # The gate is of hidden states as the checkpoint has them.
        yield Weight(
            roles.LAYER_INPUT_GATE, (config.layer_inputs,), config.hidden_size, scale=1 / config.residual_scale
        )
        yield Weight(roles.LAYER_INPUT_OUT, (config.hidden_size,), config.layer_inputs)
        yield Weight(roles.LAYER_INPUT_NORM, (config.hidden_size,), scale=config.residual_scale)

    def lower(self, part: GraphPart, x: Ref, layer: int, residual: str) -> Ref:
        """[1, T, H] -> [1, T, streams * H]; other arguments as `Attention.lower`."""
        builder, config, here = part.builder, part.config, f"layers.{layer}.correct"
        count, hidden, rows = config.streams, config.hidden_size, x.shape[:2]
        guesses = part.streams[layer]
        if guesses.shape[:2] != rows:  # behind the model's last attention, where one row is left
            assert part.kept_row is not None
            guesses = builder.last_row(f"{here}.row", guesses, part.kept_row)
        off = builder.sub(f"{here}.off", x, builder.part(f"{here}.guess", guesses, 2, 0, hidden))
        found = _coefficients(part, here, _modalities(part, here, x, layer), roles.ALTUP_CORRECT, layer)
        shares = builder.repeated("Add", f"{here}.shares", found, builder.weight(roles.ALTUP_ONE))
        moved = builder.repeated(
            "Mul", f"{here}.moved", builder.reshape(f"{here}.offs", off, (*rows, 1, hidden)), shares
        )
        corrected = builder.add(f"{here}.streams", builder.reshape(f"{here}.flat", moved, guesses.shape), guesses)
        first = builder.part(f"{here}.first", corrected, 2, 0, hidden)
        scaled = first
        if self.scaled:
            scaled = builder.times(f"{here}.scaled_first", first, part.weight(roles.ALTUP_CORRECTED, layer))
        added = builder.reshape(f"{here}.inputs", gated_inputs(part, scaled, layer), (*rows, 1, hidden))
        others = builder.part(f"{here}.rest", corrected, 2, hidden, count * hidden)
        others = builder.reshape(f"{here}.others", others, (*rows, count - 1, hidden))
        others = builder.repeated("Add", f"{here}.added", others, added)
        return builder.concat(residual, (first, builder.reshape(f"{here}.others_flat", others, _flat(others))), 2)
