"""Ops of speech models beside those of encoders: convolutions along time, and caches that are inputs and outputs."""

from __future__ import annotations

from collections.abc import Sequence

from ..weights import speech_roles as roles
from .encoder_builder import EncoderBuilder
from .values import Ref

HALVED = 2  # frames of a row


class SpeechBuilder(EncoderBuilder):
    """An `EncoderBuilder` with what sounds and their texts need."""

    def conv(
        self,
        name: str,
        x: Ref,
        weight: str,
        bias: str | None,
        kernel: Sequence[int],
        strides: Sequence[int],
    ) -> Ref:
        """Convolution of [N, C, H, W] with a padding of half the kernel, which is odd."""
        operands = [x, self.weight(weight)] + ([self.weight(bias)] if bias else [])
        count, _, *plane = x.shape
        pads = [extent // 2 for extent in kernel]
        out = [
            (extent + 2 * pad - taps) // stride + 1
            for extent, pad, taps, stride in zip(plane, pads, kernel, strides, strict=True)
        ]
        attributes: dict[str, int | float | str] = {
            "kernel": _text(kernel),
            "strides": _text(strides),
            "pads": _text(pads),
            "dilations": "1,1",
            "upsample": "1,1",
            "groups": 1,
        }
        return self._op("Conv", name, operands, (count, operands[1].shape[0], *out), attributes)

    def taps(self, name: str, x: Ref, weight: str, count: int) -> Ref:
        """Convolution of each channel of [1, C, 1, T] by itself, of a column and the `count` - 1 before it."""
        attributes: dict[str, int | float | str] = {
            "kernel": _text((1, count)),
            "strides": "1,1",
            "pads": _text((0, count - 1)),
            "dilations": "1,1",
            "upsample": "1,1",
            "groups": x.shape[1],
        }
        return self._op("Conv", name, [x, self.weight(weight)], x.shape, attributes)

    def rows_of_sound(self, features: Ref, hidden: int) -> Ref:
        """[1, bins, n] -> [n / 2, hidden]: two convolutions along time, the second of every second frame."""
        _, bins, frames = features.shape
        x = self.reshape("encoder.mel", features, (1, bins, 1, frames))
        for number, stride in ((1, 1), (2, HALVED)):
            conv = roles.CONVS[number - 1]
            x = self.conv(f"encoder.conv{number}", x, conv.weight.name, conv.bias.name, (1, 3), (1, stride))
            x = self.function("Gelu", f"encoder.conv{number}_gelu", x)
        return self.transpose("encoder.rows", self.reshape("encoder.columns", x, (hidden, x.shape[3])), (1, 0))

    def largest_integer(self, name: str, x: Ref) -> Ref:
        """Of the last axis, which stays as one of 1."""
        return self._op("ReduceMax", name, [x], (*x.shape[:-1], 1), dtype=x.dtype)

    def floats(self, name: str, x: Ref) -> Ref:
        """int32 as numbers of the tensor dtype."""
        return self._op("Cast", name, [x], x.shape)

    def narrowed(self, name: str, x: Ref) -> Ref:
        """An input of float32 as numbers of the tensor dtype."""
        return x if x.dtype == self._tensor_dtype else self._op("Cast", name, [x], x.shape, {"from": x.dtype})

    def padded(self, name: str, x: Ref, rows: int) -> Ref:
        """[n, H] with rows of zeros behind it."""
        return self._op("Pad", name, [x], (rows, x.shape[1]), {"begins": "0,0", "value": 0.0}, x.dtype)

    def first_rows(self, name: str, x: Ref, rows: int) -> Ref:
        """The first rows of [n, H]."""
        return self._op("StridedSlice", name, [x], (rows, x.shape[1]), {"starts": "0,0", "steps": "1,1"}, x.dtype)

    def every_second(self, name: str, x: Ref) -> Ref:
        """Elements 0, 2 and so on of [1, n]."""
        return self._op("StridedSlice", name, [x], (1, -(-x.shape[1] // 2)), {"starts": "0,0", "steps": "1,2"}, x.dtype)

    def elementwise(self, kind: str, name: str, a: Ref, b: Ref) -> Ref:
        """`Less`, `Min` and so on of a and b, which repeats to the shape of a."""
        return self._op(kind, name, [a, b], a.shape, {} if a.shape == b.shape else {"broadcast": 1})


def _text(numbers: Sequence[int]) -> str:
    return ",".join(map(str, numbers))
