"""The order of heads in a GGUF file, where it is another than in a Hugging Face checkpoint.

Of linear attention, a Hugging Face checkpoint has the heads of values that share a head of keys side by side; llama.cpp
has the first of each head of keys, then the second of each, and so on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

_LAYER = "linear_attn."
# Tensors by whether a head of values has several rows in them, and those whose rows for q and k come before.
_OF_VALUES, _OF_HEADS = ("in_proj_z.weight",), ("in_proj_a.weight", "in_proj_b.weight", "A_log", "dt_bias")
_BEHIND_KEYS = ("in_proj_qkv.weight", "conv1d.weight")
_BY_COLUMNS = ("out_proj.weight",)


class Order(NamedTuple):
    """Where the rows and the columns of a tensor are in the file; None: in their places."""

    rows: NDArray[np.int64] | None = None
    columns: NDArray[np.int64] | None = None


def order_of_heads(name: str, config: Mapping[str, Any]) -> Order:
    """Where q, k and v of each head are, which a Hugging Face checkpoint has head by head."""
    if ".query_key_value." not in name:
        return Order()
    rows = np.arange(3 * config["hidden_size"]).reshape(3, config["num_attention_heads"], -1)
    return Order(rows.swapaxes(0, 1).reshape(-1))


def order_of(name: str, config: Mapping[str, Any]) -> Order:
    """Returns that of a tensor, by its name in a Hugging Face checkpoint and the sizes of `config.json`."""
    _, found, what = name.partition(_LAYER)
    if not found:
        return Order()
    keys, heads = config["linear_num_key_heads"], config["linear_num_value_heads"]
    at = np.arange(heads)
    places = at % (heads // keys) * keys + at // (heads // keys)  # of heads
    each = config["linear_value_head_dim"]
    rows = (places[:, None] * each + np.arange(each)).reshape(-1)
    if what in _OF_HEADS:
        return Order(places)
    if what in _OF_VALUES:
        return Order(rows)
    if what in _BEHIND_KEYS:
        before = 2 * keys * config["linear_key_head_dim"]
        return Order(np.concatenate([np.arange(before), before + rows]))
    return Order(None, rows) if what in _BY_COLUMNS else Order()


def halves(rows: NDArray[np.float32], heads: int) -> NDArray[np.float32]:
    """Heads whose rows alternate between first and second half -> one half after the other. [rows, K]."""
    pairs = rows.reshape(heads, -1, 2, rows.shape[1])
    return pairs.swapaxes(1, 2).reshape(rows.shape)
