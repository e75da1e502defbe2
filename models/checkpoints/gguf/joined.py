"""Tensors of a Hugging Face checkpoint that a GGUF file has in several.

Of latent attention, a checkpoint has the rows for the keys of a head and then for its values, head by head; a file has
a tensor of the keys [heads, latent, keys], turned, and one of the values [heads, values, latent]. Of the linear
attention of Qwen3-Next, a checkpoint has q, k, values and gates of each head of keys side by side; a file has all q,
all k and all values in one tensor, and the gates in another. Else the tensors are one below the other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ...common.errors import CheckpointError


class Part(NamedTuple):
    """Rows of a tensor of the file, counted over its outer axes; `turned` ones are columns of the checkpoint's."""

    own: str
    first: int
    rows: int
    turned: bool = False


def parts_of(
    name: str, own: Sequence[str], shape: Callable[[str], Sequence[int]], config: Callable[[], Mapping[str, Any]]
) -> list[Part]:
    """Returns what lies one below the other in a tensor of the checkpoint.

    Args:
        name: Of the tensor, in the checkpoint.
        own: Names of the file's tensors.
        shape: Returns that of a tensor of the file.
        config: Returns what `config.json` would say.

    Raises:
        CheckpointError: The tensors do not fit each other or the config.
    """
    shapes = [tuple(shape(each)) for each in own]
    if name.endswith(".kv_b_proj.weight"):
        keys, values = shapes
        if len(keys) != 3 or len(values) != 3 or keys[0] != values[0] or keys[1] != values[2]:
            raise CheckpointError(
                f"{own[0]!r} has shape {list(keys)} and {own[1]!r} {list(values)}, expected heads, latent, keys and "
                "heads, values, latent"
            )
        return [
            part
            for head in range(keys[0])
            for part in (Part(own[0], head * keys[1], keys[1], True), Part(own[1], head * values[1], values[1]))
        ]
    if name.endswith(".in_proj_qkvz.weight"):
        return _by_heads_of_keys(own, shapes, config())
    return [Part(each, 0, rows[0]) for each, rows in zip(own, shapes, strict=True)]


def _by_heads_of_keys(own: Sequence[str], shapes: Sequence[Sequence[int]], config: Mapping[str, Any]) -> list[Part]:
    heads, keys = config["linear_num_key_heads"], config["linear_key_head_dim"]
    each = config["linear_num_value_heads"] // heads * config["linear_value_head_dim"]
    expected = [heads * (2 * keys + each), heads * each]
    if [rows[0] for rows in shapes] != expected:
        raise CheckpointError(
            f"{own[0]!r} and {own[1]!r} have {[rows[0] for rows in shapes]} rows, expected {expected} by the metadata"
        )
    return [
        part
        for head in range(heads)
        for part in (
            Part(own[0], head * keys, keys),
            Part(own[0], (heads + head) * keys, keys),
            Part(own[0], 2 * heads * keys + head * each, each),
            Part(own[1], head * each, each),
        )
    ]
