"""ImageOps of the C++ API: against Pillow, and float64 arithmetic written apart from the library."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from cpp_programs import facade_programs, run

Image = pytest.importorskip("PIL.Image", reason="needs Pillow")

pytestmark = pytest.mark.build
RNG = np.random.default_rng(422)
FORMATS = {1: (2, 2), 2: (1, 2), 3: (1, 1)}  # of tcim::DataFmt: luma rows and columns to a chroma sample
NEAREST, BILINEAR = 0, 1
# Rounding to whole numbers, and fp32 against float64.
BOUND = 0.5 + 1e-3


@pytest.fixture(scope="module")
def program(request):
    return facade_programs(request.getfixturevalue("sdk"), "image_process") / "image_process"


def image_of(width, height, form, batch=1):
    step = FORMATS[form]
    return RNG.integers(0, 256, (batch, height * width + 2 * (height // step[0]) * (width // step[1])), dtype=np.uint8)


def planes(image, width, height, form):
    """Y [height, width], U and V of one image."""
    step = FORMATS[form]
    chroma = image[height * width :].reshape(height // step[0], width // step[1], 2)
    return image[: height * width].reshape(height, width), chroma[..., 0], chroma[..., 1]


@pytest.fixture
def resize(program, tmp_path):
    """Runs the Resizer; the numbers are those of its options."""

    def resize_(images, size, out, form, crop=None, pad=(0, 0, 0, 0), how=(BILINEAR, 0), fill=(9, 60, 200), on="host"):
        (tmp_path / "in").write_bytes(images.tobytes())
        numbers = (*out, *(crop or (0, 0, *size)), *pad, *how, *fill)
        files = (tmp_path / "in", tmp_path / "out")
        run(program, "resize", *map(str, (form, len(images), *size)), on, *files, *map(str, numbers))
        return np.fromfile(tmp_path / "out", np.uint8).reshape(len(images), -1)

    return resize_


def places(size, out, how):
    """Where the elements of an axis come from."""
    interpolation, corners = how
    if corners:
        at = np.linspace(0, size - 1, out) if out > 1 else np.zeros(1)
        return np.floor(at + 0.5) if interpolation == NEAREST else at
    centres = (np.arange(out) + 0.5) * size / out
    return np.floor(centres) if interpolation == NEAREST else np.clip(centres - 0.5, 0, size - 1)


def resized(plane, out, how):
    """float64 [rows, columns] of a plane."""
    rows, cols = places(plane.shape[0], out[0], how), places(plane.shape[1], out[1], how)
    across = np.stack([np.interp(cols, np.arange(plane.shape[1]), line) for line in plane.astype(np.float64)])
    return np.stack([np.interp(rows, np.arange(plane.shape[0]), line) for line in across.T], axis=1)


def covered(first, count, step):
    """The samples of chroma that any of these pixels has."""
    return slice(first // step, (first + count - 1) // step + 1)


def expected(image, size, out, form, crop, pad, how, fill):
    """The planes of the result, as float64."""
    (x, y, w, h), (left, top, right, bottom) = crop, pad
    found = []
    for index, plane in enumerate(planes(image, *size, form)):
        down, across = (1, 1) if index == 0 else FORMATS[form]
        part = plane[covered(y, h, down), covered(x, w, across)]
        whole = np.full((out[1] // down, out[0] // across), float(fill[index]))
        target = whole[covered(top, out[1] - top - bottom, down), covered(left, out[0] - left - right, across)]
        target[:] = resized(part, target.shape, how)
        found.append(whole)
    return found


CASES = {  # size, result, crop, border
    "larger": ((10, 6), (34, 22), (0, 0, 10, 6), (0, 0, 0, 0)),
    "smaller": ((34, 22), (10, 6), (0, 0, 34, 22), (0, 0, 0, 0)),
    "a part with a border": ((30, 16), (20, 24), (4, 2, 18, 12), (2, 4, 4, 6)),
    "odd numbers": ((30, 16), (22, 18), (3, 5, 13, 9), (3, 1, 2, 4)),
    "one pixel": ((8, 8), (6, 4), (7, 7, 1, 1), (0, 0, 0, 0)),
    "to one pixel": ((8, 8), (6, 4), (0, 0, 8, 8), (3, 2, 2, 1)),
}


@pytest.mark.parametrize("how", list(product((NEAREST, BILINEAR), (0, 1))))
@pytest.mark.parametrize("form", FORMATS)
def test_results_equal_float64_arithmetic(resize, form, how):
    for name, (size, out, crop, pad) in CASES.items():
        image, fill = image_of(*size, form), (9, 60, 200)
        result = resize(image, size, out, form, crop, pad, how, fill)[0]
        wanted = expected(image[0], size, out, form, crop, pad, how, fill)
        for got, exact in zip(planes(result, *out, form), wanted, strict=True):
            assert np.abs(got - exact).max() <= BOUND, name
            if how[0] == NEAREST:
                np.testing.assert_array_equal(got, exact, name)


def test_an_odd_height_is_resized(resize):
    image = image_of(6, 5, 2)
    result = resize(image, (6, 5), (14, 11), 2)[0]
    wanted = expected(image[0], (6, 5), (14, 11), 2, (0, 0, 6, 5), (0, 0, 0, 0), (BILINEAR, 0), (0, 0, 0))
    for got, exact in zip(planes(result, 14, 11, 2), wanted, strict=True):
        assert np.abs(got - exact).max() <= BOUND


# Sizes of which no centre lies between two pixels, where Pillow takes either. Its bilinear filter averages where an
# image becomes smaller, and it rounds between its two passes.
@pytest.mark.parametrize(("how", "out"), [(NEAREST, (24, 16)), (NEAREST, (12, 8)), (BILINEAR, (24, 16))])
def test_planes_equal_those_of_pillow(resize, how, out):
    image = image_of(20, 12, 1)
    result = resize(image, (20, 12), out, 1, how=(how, 0))[0]
    method = [Image.Resampling.NEAREST, Image.Resampling.BILINEAR][how]
    for got, plane in zip(planes(result, *out, 1), planes(image[0], 20, 12, 1), strict=True):
        whole = Image.fromarray(np.ascontiguousarray(plane)).resize(got.shape[::-1], method)
        assert np.abs(got.astype(int) - np.asarray(whole)).max() <= how


def test_batches_and_device_memory_give_the_same_bytes(resize):
    images = image_of(12, 8, 1, batch=3)
    one = np.stack([resize(image[None], (12, 8), (20, 10), 1, (2, 0, 10, 8), (0, 2, 4, 0))[0] for image in images])
    for where in ("host", "device"):
        np.testing.assert_array_equal(resize(images, (12, 8), (20, 10), 1, (2, 0, 10, 8), (0, 2, 4, 0), on=where), one)
    np.testing.assert_array_equal(
        resize(images[:1], (12, 8), (20, 10), 1, (2, 0, 10, 8), (0, 2, 4, 0), on="device"), one[:1]
    )


@pytest.mark.parametrize("where", ["host", "device"])
@pytest.mark.parametrize("form", FORMATS)
def test_colours_equal_float64_arithmetic(program, tmp_path, form, where):
    images = image_of(14, 6, form, batch=2)
    (tmp_path / "in").write_bytes(images.tobytes())
    run(program, "colours", *map(str, (form, 2, 14, 6)), where, tmp_path / "in", tmp_path / "out")
    results = np.fromfile(tmp_path / "out", np.uint8).reshape(2, 3, 6, 14)
    for image, result in zip(images, results, strict=True):
        y, u, v = planes(image, 14, 6, form)
        u, v = (resized(plane, (6, 14), (BILINEAR, 0)) - 128 for plane in (u, v))
        red, blue = y + 1.402 * v, y + 1.772 * u
        green = (y - 0.299 * red - 0.114 * blue) / 0.587
        exact = np.clip(np.stack([red, green, blue]), 0, 255)
        assert np.abs(result - exact).max() <= BOUND
        if form == 3:
            whole = Image.fromarray(np.stack(planes(image, 14, 6, 3), axis=2), "YCbCr").convert("RGB")
            assert np.abs(np.asarray(whole).transpose(2, 0, 1) - result.astype(int)).max() <= 1


def test_mistakes_have_a_status_and_say_what_was_expected(program):
    printed = run(program, "api", env={"TCIM_RUNTIME_PATH": "/somewhere"})
    lines = printed.splitlines()
    assert len(lines) == 37
    assert all(line.startswith(("Resizer::", "ColorConverter::")) for line in lines)
    said = ("expected", "UNINITIALIZED", "Init was called for", "the only one is 0", "the only device is 0")
    assert [line for line in lines if not any(part in line for part in said)] == []
