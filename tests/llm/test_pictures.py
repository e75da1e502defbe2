"""Files of images as others send them: every format, every kind of pixels, and files that are damaged."""

from __future__ import annotations

import contextlib
import io
import random

import numpy as np
import pytest

Image = pytest.importorskip("PIL.Image", reason="needs the extra [images]")

from tcim_lite.llm import media
from tcim_lite.llm.images import ImageError, ImagePrompts
from tcim_lite.llm.images.picture import colours_of, open_image
from tcim_lite.llm.media import Prepared

FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF")
PIXELS = np.random.default_rng(0).integers(0, 256, (20, 30, 3), np.uint8)


def stored(image, kind: str, **options) -> bytes:
    made = io.BytesIO()
    image.save(made, kind, **options)
    return made.getvalue()


@pytest.mark.parametrize("kind", FORMATS)
def test_an_image_of_every_format_is_read(kind):
    options = {"lossless": True} if kind == "WEBP" else {}
    data = stored(Image.fromarray(PIXELS), kind, **options)
    found = open_image(data)
    assert (found.mode, found.size) == ("RGB", (30, 20))
    if kind in ("JPEG", "GIF"):  # which lose some of it
        np.testing.assert_array_equal(np.asarray(found), np.asarray(Image.open(io.BytesIO(data)).convert("RGB")))
    else:
        np.testing.assert_array_equal(np.asarray(found), PIXELS)


@pytest.mark.parametrize("mode", ["L", "P", "1", "RGBA", "LA", "CMYK"])
def test_every_kind_of_pixels_becomes_colours(mode):
    made = Image.fromarray(PIXELS).convert(mode)
    found = open_image(stored(made, "TIFF"))
    np.testing.assert_array_equal(np.asarray(found), np.asarray(made.convert("RGB")))


def test_a_photograph_is_turned_as_its_exif_says():
    exif = Image.Exif()
    exif[0x0112] = 6
    found = open_image(stored(Image.fromarray(PIXELS), "PNG", exif=exif))
    np.testing.assert_array_equal(np.asarray(found), np.rot90(PIXELS, -1))


def test_of_several_frames_the_first_is_seen():
    first, second = Image.fromarray(PIXELS), Image.fromarray(255 - PIXELS)
    data = stored(first, "TIFF", save_all=True, append_images=[second])
    np.testing.assert_array_equal(np.asarray(open_image(data)), PIXELS)


@pytest.mark.parametrize("kind", ["PPM", "ICO", "TGA", "EPS", "PDF"])
def test_other_formats_are_refused(kind):
    with pytest.raises(ImageError, match=r"no image that can be read.*expected PNG, JPEG, WEBP, GIF, BMP, TIFF"):
        open_image(stored(Image.fromarray(PIXELS), kind))


def test_a_damaged_file_is_an_image_or_an_error():
    """Nothing else is raised, whatever the damage is."""
    rng = random.Random(1)
    files = [stored(Image.fromarray(PIXELS), kind) for kind in FORMATS]
    read = 0
    for _ in range(600):
        data = bytearray(rng.choice(files))
        for _ in range(rng.randint(1, 6)):
            place = rng.randrange(len(data))
            data[place : place + rng.choice([0, 1, 1, 1, 20])] = rng.randbytes(rng.choice([0, 1, 1, 1, 20]))
        with contextlib.suppress(ImageError):
            read += open_image(bytes(data)).mode == "RGB"
    assert 0 < read < 600


def test_colours_are_stretched_as_pillow_does_it():
    image = Image.fromarray(PIXELS)
    found = colours_of(image, (40, 24))
    want = np.asarray(image.resize((24, 40), Image.Resampling.BICUBIC), np.float32).transpose(2, 0, 1) / 255
    np.testing.assert_array_equal(found, want)
    np.testing.assert_array_equal(colours_of(image, (20, 30)), PIXELS.astype(np.float32).transpose(2, 0, 1) / 255)


@pytest.mark.parametrize("pieces", [None, 3], ids=["an array", "a list of slices"])
def test_images_are_kept_up_to_so_many_bytes(monkeypatch, pieces):
    """Their pixels count, too, of those that no tower has seen."""
    pixels = np.zeros((3, 20, 30), np.float32)

    class Reader:
        mark, writes_marks, stand_in = "<image>", False, 0

        def prepare(self, image):
            return Prepared("<image>", (1,), pixels if pieces is None else [pixels] * pieces)

    monkeypatch.setattr(media, "_KEPT_BYTES", 12 * pixels.nbytes)
    images = ImagePrompts(Reader())
    files = [stored(Image.fromarray(PIXELS + np.uint8(number)), "PNG") for number in range(20)]
    first = [images.take(file) for file in files]
    kept = 12 // (pieces or 1)
    assert all(images.take(file) is image for file, image in zip(files[-kept:], first[-kept:], strict=True))
    assert images.take(files[-kept - 1]) is not first[-kept - 1]
