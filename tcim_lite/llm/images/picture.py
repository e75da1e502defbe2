"""From the bytes of a file to the pixels of an image that is the right way up."""

from __future__ import annotations

import io
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..limited import one_line
from ..media import MediaError

if TYPE_CHECKING:
    from PIL import Image

_MOST_PIXELS = 64 << 20  # of an image: a small file may unpack to any number
# Of images that others send. Pillow reads more, some of them by starting other programs.
_FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF")


class ImageError(MediaError):
    """An image that cannot be used; the message says why, in one line."""


def pillow() -> Any:
    """Pillow's Image.

    Raises:
        ImportError: It is missing.
    """
    try:
        from PIL import Image
    except ImportError as error:
        raise ImportError("images need Pillow: pip install 'tcim-lite[images]'") from error
    return Image


def open_image(data: bytes) -> Image.Image:
    """The image in a file that somebody has sent, in colours; of several frames the first.

    Raises:
        ImageError: It is none of the known formats, is damaged, or has too many pixels.
        ImportError: Pillow is missing.
    """
    module = pillow()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of sizes, which are checked here, and of damaged metadata
            image = module.open(io.BytesIO(data), formats=_FORMATS)
            if image.width * image.height > _MOST_PIXELS:
                raise module.DecompressionBombError
            return read_image(image).convert("RGB")
    except (ImageError, MemoryError):
        raise
    except module.DecompressionBombError:  # also Pillow's own, of still more
        raise ImageError(f"an image of more than {_MOST_PIXELS >> 20} Mi pixels: make it smaller") from None
    except Exception as error:  # Pillow's readers raise many, struct.error and SyntaxError among them
        begin = data[:8].hex(" ") or "nothing"
        # Pillow's own message names an object in memory.
        is_unknown = isinstance(error, module.UnidentifiedImageError)
        why = "" if is_unknown else f" ({one_line(error):.120})"
        raise ImageError(
            f"{len(data)} bytes, {begin} and so on, are no image that can be read{why}; expected {', '.join(_FORMATS)}"
        ) from None


def read_image(source: Path | Image.Image) -> Image.Image:
    """An image the right way up: a camera stores a photograph as the sensor lay, and in EXIF how to turn it.

    Args:
        source: A file, or what Pillow has opened.

    Raises:
        OSError: It cannot be read, or is no image.
        ValueError: Its numbers have no range that is known.
        ImportError: Pillow is missing.
    """
    module = pillow()
    try:
        image = module.open(source) if isinstance(source, Path) else source
        image.load()  # which turns a TIFF, and may come to the EXIF of a PNG
    except module.DecompressionBombError as error:
        raise ImageError(f"{source}: {error}") from None
    name = f"{source} has" if isinstance(source, Path) else "the image has"
    if image.mode in ("I", "F"):
        raise ImageError(f"{name} grey values of 32 bits, whose range no file says; store them in 8 or 16")
    if image.mode.startswith("I;16"):  # Pillow would cut all above 255
        image = module.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    turn = module.Transpose
    turns = {  # by EXIF's orientation
        2: turn.FLIP_LEFT_RIGHT,
        3: turn.ROTATE_180,
        4: turn.FLIP_TOP_BOTTOM,
        5: turn.TRANSPOSE,
        6: turn.ROTATE_270,
        7: turn.TRANSVERSE,
        8: turn.ROTATE_90,
    }
    try:
        found = turns.get(image.getexif().get(0x0112))
    except Exception:  # Pillow's readers of EXIF raise many; viewers show such an image as it is stored
        found = None
    return image if found is None else image.transpose(found)


def colours_of(image: Image.Image, size: tuple[int, int]) -> NDArray[np.float32]:
    """[3, height, width], 0 to 1, of an image that is stretched to this height and width."""
    height, width = size
    if (image.height, image.width) != size:
        image = image.resize((width, height), pillow().Resampling.BICUBIC)
    values: NDArray[np.float32] = np.asarray(image, np.float32).transpose(2, 0, 1) / np.float32(255)
    return np.ascontiguousarray(values)


def normalised(
    image: Image.Image, size: tuple[int, int], mean: Sequence[float], deviation: Sequence[float]
) -> NDArray[np.float32]:
    """The colours of an image as a processor gives them to a tower, [3, height, width].

    Args:
        image: In colours (RGB).
        size: Height and width; an image of another size is stretched to it, bicubic.
        mean: Of each colour, 0 to 1, which is subtracted.
        deviation: Of each colour, by which the difference is divided.
    """
    less, over = (np.array(values, np.float32)[:, None, None] for values in (mean, deviation))
    return (colours_of(image, size) - less) / over
