"""From codes of MiniCPM-o to sound: what its codes mean, a decoder to mel features, and the vocoder Vocos.

Convolutions see both sides; a mask keeps frames behind a sound at zero.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..common.checkpoint import Checkpoint
from .network_builder import TensorNetwork

if TYPE_CHECKING:
    import onnx

FRAMES = 1024  # codes that the vendor's graphs take; each is two frames of mel features
_GROUPS, _BOOKS = 2, 2  # books of a group add up
_LEVELS = (5, 5, 5, 5)  # of a code: what each of its numbers can be
_DILATION = 2
_LOUDEST = 100.0


def _book(number: int) -> NDArray[np.float64]:
    """What each code of a group's book stands for, [codes, levels], between -1 and 1 in the first one."""
    levels = np.array(_LEVELS)
    places = np.concatenate(([1], np.cumprod(levels)[:-1]))
    digits = np.arange(levels.prod())[:, None] // places % levels
    half = levels // 2
    return (digits - half) / half * (levels - 1.0) ** -number


class _Mel(TensorNetwork):
    """Blocks between codes and sound."""

    def conv(self, x: str, name: str, dilation: int = 1, groups: int = 1) -> str:
        """A convolution along time that keeps the length."""
        weight = self.tensor(f"{name}.weight")
        operands = [x, self.constant(weight)]
        if name in self.biased:
            operands.append(self.constant(self.tensor(f"{name}.bias")))
        pad = weight.shape[2] // 2 * dilation
        return self.op("Conv", *operands, pads=[pad, pad], dilations=[dilation], group=groups)

    def __init__(self, name: str, checkpoint: Checkpoint, prefix: str) -> None:
        super().__init__(name, lambda tensor: checkpoint.read(prefix + tensor))
        own = [tensor.removeprefix(prefix) for tensor in checkpoint.names() if tensor.startswith(prefix)]
        self.biased = {tensor.removesuffix(".bias") for tensor in own if tensor.endswith(".bias")}

    def blocks(self, x: str, name: str, factors: str, mask: str, dilation: int = 1) -> str:
        """Blocks of ConvNeXt, as many as there are below a name."""
        count = 0
        while f"{name}.{count}.dwconv" in self.biased:
            here = f"{name}.{count}"
            channels = self.tensor(f"{here}.dwconv.weight").shape[0]
            y = self.widened(self.conv(x, f"{here}.dwconv", dilation, channels), here, factors)
            x = self.op("Add", x, self.op("Mul", y, mask))
            count += 1
        return x


def features_of_codes(checkpoint: Checkpoint, frames: int = FRAMES) -> onnx.ModelProto:
    """Codes [1, 4, frames], floats as in the vendor's graph -> features [1, C, frames, 2]."""
    net = _Mel("dvae_part1", checkpoint, "tts.dvae.vq_layer.quantizer.")
    codes = net.op("Cast", net.input("indice", (1, _GROUPS * _BOOKS, frames)), to=6)
    groups = []
    for group in range(_GROUPS):
        weight, bias = (net.tensor(f"rvqs.{group}.project_out.{part}") for part in ("weight", "bias"))
        found = []
        for number in range(_BOOKS):
            table = _book(number) @ weight.T + (bias if number == 0 else 0.0)
            own = net.op("Gather", codes, net.constant(np.array(group * _BOOKS + number, np.int64)), axis=1)
            found.append(net.op("Gather", net.constant(table), own))
        groups.append(net.op("Add", *found))
    rows = net.op("Concat", *groups, axis=2)
    width = weight.shape[0] * _GROUPS // 2
    net.op("Transpose", net.reshape(rows, 1, frames, 2, width), perm=[0, 3, 1, 2], result="feature")
    return net.build(["feature"])


def mel_of_features(checkpoint: Checkpoint, frames: int = FRAMES) -> onnx.ModelProto:
    """Features [1, C, 2 frames] and which of them are there, 0 or 1 -> mel features [1, bins, 2 frames]."""
    net = _Mel("dvae_part2", checkpoint, "tts.dvae.")
    channels = net.tensor("decoder.conv_in.0.weight").shape[1]
    x, mask = net.input("feature", (1, channels, 2 * frames)), net.input("mask", (1, 1, 2 * frames))
    x = net.op("Mul", net.op("Gelu", net.conv(x, "decoder.conv_in.0")), mask)
    x = net.op("Mul", net.conv(x, "decoder.conv_in.2"), mask)
    x = net.blocks(x, "decoder.decoder_block", "coef", mask, _DILATION)
    x = net.op("Mul", net.conv(x, "decoder.conv_out"), mask)
    x = net.op("Mul", net.conv(x, "out_conv"), mask)
    net.op("Mul", x, net.constant(net.tensor("coef")), result="output")
    return net.build(["output"])


def spectrum_of_mel(checkpoint: Checkpoint, frames: int = FRAMES) -> onnx.ModelProto:
    """Mel features [1, bins, 2 frames] and the mask -> cosine, sine and magnitude of the spectrum, [1, n, 2 frames]."""
    net = _Mel("vocos", checkpoint, "")
    bins = net.tensor("backbone.embed.weight").shape[1]
    x, mask = net.input("features", (1, bins, 2 * frames)), net.input("mask", (1, 1, 2 * frames))
    x = net.transposed(net.norm(net.transposed(net.conv(x, "backbone.embed")), "backbone.norm"))
    x = net.blocks(net.op("Mul", x, mask), "backbone.convnext", "gamma", mask)
    x = net.norm(net.transposed(x), "backbone.final_layer_norm")
    weight, bias = (net.tensor(f"head.out.{part}") for part in ("weight", "bias"))
    x = net.op("Mul", net.transposed(net.linear(x, weight, bias)), mask)
    half = weight.shape[0] // 2
    loud, turned = net.part(x, 1, 0, half), net.part(x, 1, half, 2 * half)
    net.op("Cos", turned, result="x")
    net.op("Sin", turned, result="y")
    least = net.constant(np.float32(0))
    net.op("Clip", net.op("Exp", loud), least, net.constant(np.float32(_LOUDEST)), result="mag")
    return net.build(["x", "y", "mag"])
