"""Image inputs: uint8 YUV, which the chip's resizer turns into what a network reads. Its arithmetic is a guess.

Each plane is resized bilinearly (half pixels, corners not aligned), then Y, U and V become colours, which are limited
to 0..255 and not rounded; then (colour - mean) / deviation. Y has 16 to 235, U and V 16 to 240 (video range).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..common.errors import CompileError
from .emit import Emitter, Tensor
from .network import Port

# Luma rows and columns to a chroma sample; none for YUV400.
FORMATS = {"YUV400": None, "YUV420SP": (2, 2), "YUV422SP": (1, 2), "YUV444SP": (1, 1)}
# Shares of red and blue in the luma.
MATRICES = {"bt601": (0.299, 0.114), "bt709": (0.2126, 0.0722)}
NO_RESIZER, DYNAMIC, STATIC = 0, 1, 3  # the vendor's resizer_mode
_CENTRED = 1  # the vendor's padding_mode: how its programs place the part of a dynamic image
CROP_NUMBERS = 10
_MAX_HEIGHT = 4096
_MAX_WIDTH = {STATIC: 1024, DYNAMIC: 4096}
_SCALES = (1 / 32, 16)


@dataclass(frozen=True, kw_only=True)
class ImageInput:
    """What an input gets instead of its float tensor.

    Attributes:
        format: One of `FORMATS`; U and V alternate behind all of Y.
        height: Rows of the image, even; 4096 at most.
        width: Columns, even; 1024 at most, with `dynamic` 4096.
        dynamic: The part of the image, and where it goes, is an input of each run (mode 1); else the whole image fills
            the network's input (mode 3).
        matrix: One of `MATRICES`.
        mean: Of the network's channels, from 0 to 255.
        deviation: Likewise.
        swap: The network reads blue, green and red.
        fill: Colour of the border around the part, from 0 to 255, in the network's order.
    """

    format: str
    height: int
    width: int
    dynamic: bool = False
    matrix: str = "bt601"
    mean: tuple[float, float, float] = (0.0, 0.0, 0.0)
    deviation: tuple[float, float, float] = (1.0, 1.0, 1.0)
    swap: bool = False
    fill: tuple[int, int, int] = (0, 0, 0)

    def __post_init__(self) -> None:
        """Raises CompileError for a value that the chip does not take."""
        for what, value, known in (("format", self.format, FORMATS), ("matrix", self.matrix, MATRICES)):
            if value not in known:
                raise CompileError(f"image {what} {value!r}; choose from {', '.join(known)}")
        most = _MAX_WIDTH[self.mode]
        fits = 2 <= self.height <= _MAX_HEIGHT and 2 <= self.width <= most
        if not fits or self.height % 2 or self.width % 2:
            raise CompileError(
                f"an image of {self.height} rows and {self.width} columns; expected even numbers up to {_MAX_HEIGHT} "
                f"and {most}" + ("" if self.dynamic else f", with a dynamic crop {_MAX_WIDTH[DYNAMIC]}")
            )
        if not all(np.isfinite([*self.mean, *self.deviation])) or min(self.deviation) <= 0:
            raise CompileError(
                f"means {self.mean} and deviations {self.deviation}: expected numbers, the latter above 0"
            )
        if min(self.fill) < 0 or max(self.fill) > 255:
            raise CompileError(f"fill {self.fill}: expected 0 to 255")

    @property
    def mode(self) -> int:
        """The vendor's resizer_mode."""
        return DYNAMIC if self.dynamic else STATIC

    @property
    def nbytes(self) -> int:
        """Of one image."""
        step = FORMATS[self.format]
        chroma = 2 * (self.height // step[0]) * (self.width // step[1]) if step else 0
        return self.height * self.width + chroma

    def config(self) -> dict[str, object]:
        """`input_cfg` of the custom_msg, in the words of the vendor's converter but for `matrix`."""
        return {
            "data_format": "BGR" if self.swap else "RGB", "mean": list(self.mean), "std": list(self.deviation),
            "resize_type": int(self.dynamic),  # 1: the part of the image keeps its shape, with a border around it
            "padding_mode": _CENTRED, "padding_values": list(self.fill), "matrix": self.matrix,
            "resizer": {"toYUV_format": self.format, "resizer_input_size": [self.height, self.width]},
        }  # fmt: skip

    def colours(self) -> NDArray[np.float32]:
        """[3, 6] of the network's channels: weights of Y, U and V and an offset, a factor and an addend."""
        red, blue = MATRICES[self.matrix]
        green = 1 - red - blue
        luma, chroma = 255 / 219, 255 / 224
        if FORMATS[self.format] is None:
            chroma = 0.0
        u = np.array([0, -2 * (1 - blue) * blue / green, 2 * (1 - blue)]) * chroma
        v = np.array([2 * (1 - red), -2 * (1 - red) * red / green, 0]) * chroma
        rows = np.stack([np.full(3, luma), u, v, -16 * luma - 128 * (u + v)], axis=1)
        ends = np.stack([1 / np.array(self.deviation), -np.array(self.mean) / np.array(self.deviation)], axis=1)
        return np.concatenate([rows[::-1] if self.swap else rows, ends], axis=1).astype(np.float32)


def crop_name(name: str) -> str:
    """Of the last input of a dynamic image."""
    return f"resizer_crop_{name}"


def check(image: ImageInput, port: Port) -> None:
    """Raises CompileError for an input that no image becomes."""
    shape = port.shape
    if len(shape) != 4 or shape[1] != 3 or not port.dtype.startswith(("float", "bfloat")):
        turned = (
            "; --begin-at the result of its Transpose, or convert with --inputs-as-nchw of tf2onnx"
            if len(shape) == 4 and shape[3] == 3
            else ""
        )
        raise CompileError(
            f"input '{port.name}' is {port.dtype} {list(shape)}; an image becomes float [N, 3, H, W]{turned}"
        )
    for size, out in ((image.height, shape[2]), (image.width, shape[3])):
        if not image.dynamic and not _SCALES[0] <= out / size <= _SCALES[1]:
            raise CompileError(f"an image side of {size} to {out}: the resizer scales by 1/32 to 16")


def lower_image(image: ImageInput, port: Port, pixels: Tensor, crop: Tensor | None, emit: Emitter) -> Tensor:
    """The network's input [N, 3, H, W] from the image and, if dynamic, what part of it goes where."""
    height, width = port.shape[2:]
    what: dict[str, str | int | Sequence[int]] = {
        "format": image.format, "height": image.height, "width": image.width, "fill": list(image.fill)
    }  # fmt: skip
    operands: list[Tensor | int] = [pixels, emit.weight(image.colours(), "float32")]
    if crop is None:
        what["crop"] = [0, 0, image.height, image.width, height, width, 0, 0, 0, 0]
    else:
        operands.append(crop)
    return emit.op("Resizer", operands, port.shape, what)
