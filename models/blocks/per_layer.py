"""Per-layer inputs: each layer adds what a table of its own has of the token, and what the embedding has for it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..graphs.values import Ref
from ..model_config import ModelConfig
from ..weights import roles
from .part import GraphPart
from .weights import Weight


@dataclass(frozen=True, slots=True)
class PerLayerInput:
    """Gate, GELU, product with this layer's inputs, projection, norm, residual add."""

    def weights(self, config: ModelConfig) -> Iterator[Weight]:
        yield Weight(roles.LAYER_INPUT_GATE, (config.layer_inputs,), config.hidden_size)
        yield Weight(roles.LAYER_INPUT_OUT, (config.hidden_size,), config.layer_inputs)
        yield Weight(roles.LAYER_INPUT_NORM, (config.hidden_size,))

    def lower(self, part: GraphPart, x: Ref, layer: int, residual: str) -> Ref:
        """Adds the block to a graph; arguments as `Attention.lower`. Returns what has the shape of `x`."""
        return part.builder.add(residual, x, gated_inputs(part, x, layer))


def gated_inputs(part: GraphPart, x: Ref, layer: int) -> Ref:
    """What is added to hidden states of a layer, by a gate of rows `x`, [1, T, H], which it has the shape of."""
    builder, size, here = part.builder, part.config.layer_inputs, f"layers.{layer}.per_layer"
    assert part.layer_inputs is not None
    inputs = builder.slice(f"{here}.inputs", part.layer_inputs, layer * size, (layer + 1) * size)
    if inputs.shape[:2] != x.shape[:2]:  # behind the model's last attention, where one row is left
        assert part.kept_row is not None
        inputs = builder.last_row(f"{here}.row", inputs, part.kept_row)
    gate = builder.function("GeluTanh", f"{here}.gelu", part.linear(f"{here}.gate", x, roles.LAYER_INPUT_GATE, layer))
    out = part.linear(f"{here}.out", builder.mul(f"{here}.product", gate, inputs), roles.LAYER_INPUT_OUT, layer)
    # The inputs are sqrt(2) times those of the checkpoint's arithmetic, which the norm takes out again.
    epsilon = 2 * part.config.rms_norm_eps
    return builder.rms_norm(f"{here}.norm", out, part.weight(roles.LAYER_INPUT_NORM, layer), epsilon)


def layer_input_weights(config: ModelConfig) -> Iterator[Weight]:
    """Yields those of all layers together, if there are any."""
    if config.layer_inputs:
        yield Weight(roles.LAYER_INPUTS, (config.num_layers * config.layer_inputs,), config.hidden_size)
        yield Weight(roles.LAYER_INPUTS_NORM, (config.layer_inputs,))


def lower_layer_inputs(part: GraphPart, embeddings: Ref, tokens: Ref) -> Ref:
    """Embeddings [1, T, H], and what the tables have of the tokens [1, T, layers, size] -> [1, T, layers * size]."""
    builder, config = part.builder, part.config
    flat = part.linear("per_layer.projection", embeddings, roles.LAYER_INPUTS)
    by_layer = builder.reshape("per_layer.heads", flat, tokens.shape)
    # The norm takes out the factor 1 / sqrt(H) of the checkpoint's arithmetic, and the scale of hidden states.
    epsilon = config.rms_norm_eps * config.hidden_size * config.residual_scale**2
    normed = builder.rms_norm("per_layer.norm", by_layer, part.weight(roles.LAYER_INPUTS_NORM), epsilon)
    return builder.reshape("per_layer.inputs", builder.add("per_layer.sum", normed, tokens), flat.shape)
