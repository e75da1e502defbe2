"""Attention of rows to each other in encoders, with products of computed matrices."""

from __future__ import annotations

from ..graphs.encoder_builder import EncoderBuilder
from ..graphs.values import Ref
from ..weights import encoder_roles as roles


def attend(
    builder: EncoderBuilder, here: str, qkv: tuple[Ref, Ref, Ref], key_mask: Ref | None, mask: Ref | None = None
) -> Ref:
    """q [N, T, heads, D], k and v [N, S, heads, D] -> [N, T, heads * D]: each row of axis 0 by itself.

    Args:
        builder: Of the graph.
        here: What names of values begin with.
        qkv: The scores are products of q and k as they are.
        key_mask: [1 or N, 1, 1, S], added to the scores.
        mask: [1, T, S], likewise.
    """
    number, tokens, heads, dim = qkv[0].shape
    q = builder.transpose(f"{here}.q_turned", qkv[0], (0, 2, 1, 3))
    k = builder.transpose(f"{here}.k_turned", qkv[1], (0, 2, 3, 1))
    v = builder.transpose(f"{here}.v_turned", qkv[2], (0, 2, 1, 3))
    if key_mask is not None:
        # One more column of q, ones, and one more row of k, the mask: the product adds it to the scores, which so need
        # not be kept.
        ones = builder.expand(f"{here}.ones", builder.weight(roles.ONE), (number, heads, tokens, 1))
        row = builder.expand(f"{here}.mask_row", key_mask, (number, heads, 1, k.shape[3]))
        q = builder.concat(f"{here}.q_masked", (q, ones), 3)
        k = builder.concat(f"{here}.k_masked", (k, row), 2)
    scores = builder.mat_mul(f"{here}.scores", q, k)
    if mask is not None:
        scores = builder.repeated(
            "Add", f"{here}.scores_masked", scores, builder.reshape(f"{here}.mask", mask, (1, *mask.shape))
        )
    mixed = builder.mat_mul(f"{here}.mixed", builder.softmax(f"{here}.shares", scores), v)
    turned = builder.transpose(f"{here}.mixed_turned", mixed, (0, 2, 1, 3))
    return builder.reshape(f"{here}.mixed_flat", turned, (number, tokens, heads * dim))
