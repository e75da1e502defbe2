"""The weights of a language model: what its blocks need, and its tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ..blocks.altup import stream_weights
from ..blocks.head import head_weights, input_weights
from ..blocks.mtp import mtp_weights
from ..blocks.per_layer import layer_input_weights
from ..blocks.specs import specs_of, table_spec
from ..blocks.weights import Weight
from ..common.profiles import Profile
from ..family import Tensors
from ..model_config import ModelConfig
from ..weights import roles
from ..weights.spec import LinearSpec, VectorSpec


def weight_specs(
    config: ModelConfig,
    profile: Profile,
    *,
    mtp: bool = False,
    head: bool = True,
    norm: bool = True,
    assisted: bool = False,
) -> list[LinearSpec | VectorSpec]:
    """Returns all weights in the order of the package, RoPE tables and embedding aside.

    With `mtp` the layer of multi-token prediction is one more layer behind the model's last; without `head` graphs
    return hidden states, and without `norm` those before the final norm; `assisted` ones return them for an assistant.

    Raises:
        CompileError: A quantised weight whose inputs are not a multiple of 64.
    """
    tensors = config.family.tensors
    specs = specs_of(
        [*input_weights(config), *stream_weights(config), *layer_input_weights(config)], tensors, profile, None
    )
    for layer in range(config.num_layers + mtp):
        weights = [weight for block in config.blocks(layer) for weight in block.weights(config)]
        # The biases of a layer are stored behind its other weights.
        ordered = sorted(weights, key=lambda weight: weight.role.kind == "bias")
        specs += specs_of(ordered, tensors if layer < config.num_layers else _of_mtp(tensors), profile, layer)
    if mtp:
        specs += specs_of(mtp_weights(config), tensors, profile, None)
    if assisted and config.logit_cap is not None:
        own = {roles.HIDDEN_NORM: tensors[roles.FINAL_NORM]}
        specs += specs_of([Weight(roles.HIDDEN_NORM, (config.hidden_size,))], own, profile, None)
    tied = tensors[roles.EMBEDDING].names if config.tie_word_embeddings else ()
    return specs + specs_of(head_weights(config, head=head, norm=norm), tensors, profile, None, tied)


def _of_mtp(tensors: Mapping[roles.Role, Tensors]) -> dict[roles.Role, Tensors]:
    """Where the weights of the MTP layer come from: tensors that are called like those of layer 0."""
    return {
        role: replace(
            source, names=tuple("mtp." + name.removeprefix("model.").replace("{layer}", "0") for name in source.names)
        )
        for role, source in tensors.items()
    }


def layer_table_spec(config: ModelConfig) -> LinearSpec:
    """Returns the table of what layers take of each token, [V, layers * size]; it goes into a file of its own."""
    shape = (config.flags["vocab_size_per_layer_input"], config.num_layers * config.layer_inputs)
    return table_spec(roles.LAYER_TABLE, config.family.tensors, shape)


def embedding_spec(config: ModelConfig) -> LinearSpec:
    """Returns the embedding as a matrix [V, H]; likewise."""
    names = config.family.tensors[roles.EMBEDDING]
    shape = config.table_shape
    return LinearSpec(
        role=roles.EMBEDDING,
        layer=None,
        format="linear_f16",
        shape=shape,
        tensors=tuple(name for head in range(config.heads) for name in names.of(None, head)),
        tensor_shapes=((config.vocab_size, shape[1]),) * config.heads,
    )
