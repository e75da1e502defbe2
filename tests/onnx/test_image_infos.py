"""Infos of image inputs: four axes, of which the vendor's programs read rows and columns, and bytes by the format."""

from __future__ import annotations

import json

import numpy as np
import pytest

pytest.importorskip("onnx", reason="needs onnx")

import tcim_lite.runtime as rt
from tcim_lite import layers
from tcim_lite.bench.network import measure_network
from tcim_lite.cli import main
from tcim_lite.errors import ArgumentError, ShapeError, StrictError
from tcim_lite.models.onnx.compile import OnnxOptions, compile_onnx
from tcim_lite.models.onnx.resizer import ImageInput
from tcim_lite.replay import assert_replays

RNG = np.random.default_rng(422)
HEIGHT, WIDTH = 16, 30
BYTES = {"YUV420SP": 720, "YUV422SP": 960, "YUV444SP": 1440}


@pytest.fixture
def package(make_model, tmp_path):
    """The .hmm of y = |x| with an image as input."""

    def make(form="YUV420SP", batch=1, dynamic=False):
        model = make_model([("Abs", ["x"], ["y"], {})], {"x": (batch, 3, 8, 10)}, ["y"])
        path = tmp_path / "net.onnx"
        path.write_bytes(model.SerializeToString())
        image = ImageInput(format=form, height=HEIGHT, width=WIDTH, dynamic=dynamic)
        options = OnnxOptions(model=path, output=tmp_path / "out", quant="float32", images={"x": image})
        return compile_onnx(options).path

    return make


def result(module):
    module.run(sync=True)
    return module.get_output("y").numpy().copy()


@pytest.mark.parametrize("form", BYTES)
def test_an_image_has_four_axes_and_the_bytes_of_its_format(package, form):
    info = rt.load(package(form, batch=2)).get_input_info("x")
    assert (info.shape, info.dtype, info.format.name) == ((2, 3, HEIGHT, WIDTH), np.uint8, form)
    assert info.mem_size == 2 * BYTES[form]
    assert info.ascontiguous().astype(np.uint8).is_match(info)
    # As the vendor's runtime prints it: of Y, of U and V, and where these begin.
    image, columns = BYTES[form], WIDTH if form == "YUV444SP" else WIDTH // 2
    assert info.stride == (image, WIDTH, 1, image, columns * 2, 2, 1, HEIGHT * WIDTH)


def test_an_image_of_luma_alone_is_a_plain_array_of_four_axes(package):
    module = rt.load(package("YUV400"))
    info = module.get_input_info("x")
    assert (info.shape, info.format.name, info.mem_size) == ((1, 1, HEIGHT, WIDTH), "ND", HEIGHT * WIDTH)
    module.set_input("x", np.zeros(info.shape, info.dtype))
    result(module)


def test_arrays_of_the_right_bytes_are_taken_whatever_their_axes(package):
    module = rt.load(package())
    image = RNG.integers(0, 256, 720, np.uint8)
    module.set_input("x", image.reshape(1, -1))
    wanted = result(module)
    others = (
        image,
        image.reshape(1, HEIGHT * 3 // 2, WIDTH),  # what OpenCV makes
        image.reshape(1, -1).astype(np.float16),  # what the vendor's converter feeds
        rt.Tensor(module.get_input_info("x"), image),
    )
    for other in others:
        module.set_input("x", np.zeros(720, np.uint8))
        module.set_input("x", other)
        np.testing.assert_array_equal(result(module), wanted)
    np.testing.assert_array_equal(module.get_dev_input("x").numpy(), image[None])


@pytest.mark.parametrize("form", BYTES)
@pytest.mark.parametrize("dtype", [np.uint8, np.float16])
def test_images_may_lie_in_an_array_of_their_shape_with_zeros_behind_them(package, form, dtype):
    """As the vendor's SigLIP demo feeds them; also where the array is a view with gaps."""
    module = rt.load(package(form, batch=2))
    images = RNG.integers(0, 256, (2, BYTES[form]), np.uint8)
    module.set_input("x", images)
    wanted = result(module)
    whole = np.zeros((2, 3, HEIGHT, 2 * WIDTH), dtype)
    padded = whole[..., ::2]
    flat = np.zeros((2, 3 * HEIGHT * WIDTH), dtype)
    flat[:, : BYTES[form]] = images
    padded[:] = flat.reshape(padded.shape)
    info = module.get_input_info("x")
    tensors = rt.Tensor(info, padded), rt.Tensor(info.astype(dtype), padded)
    for given in (padded, np.ascontiguousarray(padded), *tensors):
        module.set_input("x", np.zeros_like(images))
        module.set_input("x", given)
        np.testing.assert_array_equal(module.get_dev_input("x").numpy(), images)
        np.testing.assert_array_equal(result(module), wanted)


@pytest.mark.parametrize("form", ["YUV420SP", "YUV422SP"])
def test_three_whole_planes_are_refused_with_the_bytes_of_an_image(package, form):
    module = rt.load(package(form, batch=2))
    size = BYTES[form]
    note = rf"three whole planes \[2, 3, 16, 30\]; an image has {size} bytes, all rows of Y, .*zeros behind them"
    planes = np.zeros((2, 3, HEIGHT, WIDTH), np.uint8)
    planes[1].reshape(-1)[size] = 1  # right behind the second image
    with pytest.raises(ShapeError, match=f"set_input error: input 'x': {note}"):
        module.set_input("x", planes)
    with pytest.raises(ShapeError, match=f"Tensor: {note}"):
        rt.Tensor(module.get_input_info("x"), planes)
    with pytest.raises(ArgumentError, match=r"3000"):
        module.set_input("x", np.full((2, 3, HEIGHT, WIDTH), 3000, np.int32))
    with pytest.raises(ShapeError, match=rf"with {2 * size} elements, got shape \[2, 3, 30, 16\] with 2880; an image"):
        module.set_input("x", planes.reshape(2, 3, WIDTH, HEIGHT))
    with pytest.raises(ShapeError, match=r"has 2880 elements, .* needs"):
        rt.Tensor(module.get_input_info("x"), planes.reshape(6, -1))


def test_whole_images_are_selected_by_four_axes_or_by_bytes(package):
    module = rt.load(package(batch=3))
    images = RNG.integers(0, 256, (3, 720), np.uint8)
    module.set_input("x", images)
    tensor = module.get_dev_input("x")
    for start, shape in (([1, 0, 0, 0], [2, 3, HEIGHT, WIDTH]), ([1, 0], [2, 720])):
        some = tensor.select_roi(start, shape)
        assert some.shape == (2, 3, HEIGHT, WIDTH)
        np.testing.assert_array_equal(some.numpy(), images[1:])
    with pytest.raises(ArgumentError, match="no whole images"):
        tensor.select_roi([0, 0, 0, 0], [1, 3, 8, 8])
    with pytest.raises(ShapeError, match=r"2 image\(s\) from 2 on do not lie inside uint8 YUV420SP \[3, "):
        tensor.select_roi([2, 0, 0, 0], [2, 3, HEIGHT, WIDTH])


def test_the_vendors_converter_finds_batch_format_and_crop(package):
    """Its reading of a package, then of a golden image that is stored in as many numbers as three planes have."""
    module = rt.load(package(batch=2, dynamic=True))
    infos = {name: module.get_input_info(name) for name in map(module.get_input_name, range(module.get_num_inputs()))}
    assert {name: list(info.shape) for name, info in infos.items()} == {
        "x": [2, 3, HEIGHT, WIDTH],
        "resizer_crop_x": [2, 10],
    }
    stored = np.zeros((1, 3, HEIGHT, WIDTH), np.float16)
    stored.reshape(-1)[:720] = RNG.integers(0, 256, 720)
    size = {"YUV420SP": stored.size // 2}[infos["x"].format.name]
    image = np.repeat(stored.reshape(-1)[:size].reshape(1, -1), infos["x"].shape[0], axis=0)
    module.set_input("x", np.ascontiguousarray(image))
    _, _, rows, columns = json.loads(module.get_custom_msg())["x"]["shape"]
    crop = np.int32([[0, 0, *infos["x"].shape[2:], rows, columns, 0, 0, 0, 0]])
    module.set_input("resizer_crop_x", np.repeat(crop, 2, axis=0))
    first, second = result(module)
    assert first.any()
    np.testing.assert_array_equal(first, second)


def test_what_describes_a_package_names_the_format_and_four_axes(package, capsys):
    path = package()
    (port,) = json.loads(rt.load_model_info(path))["input"]
    assert port == {"name": "x", "shape": [1, 3, 16, 30], "dtype": "UINT8", "format": "YUV420SP"}
    assert main(["inspect", str(path)]) == 0
    assert "x  uint8 YUV420SP [1, 3, 16, 30]" in capsys.readouterr().out


def test_the_benchmark_feeds_images_by_their_bytes(package, known_limits):
    assert measure_network(package(dynamic=True, batch=2), quick=True).batch == 2


def test_images_are_recorded_and_replayed(package, tmp_path):
    path, recording = package(batch=2), tmp_path / "images.tcimrec"
    images = RNG.integers(0, 256, (2, 720), np.uint8)
    layers.enable("record", file=recording, data="all")
    try:
        module = rt.load(path)
        module.set_input("x", rt.Tensor(module.get_input_info("x"), images))
        second = module.get_dev_input("x").select_roi([1, 0, 0, 0], [1, 3, HEIGHT, WIDTH]).to_host()
        module.set_input("x", np.concatenate([second.numpy()] * 2))
        result(module)
        padded = np.zeros((2, 3 * HEIGHT * WIDTH), np.uint8)
        padded[:, :720] = images
        module.set_input("x", padded.reshape(2, 3, HEIGHT, WIDTH))
        result(module)
        del module
    finally:
        layers.disable("record")
    assert_replays(recording)


def test_strict_mode_misses_an_image_of_which_nothing_was_set(package):
    layers.enable("strict", mode="error")
    try:
        module = rt.load(package(dynamic=True))
        module.set_input("resizer_crop_x", np.int32([[0, 0, 12, 20, 8, 10, 0, 0, 0, 0]]))
        with pytest.raises(StrictError, match=r"S-402: .* Input 'x'"):
            module.run(sync=True)
    finally:
        layers.disable("strict")


def test_the_c_plus_plus_programs_of_the_vendor_run(package, sdk, tmp_path):
    from cpp_programs import facade_programs, run

    program = facade_programs(sdk, "images") / "images"
    path = package(dynamic=True)
    module = rt.load(path)
    whole = RNG.integers(0, 256, 720, np.uint8)
    picture = RNG.integers(0, 256, 12 * 20 * 3 // 2, np.uint8)
    larger = np.zeros((HEIGHT * 3 // 2, WIDTH), np.uint8)  # with the picture at its top left
    larger[:12, :20] = picture[:240].reshape(12, 20)
    larger[HEIGHT : HEIGHT + 6, :20] = picture[240:].reshape(6, 20)
    for how, image, content, rows, columns in (
        ("whole", whole, whole, HEIGHT, WIDTH),
        ("picture", picture, larger, 12, 20),
    ):
        (tmp_path / "image").write_bytes(image.tobytes())
        strict = {"TCIM_LITE_STRICT": "error"}  # which takes a picture for all that the crop reads
        printed = run(program, how, path, tmp_path / "image", str(rows), str(columns), env=strict)
        module.set_input("x", content)
        module.set_input("resizer_crop_x", np.int32([[0, 0, rows, columns, 8, 10, 0, 0, 0, 0]]))
        np.testing.assert_allclose(np.fromstring(printed, np.float32, sep=" "), result(module).reshape(-1), rtol=1e-6)
