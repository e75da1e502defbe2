"""Blocks of the codecs of Qwen3-TTS and Qwen3-Omni as nodes of a network, with their tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .attention_network import HIDDEN, AttentionNetwork
from .codec_config import CodecConfig

_LEAST_USAGE, _LEAST_BETA = 1e-5, 1e-9


class CodecNetwork(AttentionNetwork):
    """Blocks of a codec; `name` of a block is that of its tensors, below the prefix."""

    def __init__(self, codec: CodecConfig, name: str) -> None:
        super().__init__(name, lambda tensor: codec.tensors.read(f"{codec.prefix}{tensor}"))
        self._codec = self.sizes = codec

    def row_of(self, table: NDArray[Any], at: str) -> str:
        """Rows of a table at int32 [1]; a number behind it is its last row."""
        return self.op("Squeeze", self.op("Gather", self.constant(table), at), self.constant(np.array([0], np.int64)))

    def quantised(self, codes: str) -> str:
        """Codes [1, groups, T] -> [1, C, T]: the sum of their rows, each book times the projection behind it."""
        found = []
        for group in range(self._codec["num_quantizers"]):
            part = self._codec.part_of(group)
            book = f"quantizer.{part}._codebook"
            usage = np.maximum(self.tensor(f"{book}.cluster_usage"), _LEAST_USAGE)
            projection = self.tensor(f"quantizer.{part.split('.')[0]}.output_proj.weight")[..., 0]
            table = self.tensor(f"{book}.embedding_sum") / usage[:, None] @ projection.T
            own = self.op("Gather", codes, self.constant(np.array(group, np.int64)), axis=1)
            found.append(self.op("Gather", self.constant(table), own))
        return self.transposed(self.op("Sum", *found))

    def embedded(self, codes: str) -> str:
        """Codes [1, groups, T] -> rows [1, T, C]: the mean of theirs in one table, which has a part for each group."""
        groups, size = self._codec["num_quantizers"], self._codec["codebook_size"]
        first = np.arange(groups, dtype=np.int32)[None, :, None] * np.int32(size)
        table = self.constant(self.tensor("code_embedding.weight"))
        rows = self.op("Gather", table, self.op("Add", codes, self.constant(first)))
        return self.op("ReduceMean", rows, self.constant(np.array([1], np.int64)), keepdims=0)

    def conv(self, x: str, name: str, dilation: int = 1, groups: int = 1, *, padded: bool = True) -> str:
        """A convolution that sees what is before it."""
        weight = self.tensor(f"{name}.weight")
        past = (weight.shape[2] - 1) * dilation if padded else 0
        operands = (x, self.constant(weight), self.constant(self.tensor(f"{name}.bias")))
        return self.op("Conv", *operands, pads=[past, 0], dilations=[dilation], group=groups)

    def up(self, x: str, name: str, rate: int) -> str:
        """A transposed convolution without what lies behind the last input, or before the first."""
        weight = self.tensor(f"{name}.weight")
        operands = (x, self.constant(weight), self.constant(self.tensor(f"{name}.bias")))
        more = weight.shape[2] - rate
        return self.op("ConvTranspose", *operands, strides=[rate], pads=[more if self._codec.ahead else 0, more])

    def snake(self, x: str, name: str) -> str:
        """x + sin(a x)^2 / b, a and b of each channel."""
        alpha, beta = (np.exp(self.tensor(f"{name}.{part}"))[None, :, None] for part in ("alpha", "beta"))
        turned = self.op("Sin", self.op("Mul", x, self.constant(alpha)))
        square = self.op("Mul", turned, turned)
        return self.op("Add", x, self.op("Mul", square, self.constant(1 / (beta + _LEAST_BETA))))

    def convnext(self, x: str, name: str) -> str:
        y = self.conv(x, f"{name}.dwconv.conv", groups=self._codec["latent_dim"])
        return self.op("Add", x, self.widened(y, name, "gamma"))

    def sound(self, x: str, result: str) -> str:
        """Rows [1, C, T] -> samples [1, 1, n]."""
        codec = self._codec
        for index, ratio in enumerate(codec["upsampling_ratios"]):
            x = self.convnext(self.up(x, f"upsample.{index}.0.conv", ratio), f"upsample.{index}.1")
        x = self.conv(x, "decoder.0.conv")
        for index, rate in enumerate(codec["upsample_rates"], 1):
            here = f"decoder.{index}.block"
            x = self.up(self.snake(x, f"{here}.0"), f"{here}.1.conv", rate)
            for number, dilation in enumerate((1, 3, 9), 2):
                unit = f"{here}.{number}"
                y = self.conv(self.snake(x, f"{unit}.act1"), f"{unit}.conv1.conv", dilation)
                x = self.op("Add", x, self.conv(self.snake(y, f"{unit}.act2"), f"{unit}.conv2.conv"))
        last = len(codec["upsample_rates"]) + 1
        x = self.conv(self.snake(x, f"decoder.{last}"), f"decoder.{last + 1}.conv")
        return self.op("Clip", x, self.constant(np.float32(-1)), self.constant(np.float32(1)), result=result)

    def seen(self, valid: str, frames: int) -> str:
        """The mask [frames, window] of a chunk behind `valid` frames, of which the cache has the last ones."""
        window = self._codec["sliding_window"]
        keys = np.arange(window)
        ahead = keys > np.arange(frames)[:, None] + window - frames
        unwritten = np.arange(window + 1)[:, None] + frames - window + keys < 0
        tables = (self.constant(np.where(ahead, HIDDEN, 0.0)), self.row_of(np.where(unwritten, HIDDEN, 0.0), valid))
        return self.op("Add", *tables)

    def turned(self, valid: str, frames: int) -> tuple[str, str]:
        """cos and sin of the frames behind `valid` others."""
        tables = self._codec.rotation(self._codec["sliding_window"] + frames)
        at = self.op("Add", valid, self.constant(np.arange(frames, dtype=np.int32)))
        cos, sin = (self.op("Gather", self.constant(table), at) for table in tables)
        return cos, sin

    def transformer(
        self, x: str, mask: str, tables: tuple[str, str], past: Sequence[Sequence[str]] | None, frames: int
    ) -> tuple[str, list[tuple[str, str]]]:
        """Rows [1, T, C] -> rows, and the keys and values of each layer with those of the past before them."""
        here, codec = "pre_transformer", self._codec
        if not codec.embedded:
            x = self.linear(x, *(self.tensor(f"{here}.input_proj.{part}") for part in ("weight", "bias")))
        caches = []
        for layer in range(codec["num_hidden_layers"]):
            name = f"{here}.layers.{layer}"
            y = self._norm(x, f"{name}.input_layernorm")
            y, cache = self.attention(y, name, mask, tables, None if past is None else [p[layer] for p in past], frames)
            x = self.op("Add", x, y)
            caches.append(cache)
            y = self._norm(x, f"{name}.post_attention_layernorm")
            gate, up = (self.linear(y, self.tensor(f"{name}.mlp.{part}_proj.weight")) for part in ("gate", "up"))
            y = self.op("Mul", self.op("Mul", gate, self.op("Sigmoid", gate)), up)
            x = self.op("Add", x, self.linear(y, self.scaled(f"{name}.mlp.down_proj", f"{name}.mlp_layer_scale")))
        x = self._norm(x, f"{here}.norm")
        if not codec.embedded:
            x = self.linear(x, *(self.tensor(f"{here}.output_proj.{part}") for part in ("weight", "bias")))
        return x, caches

    def _norm(self, x: str, name: str) -> str:
        weight = self.constant(self.tensor(f"{name}.weight"))
        return self.op("RMSNormalization", x, weight, epsilon=self._codec["rms_norm_eps"])
