"""Attention with turned keys, scaled by channel, as nodes of a network: what codecs and encoders of sounds share."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ..common.config_keys import KeyValues
from ..onnx.network_builder import Tensor, TensorNetwork

HIDDEN = -10000.0  # the score of a row that is not seen, as in the vendor's graphs
END = 1 << 30


def rotation(positions: int, depth: int, theta: float) -> tuple[Tensor, Tensor]:
    """cos and sin of so many positions, [positions, depth]."""
    angles = np.arange(positions)[:, None] / theta ** (np.arange(0, depth, 2) / depth)
    angles = np.concatenate((angles, angles), axis=1)
    return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)


class AttentionNetwork(TensorNetwork):
    """A network with layers of a transformer; `sizes` has their heads, the depth of one, and the window."""

    sizes: KeyValues

    def scaled(self, name: str, scale: str) -> NDArray[np.float32]:
        """A matrix times the scale of each channel behind it."""
        return self.tensor(f"{scale}.scale")[:, None] * self.tensor(f"{name}.weight")

    def attention(
        self, x: str, name: str, mask: str, tables: tuple[str, str], past: Sequence[str] | None, frames: int
    ) -> tuple[str, tuple[str, str]]:
        """Rows [1, frames, C] -> rows, and their keys and values with those of the past before them."""
        sizes, layer = self.sizes, name.rsplit(".", 1)[1]
        heads, depth = sizes["num_attention_heads"], sizes["head_dim"]

        def projected(part: str) -> str:
            y = self.linear(x, self.tensor(f"{name}.self_attn.{part}_proj.weight"))
            return self.op("Transpose", self.reshape(y, 1, frames, heads, depth), perm=[0, 2, 1, 3])

        q, k, v = (projected(part) for part in "qkv")
        q, k = (self._rotated(part, *tables) for part in (q, k))
        if past is not None:
            joined = (self.op("Concat", *pair, axis=2) for pair in zip(past, (k, v), strict=True))
            names = (f"next_key_{layer}", f"next_value_{layer}")
            window = sizes["sliding_window"]
            k, v = (self.part(whole, 2, -window, END, made) for whole, made in zip(joined, names, strict=True))
        scores = self.op("MatMul", q, self.op("Transpose", k, perm=[0, 1, 3, 2]))
        scores = self.op("Add", self.op("Mul", scores, self.constant(np.float32(1 / math.sqrt(depth)))), mask)
        y = self.op("MatMul", self.op("Softmax", scores, axis=-1), v)
        y = self.reshape(self.op("Transpose", y, perm=[0, 2, 1, 3]), 1, frames, heads * depth)
        return self.linear(y, self.scaled(f"{name}.self_attn.o_proj", f"{name}.self_attn_layer_scale")), (k, v)

    def _rotated(self, x: str, cos: str, sin: str) -> str:
        half = self.sizes["head_dim"] // 2
        first, second = self.part(x, 3, 0, half), self.part(x, 3, half, 2 * half)
        turned = self.op("Concat", self.op("Neg", second), first, axis=3)
        return self.op("Add", self.op("Mul", x, cos), self.op("Mul", turned, sin))
