"""uint8 YUV image inputs: against float64 arithmetic from docs/onnx.md, written apart from the kernel."""

from __future__ import annotations

import json

import numpy as np
import pytest
from graph_maker import GraphMaker

pytest.importorskip("onnx", reason="needs onnx")

import tcim_lite.runtime as rt
from tcim_lite.cli import main
from tcim_lite.errors import TcimError
from tcim_lite.models.common.errors import CompileError
from tcim_lite.models.onnx import OnnxOptions, compile_onnx
from tcim_lite.models.onnx.resizer import ImageInput

RNG = np.random.default_rng(420)
STEPS = {"YUV400": None, "YUV420SP": (2, 2), "YUV422SP": (1, 2), "YUV444SP": (1, 1)}
MEAN, STD = (123.0, 116.0, 103.0), (58.0, 57.0, 56.0)


def sampled(plane, rows, cols):
    """Bilinear samples of a plane at rows x cols, which are clamped into it."""
    rows, cols = (np.clip(at, 0, size - 1) for at, size in zip((rows, cols), plane.shape, strict=True))
    across = np.stack([np.interp(cols, np.arange(plane.shape[1]), line) for line in plane.astype(np.float64)])
    return np.stack([np.interp(rows, np.arange(plane.shape[0]), across[:, i]) for i in range(len(cols))], axis=1)


def places(first, size, out):
    return np.clip((np.arange(out) + 0.5) * size / out - 0.5, 0, size - 1) + first


def colours(y, u, v, matrix):
    """To 0..255, [3, h, w]."""
    standard, _, video = matrix.partition("-")
    kr, kb = {"bt601": (0.299, 0.114), "bt709": (0.2126, 0.0722)}[standard]
    if video:
        y, u, v = (y - 16) / 219, (u - 128) / 224, (v - 128) / 224
    else:
        y, u, v = y / 255, (u - 128) / 255, (v - 128) / 255
    r, b = y + 2 * (1 - kr) * v, y + 2 * (1 - kb) * u
    return np.clip(np.stack([r, (y - kr * r - kb * b) / (1 - kr - kb), b]) * 255, 0, 255)


def expected(image, height, width, form, matrix, size, crop=None, swap=False, fill=(0, 0, 0)):
    crop = crop or (0, 0, height, width, *size, 0, 0, 0, 0)
    y0, x0, h, w, out_h, out_w, top, left, _, _ = crop
    rows, cols = places(y0, h, out_h), places(x0, w, out_w)
    luma = sampled(image[: height * width].reshape(height, width), rows, cols)
    u = v = np.full(luma.shape, 128.0)
    if STEPS[form]:
        step_y, step_x = STEPS[form]
        chroma = image[height * width :].reshape(height // step_y, width // step_x, 2)
        # Of the part alone: what is beyond it may be anything.
        first_row, first_col = y0 // step_y, x0 // step_x
        part = chroma[first_row : (y0 + h - 1) // step_y + 1, first_col : (x0 + w - 1) // step_x + 1]
        at = (rows + 0.5) / step_y - 0.5 - first_row, (cols + 0.5) / step_x - 0.5 - first_col
        u, v = sampled(part[..., 0], *at), sampled(part[..., 1], *at)
    pixels = colours(luma, u, v, matrix)[:: -1 if swap else 1]
    whole = np.tile(np.reshape(fill, (3, 1, 1)).astype(np.float64), (1, *size))
    whole[:, top : top + out_h, left : left + out_w] = pixels
    return (whole - np.reshape(MEAN, (3, 1, 1))) / np.reshape(STD, (3, 1, 1))


@pytest.fixture
def compiled(make_model, tmp_path):
    """Compiles y = |x| of an image by the command, and loads it."""

    def compile_(*options, quant="float32", shape=(1, 3, 12, 20)):
        path = tmp_path / "net.onnx"
        path.write_bytes(make_model([("Abs", ["x"], ["y"], {})], {"x": shape}, ["y"]).SerializeToString())
        mean, std = (",".join(map(str, numbers)) for numbers in (MEAN, STD))
        common = ("--quant", quant, "--image-mean", mean, "--image-std", std, "-q")
        assert main(["compile", str(path), "-o", str(tmp_path), *common, *options]) == 0
        return rt.load(tmp_path / "net.hmm")

    return compile_


@pytest.mark.parametrize("matrix", ["bt601", "bt709", "bt601-video", "bt709-video"])
@pytest.mark.parametrize("form", STEPS)
def test_static_images_equal_float64_arithmetic(compiled, form, matrix):
    module = compiled("--image", f"x={form},30,16", "--image-matrix", matrix)
    info = module.get_input_info("x")
    count = ImageInput(format=form, height=30, width=16).nbytes
    assert (info.mem_size, info.dtype, module.get_num_inputs()) == (count, np.uint8, 1)
    assert info.format.name == (form if form != "YUV400" else "ND")  # programs choose by it what they write
    image = RNG.integers(0, 256, count, dtype=np.uint8)
    module.set_input("x", image[None])
    module.run(sync=True)
    wanted = np.abs(expected(image, 30, 16, form, matrix, (12, 20)))
    np.testing.assert_allclose(module.get_output("y").numpy()[0], wanted, atol=2e-5, rtol=0)


def test_a_static_part_of_the_image_fills_the_input(compiled):
    module = compiled("--image", "x=YUV420SP,30,16", "--image-crop", "4,2,20,12")
    resizer = json.loads(module.get_custom_msg())["x"]["input_cfg"]["resizer"]
    assert resizer == {"toYUV_format": "YUV420SP", "resizer_input_size": [30, 16], "resizer_crop": [4, 2, 20, 12]}
    image = RNG.integers(0, 256, 30 * 16 * 3 // 2, dtype=np.uint8)
    module.set_input("x", image[None])
    module.run(sync=True)
    wanted = expected(image, 30, 16, "YUV420SP", "bt601", (12, 20), (4, 2, 20, 12, 12, 20, 0, 0, 0, 0))
    np.testing.assert_allclose(module.get_output("y").numpy()[0], np.abs(wanted), atol=2e-5, rtol=0)


def test_an_image_that_the_host_converted_comes_back_as_it_was(compiled):
    """Programs convert colours of 0 to 255 with BT.601 in full range."""
    module = compiled("--image", "x=YUV420SP,12,20")
    weights = [[0.299, 0.587, 0.114], [-0.169, -0.331, 0.5], [0.5, -0.419, -0.081]]
    for _ in range(4):
        colour = RNG.integers(0, 256, (3, 1, 1))
        flat = np.tile(colour, (1, 12, 20))
        y, u, v = np.rint(np.tensordot(weights, flat, 1) + np.reshape([0, 128, 128], (3, 1, 1))).clip(0, 255)
        image = np.concatenate([y.ravel(), np.stack([u, v], -1)[::2, ::2].ravel()])
        module.set_input("x", image.astype(np.float16)[None])  # as programs pass it
        module.run(sync=True)
        wanted = np.abs((flat - np.reshape(MEAN, (3, 1, 1))) / np.reshape(STD, (3, 1, 1)))
        # Half a step of Y and of each of U and V, times 1.772 at most, and 0.3 by the three digits of the weights.
        np.testing.assert_allclose(module.get_output("y").numpy()[0], wanted, atol=2.6 / min(STD), rtol=0)


def test_a_dynamic_crop_is_the_last_input_and_differs_by_image_and_run(compiled):
    options = ("--image", "x=YUV420SP,40,32", "--image-crop", "dynamic", "--image-fill", "114,10,200", "--image-bgr")
    module = compiled(*options, shape=(2, 3, 12, 20))
    assert [module.get_input_name(i) for i in range(2)] == ["x", "resizer_crop_x"]
    assert tuple(module.get_input_info("resizer_crop_x").shape) == (2, 10)
    message = json.loads(module.get_custom_msg())["x"]
    assert (message["resizer_mode"], message["shape"]) == (1, [2, 3, 12, 20])
    config = message["input_cfg"]
    assert (config["padding_mode"], config["resize_type"], config["data_format"]) == (1, 1, "BGR")  # numbers in C++
    assert config["resizer"] == {"toYUV_format": "YUV420SP", "resizer_input_size": [40, 32]}
    images = RNG.integers(0, 256, (2, 40 * 32 * 3 // 2), dtype=np.uint8)
    module.set_input("x", images)
    second = module.get_dev_input("x").select_roi([1, 0], [1, images.shape[1]])
    np.testing.assert_array_equal(second.numpy(), images[1:])
    first = [(4, 6, 20, 10, 8, 16, 2, 3, 2, 1), (0, 0, 40, 32, 12, 20, 0, 0, 0, 0)]
    for crops in (first, first[::-1]):
        module.set_input("resizer_crop_x", np.int32(crops))
        module.run(sync=True)
        for image, crop, got in zip(images, crops, module.get_output("y").numpy(), strict=True):
            wanted = expected(image, 40, 32, "YUV420SP", "bt601", (12, 20), crop, True, (114, 10, 200))
            np.testing.assert_allclose(got, np.abs(wanted), atol=2e-5, rtol=0)


def test_several_parts_of_each_image_are_as_many_results(compiled):
    """As the vendor's programs classify what they have detected: one picture, and a row of the crop for each object."""
    options = ("--image", "x=YUV420SP,40,32", "--image-crop", "dynamic", "--image-parts", "2", "--image-fill", "9,8,7")
    module = compiled(*options, shape=(4, 3, 12, 20))
    image, crop = module.get_input_info("x"), module.get_input_info("resizer_crop_x")
    assert (image.shape, image.mem_size) == ((2, 3, 40, 32), 2 * 40 * 32 * 3 // 2)
    assert (crop.shape, module.get_output_info("y").shape) == ((4, 10), (4, 3, 12, 20))
    assert json.loads(module.get_custom_msg())["x"]["shape"] == [4, 3, 12, 20]
    images = RNG.integers(0, 256, (2, image.mem_size // 2), dtype=np.uint8)
    crops = [
        (4, 6, 20, 10, 8, 16, 2, 3, 2, 1), (0, 0, 40, 32, 12, 20, 0, 0, 0, 0),
        (10, 2, 30, 30, 12, 12, 0, 4, 0, 4), (38, 30, 2, 2, 2, 2, 10, 18, 0, 0),
    ]  # fmt: skip
    module.set_input("x", images)
    module.set_input("resizer_crop_x", np.int32(crops))
    module.run(sync=True)
    for row, got in enumerate(module.get_output("y").numpy()):
        wanted = expected(images[row // 2], 40, 32, "YUV420SP", "bt601", (12, 20), crops[row], fill=(9, 8, 7))
        np.testing.assert_allclose(got, np.abs(wanted), atol=2e-5, rtol=0)


def test_crops_beyond_the_image_count_as_the_nearest_that_fit(compiled):
    module = compiled("--image", "x=YUV444SP,24,24", "--image-crop", "dynamic")
    module.set_input("x", RNG.integers(0, 256, (1, 24 * 24 * 3), dtype=np.uint8))
    largest = 2**31 - 1
    results = []
    for crop in ((-9, -largest, 999, largest, largest, 99, -3, -largest, 0, 0), (0, 0, 24, 24, 12, 20, 0, 0, 0, 0)):
        module.set_input("resizer_crop_x", np.int32([crop]))
        module.run(sync=True)
        results.append(module.get_output("y").numpy().copy())
    np.testing.assert_array_equal(*results)


def test_float16_networks_round_once(compiled):
    image = RNG.integers(0, 256, (1, 30 * 16 * 3 // 2), dtype=np.uint8)
    results = []
    for quant in ("float32", "float16"):
        module = compiled("--image", "x=YUV420SP,30,16", quant=quant)
        module.set_input("x", image)
        module.run(sync=True)
        results.append(module.get_output("y").numpy())
    np.testing.assert_array_equal(results[0].astype(np.float16), results[1])


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (("--image", "x=YUV420SP,31,16"), "expected even numbers"),
        (("--image", "x=YUV420SP,30,4098"), "expected even numbers up to 4096"),
        (("--image", "x=YUV420SP,30,2080,"), "expected INPUT=FORMAT,HEIGHT,WIDTH"),
        (("--image", "x=YUV420SP,30,2050"), "a multiple of 32 for more than 2048 columns"),
        (("--image", "x=YUV420SP,30,16", "--image-crop", "0,0,30"), "static, dynamic or Y,X,HEIGHT,WIDTH"),
        (("--image", "x=YUV420SP,30,16", "--image-crop", "2,0,30,16"), "expected even numbers inside it"),
        (("--image", "x=YUV420SP,30,16", "--image-crop", "0,1,20,12"), "expected even numbers inside it"),
        (("--image", "x=RGB,30,16"), "choose from YUV400"),
        (("--image", "z=YUV420SP,30,16"), "the model does not have"),
        (("--image", "x=YUV420SP,30"), "expected INPUT=FORMAT,HEIGHT,WIDTH"),
        (("--image", "x=YUV420SP,500,16"), "scales by 1/32 to 16"),
        (("--image", "x=YUV420SP,30,16", "--image-std", "1,0,1"), "the latter above 0"),
        (("--image", "x=YUV420SP,30,16", "--image-mean", "1,2"), "expected three numbers"),
        (("--image-mean", "1,2,3"), "--image-mean goes with --image INPUT=FORMAT,H,W, which is missing"),
        (("--image-bgr",), "--image-bgr goes with --image"),
        (("--image-parts", "2"), "--image-parts goes with --image"),
        (("--image", "x=YUV420SP,30,16", "--image-parts", "2"), "2 parts of an image; expected 1 or"),
        (("--image", "x=YUV420SP,30,16", "--image-crop", "dynamic", "--image-parts", "0"), "0 parts of an image"),
        (
            ("--image", "x=YUV420SP,30,16", "--image-crop", "dynamic", "--image-parts", "2"),
            "'x' has a batch of 1, expected a multiple of the 2 parts of an image (--batch)",
        ),
    ],
)
def test_images_that_the_chip_does_not_take_are_refused(make_model, tmp_path, capsys, options, text):
    path = tmp_path / "net.onnx"
    path.write_bytes(make_model([("Abs", ["x"], ["y"], {})], {"x": (1, 3, 12, 20)}, ["y"]).SerializeToString())
    assert main(["compile", str(path), "-o", str(tmp_path / "out"), *options]) == 2
    assert text in capsys.readouterr().err


@pytest.mark.parametrize(
    ("attributes", "text"),
    [
        ({"crop": "0,0,9,8,4,4,0,0,0,0"}, "does not lead from the image"),
        ({"crop": "0,0,8,8,4,4,1,0,0,0"}, "does not lead from the image"),
        ({"format": "NV12"}, "format"),
        ({"height": 7}, "7 rows"),
        ({"height": 10}, "expected uint8"),
        ({"fill": "0,0,256"}, "'fill' has 256"),
    ],
)
def test_the_runtime_refuses_a_resizer_that_reads_or_writes_beyond_its_memory(attributes, text):
    whole = {"crop": "0,0,8,8,4,4,0,0,0,0"}
    load_resizer(**whole)
    with pytest.raises(TcimError, match=text):
        load_resizer(**whole | attributes)


def load_resizer(results=1, crops=None, **attributes):
    """A Resizer of images of 8 x 8; `crops`: the rows of the input that says what is cut out."""
    maker = GraphMaker("g", "float32")
    operands = [maker.input("image", (1, 96), "uint8"), maker.weight("w", "float32", (3, 6))]
    attributes = {"format": "YUV420SP", "height": 8, "width": 8, "fill": "0,0,0", **attributes}
    operands += [maker.input("crop", (crops, 10), "int32")] if crops else []
    return rt.Module.load(maker.file(maker.op("Resizer", operands, "y", (results, 3, 4, 4), **attributes)))


@pytest.mark.parametrize(
    ("parts", "results", "rows", "text"),
    [
        (1, 1, 1, "'parts' is 1; expected 2 or more"),
        (-(2**62), 1, 1, "expected 2 or more"),
        (2**62, 2, 2, "expected 4611686018427387904 results for each image"),
        (2, 3, 3, "expected 2 results for each image"),
        (3, 2, 2, "expected 3 results for each image"),
        (2, 2, 1, r"expected int32 \[2, 10\]"),
        (2, 2, None, "expected 2 or more, and an operand that says which parts"),
    ],
)
def test_the_runtime_refuses_parts_that_do_not_fit_the_results(parts, results, rows, text):
    load_resizer(results=2, crops=2, parts=2)
    with pytest.raises(TcimError, match=text):
        load_resizer(results, rows, parts=parts)


def test_options_are_checked_where_they_are_made():
    with pytest.raises(CompileError, match="fill"):
        ImageInput(format="YUV400", height=8, width=8, fill=(0, 0, 300))


def test_an_image_for_channels_last_says_where_to_begin(make_model, tmp_path):
    """What follows the advice compiles: the result of the Transpose becomes the input."""
    nodes = [("Transpose", ["x"], ["first"], {"perm": [0, 3, 1, 2]}), ("Relu", ["first"], ["y"], {})]
    path = tmp_path / "net.onnx"
    path.write_bytes(make_model(nodes, {"x": (1, 8, 8, 3)}, ["y"]).SerializeToString())
    image = {"format": "YUV420SP", "height": 8, "width": 8}
    options = {"model": path, "output": tmp_path / "out"}
    with pytest.raises(CompileError, match=r"\[1, 8, 8, 3\]; .*; --begin-at the result of its Transpose"):
        compile_onnx(OnnxOptions(**options, images={"x": ImageInput(**image)}))
    compile_onnx(OnnxOptions(**options, begins=("first",), images={"first": ImageInput(**image)}))
