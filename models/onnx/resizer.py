"""Image inputs: uint8 YUV, which the chip's resizer turns into what a network reads. Part of it is a guess.

Each plane is resized bilinearly (half pixels, corners not aligned), then Y, U and V become colours, which are limited
to 0..255 and not rounded; then (colour - mean) / deviation. Y, U and V have 0 to 255, as the vendor's `hmatc` writes
them; where `Matrix.video` says so, Y has 16 to 235, U and V 16 to 240.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..common.errors import CompileError
from .emit import Emitter, Tensor
from .network import Port

# Luma rows and columns to a chroma sample; none for YUV400.
FORMATS = {"YUV400": None, "YUV420SP": (2, 2), "YUV422SP": (1, 2), "YUV444SP": (1, 1)}


class Matrix(NamedTuple):
    """How colours become Y, U and V: the shares of red and blue in Y, and whether the range is that of video."""

    red: float
    blue: float
    video: bool = False


MATRICES = {
    "bt601": Matrix(0.299, 0.114), "bt709": Matrix(0.2126, 0.0722),
    "bt601-video": Matrix(0.299, 0.114, True), "bt709-video": Matrix(0.2126, 0.0722, True),
}  # fmt: skip
NO_RESIZER, DYNAMIC, STATIC = 0, 1, 3  # the vendor's resizer_mode
_CENTRED = 1  # the vendor's padding_mode: how its programs place the part of a dynamic image
CROP_NUMBERS = 10
_MOST = 4096
_WIDE, _WIDE_STEP = 2048, 32  # wider images have a width that is a multiple of this
_SCALES = (1 / 32, 16)


@dataclass(frozen=True, kw_only=True)
class ImageInput:
    """What an input gets instead of its float tensor.

    Attributes:
        format: One of `FORMATS`; U and V alternate behind all of Y.
        height: Rows of the image, even; 4096 at most.
        width: Columns, even; 4096 at most, and a multiple of 32 above 2048.
        dynamic: The part of the image, and where it goes, is an input of each run (mode 1); else `part` fills the
            network's input (mode 3).
        part: y, x, height and width of the part of a static image, all even; None: the whole image.
        parts: Of each image, with `dynamic`: the network's batch is so many times that of the images.
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
    part: tuple[int, int, int, int] | None = None
    parts: int = 1
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
        fits = 2 <= self.height <= _MOST and 2 <= self.width <= _MOST
        step = _WIDE_STEP if self.width > _WIDE else 2
        if not fits or self.height % 2 or self.width % step:
            raise CompileError(
                f"an image of {self.height} rows and {self.width} columns; expected even numbers up to {_MOST}, and a "
                f"multiple of {_WIDE_STEP} for more than {_WIDE} columns"
            )
        if self.part is not None:
            self._check_part(*self.part)
        if self.parts < 1 or (self.parts > 1 and not self.dynamic):
            raise CompileError(
                f"{self.parts} parts of an image; expected 1 or more, and above 1 a dynamic crop, which says where"
            )
        if not all(np.isfinite([*self.mean, *self.deviation])) or min(self.deviation) <= 0:
            raise CompileError(
                f"means {self.mean} and deviations {self.deviation}: expected numbers, the latter above 0"
            )
        if min(self.fill) < 0 or max(self.fill) > 255:
            raise CompileError(f"fill {self.fill}: expected 0 to 255")

    def _check_part(self, y: int, x: int, height: int, width: int) -> None:
        if self.dynamic:
            raise CompileError("a part of the image that is fixed, and a dynamic crop: expected one of them")
        inside = 0 <= y <= y + height <= self.height and 0 <= x <= x + width <= self.width
        if not inside or min(height, width) < 2 or any(number % 2 for number in (y, x, height, width)):
            raise CompileError(
                f"the part {y},{x},{height},{width} (y, x, height, width) of an image of {self.height} rows and "
                f"{self.width} columns: expected even numbers inside it"
            )

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
            "resizer": {
                "toYUV_format": self.format, "resizer_input_size": [self.height, self.width],
                **({} if self.part is None else {"resizer_crop": list(self.part)}),
            },
        }  # fmt: skip

    def colours(self) -> NDArray[np.float32]:
        """[3, 6] of the network's channels: weights of Y, U and V and an offset, a factor and an addend."""
        red, blue, video = MATRICES[self.matrix]
        green = 1 - red - blue
        luma, chroma, black = (255 / 219, 255 / 224, 16) if video else (1.0, 1.0, 0)
        if FORMATS[self.format] is None:
            chroma = 0.0
        u = np.array([0, -2 * (1 - blue) * blue / green, 2 * (1 - blue)]) * chroma
        v = np.array([2 * (1 - red), -2 * (1 - red) * red / green, 0]) * chroma
        rows = np.stack([np.full(3, luma), u, v, -black * luma - 128 * (u + v)], axis=1)
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
    if shape[0] % image.parts:
        raise CompileError(
            f"input '{port.name}' has a batch of {shape[0]}, expected a multiple of the {image.parts} parts of an "
            "image (--batch)"
        )
    _, _, height, width = image.part or (0, 0, image.height, image.width)
    for size, out in ((height, shape[2]), (width, shape[3])):
        if not image.dynamic and not _SCALES[0] <= out / size <= _SCALES[1]:
            raise CompileError(f"an image side of {size} to {out}: the resizer scales by 1/32 to 16")


def lower_image(image: ImageInput, port: Port, pixels: Tensor, crop: Tensor | None, emit: Emitter) -> Tensor:
    """The network's input [N, 3, H, W] from the image and, if dynamic, what part of it goes where."""
    height, width = port.shape[2:]
    what: dict[str, str | int | Sequence[int]] = {
        "format": image.format, "height": image.height, "width": image.width, "fill": list(image.fill)
    }  # fmt: skip
    if image.parts > 1:
        what["parts"] = image.parts
    operands: list[Tensor | int] = [pixels, emit.weight(image.colours(), "float32")]
    if crop is None:
        what["crop"] = [*(image.part or (0, 0, image.height, image.width)), height, width, 0, 0, 0, 0]
    else:
        operands.append(crop)
    return emit.op("Resizer", operands, port.shape, what)
