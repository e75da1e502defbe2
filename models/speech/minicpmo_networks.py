"""From codes of MiniCPM-o to sound: what its codes mean, a decoder to mel features, and the vocoder Vocos.

Convolutions see both sides; a mask keeps frames behind a sound at zero.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..checkpoints.checkpoint import Checkpoint
from ..common.errors import CheckpointError
from ..onnx.network_builder import TensorNetwork

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
    """Blocks between codes and sound. Their tensors say how large they are: none may contradict another."""

    def __init__(self, name: str, checkpoint: Checkpoint, prefix: str) -> None:
        super().__init__(name, lambda tensor: checkpoint.read(prefix + tensor))
        self._checkpoint, self._prefix = checkpoint, prefix
        self._own = [tensor.removeprefix(prefix) for tensor in checkpoint.names() if tensor.startswith(prefix)]

    def expect(self, name: str, *shape: int | None) -> tuple[int, ...]:
        """Returns the shape of a tensor, whose extents are these; None stands for any.

        Raises:
            CheckpointError: It is missing, has another shape, or holds no floats.
        """
        got = self._checkpoint.shape(self._prefix + name)
        fits = len(got) == len(shape) and all(
            own > 0 if extent is None else own == extent for own, extent in zip(got, shape, strict=True)
        )
        if not fits:
            expected = ", ".join("any" if extent is None else str(extent) for extent in shape)
            raise CheckpointError(
                f"tensor '{self._prefix}{name}' in {self._checkpoint.folder} has shape {list(got)}, expected "
                f"[{expected}]"
            )
        self._checkpoint.check(self._prefix + name, got)
        return got

    def conv(self, x: str, name: str, inputs: int, dilation: int = 1, groups: int = 1) -> tuple[str, int]:
        """A convolution along time that keeps the length; returns its result and the channels of that."""
        outputs, _, taps = self.expect(f"{name}.weight", groups if groups > 1 else None, inputs // groups, None)
        if taps % 2 == 0:
            raise CheckpointError(f"tensor '{self._prefix}{name}.weight' has {taps} taps, expected an odd number")
        operands = [x, self.constant(self.tensor(f"{name}.weight"))]
        if f"{name}.bias" in self._own:
            self.expect(f"{name}.bias", outputs)
            operands.append(self.constant(self.tensor(f"{name}.bias")))
        pad = taps // 2 * dilation
        return self.op("Conv", *operands, pads=[pad, pad], dilations=[dilation], group=groups), outputs

    def blocks(self, x: str, name: str, width: int, factors: str, mask: str, dilation: int = 1) -> str:
        """Blocks of ConvNeXt, as many as there are below a name."""
        rest = (tensor.removeprefix(f"{name}.") for tensor in self._own if tensor.startswith(f"{name}."))
        numbers = {int(part) for tensor in rest if (part := tensor.split(".")[0]).isdecimal()}
        for number in range(max(numbers, default=-1) + 1):
            here = f"{name}.{number}"
            self.expect_norm(f"{here}.norm", width)
            inner, _ = self.expect(f"{here}.pwconv1.weight", None, width)
            self.expect(f"{here}.pwconv1.bias", inner)
            self.expect(f"{here}.pwconv2.weight", width, inner)
            for vector in ("pwconv2.bias", factors, "dwconv.bias"):
                self.expect(f"{here}.{vector}", width)
            y, _ = self.conv(x, f"{here}.dwconv", width, dilation, width)
            x = self.op("Add", x, self.op("Mul", self.widened(y, here, factors), mask))
        return x

    def expect_norm(self, name: str, width: int) -> None:
        """As `expect`, of the two vectors of a norm."""
        for what in ("weight", "bias"):
            self.expect(f"{name}.{what}", width)


def features_of_codes(checkpoint: Checkpoint, frames: int = FRAMES) -> onnx.ModelProto:
    """Codes [1, 4, frames], floats as in the vendor's graph -> features [1, C, frames, 2]."""
    net = _Mel("dvae_part1", checkpoint, "tts.dvae.vq_layer.quantizer.")
    codes = net.op("Cast", net.input("indice", (1, _GROUPS * _BOOKS, frames)), to=6)
    groups: list[str] = []
    width: int | None = None
    for group in range(_GROUPS):
        here = f"rvqs.{group}.project_out"
        width, _ = net.expect(f"{here}.weight", width, len(_LEVELS))
        net.expect(f"{here}.bias", width)
        weight, bias = (net.tensor(f"{here}.{part}") for part in ("weight", "bias"))
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
    _, channels, _ = net.expect("decoder.conv_in.0.weight", None, None, None)
    x, mask = net.input("feature", (1, channels, 2 * frames)), net.input("mask", (1, 1, 2 * frames))
    x, width = net.conv(x, "decoder.conv_in.0", channels)
    x = net.op("Mul", net.op("Gelu", x), mask)
    x, width = net.conv(x, "decoder.conv_in.2", width)
    x = net.blocks(net.op("Mul", x, mask), "decoder.decoder_block", width, "coef", mask, _DILATION)
    for name in ("decoder.conv_out", "out_conv"):
        x, width = net.conv(x, name, width)
        x = net.op("Mul", x, mask)
    net.expect("coef", 1, width, 1)
    net.op("Mul", x, net.constant(net.tensor("coef")), result="output")
    return net.build(["output"])


def spectrum_of_mel(checkpoint: Checkpoint, frames: int = FRAMES) -> onnx.ModelProto:
    """Mel features [1, bins, 2 frames] and the mask -> cosine, sine and magnitude of the spectrum, [1, n, 2 frames]."""
    net = _Mel("vocos", checkpoint, "")
    _, bins, _ = net.expect("backbone.embed.weight", None, None, None)
    x, mask = net.input("features", (1, bins, 2 * frames)), net.input("mask", (1, 1, 2 * frames))
    x, width = net.conv(x, "backbone.embed", bins)
    for name in ("backbone.norm", "backbone.final_layer_norm"):
        net.expect_norm(name, width)
    x = net.transposed(net.norm(net.transposed(x), "backbone.norm"))
    x = net.blocks(net.op("Mul", x, mask), "backbone.convnext", width, "gamma", mask)
    outputs, _ = net.expect("head.out.weight", None, width)
    net.expect("head.out.bias", outputs // 2 * 2)  # as many angles as magnitudes
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
