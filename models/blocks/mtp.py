"""Multi-token prediction: a layer that guesses the token after next from a hidden state and the next token."""

from __future__ import annotations

from collections.abc import Iterator

from ..graphs.values import Ref
from ..model_config import ModelConfig
from ..weights import roles
from .part import GraphPart
from .weights import Weight

POST_NORM_HIDDEN = "post_norm_hidden"  # what the final norm of the model gives, as its output and as the layer's input


def mtp_weights(config: ModelConfig) -> Iterator[Weight]:
    """Yields its weights in the order of use, beside those of its layer's blocks."""
    hidden = config.hidden_size
    yield Weight(roles.MTP_EMBEDDING_NORM, (hidden,))
    yield Weight(roles.MTP_HIDDEN_NORM, (hidden,))
    yield Weight(roles.MTP_JOIN, (hidden,), 2 * hidden)
    yield Weight(roles.MTP_FINAL_NORM, (hidden,), scale=config.logit_scale)


def lower_mtp(part: GraphPart, embedding: Ref, hidden: Ref) -> Ref:
    """What the layer's final norm gives, [1, T, H].

    Args:
        part: The graph.
        embedding: Of the token after each one, [1, T, H].
        hidden: What the final norm of the model, or of this layer, gave for each token, [1, T, H].
    """
    beside = part.builder.concat(
        "mtp.beside",
        [
            part.norm("mtp.embedding_norm", embedding, roles.MTP_EMBEDDING_NORM),
            part.norm("mtp.hidden_norm", hidden, roles.MTP_HIDDEN_NORM),
        ],
        2,
    )
    x = part.linear("mtp.join", beside, roles.MTP_JOIN)
    (layer,) = part.layers
    for number, block in enumerate(part.config.blocks(layer)):
        x = block.lower(part, x, layer, f"mtp.add_{number}")
    return part.norm("post_norm_out", x, roles.MTP_FINAL_NORM)
