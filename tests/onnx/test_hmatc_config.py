"""`tcim-lite compile config.yml`: the package that the vendor's hmatc would look for."""

from __future__ import annotations

import json
import os

import numpy as np
import pytest

pytest.importorskip("onnx", reason="needs onnx")
yaml = pytest.importorskip("yaml", reason="needs PyYAML")

import tcim_lite.runtime as rt
from tcim_lite.cli import main

IMAGE = {
    "shape": [1, 3, 16, 24], "data_format": "RGB", "mean": [0.0, 0.0, 0.0], "std": [255.0, 255.0, 255.0],
    "resize_type": 1, "padding_mode": 1, "padding_values": [114, 114, 114],
}  # fmt: skip


@pytest.fixture
def folder(make_model, tmp_path):
    """A network of one image, and one of two inputs."""
    nodes = [("Relu", ["images"], ["y"], {})]
    (tmp_path / "net.onnx").write_bytes(make_model(nodes, {"images": (1, 3, 16, 24)}, ["y"]).SerializeToString())
    shapes = {"a": ("n", 3), "b": ("n", 3)}
    two = make_model([("Add", ["a", "b"], ["y"], {})], shapes, ["y"])
    (tmp_path / "two.onnx").write_bytes(two.SerializeToString())
    return tmp_path


def write(folder, entry, /, resizer=..., model_path="net.onnx", **sections):
    """A config.yml of one image; without `resizer` it has none."""
    inputs = {"images": entry if resizer is ... else {**entry, "resizer": resizer}}
    model = {"name": "net", "save_dir": "output", "model_path": model_path, "inputs": inputs}
    content = {"model": model, "quant": {"calib_data": "val2017"}, "build": {"ncore": 1, "opt_level": 2}, **sections}
    path = folder / "config.yml"
    path.write_text(yaml.safe_dump(content), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("resizer", "name", "info", "mode"),
    [
        (..., "net_xh2_b1_1core_O2", ("ND", (1, 3, 16, 24)), 0),
        ({"toYUV_format": "YUV420SP"}, "net_xh2_b1_1roi_1core_O2_static", ("YUV420SP", (1, 3, 16, 24)), 3),
        (None, "net_xh2_b1_1roi_1core_O2_static", ("YUV420SP", (1, 3, 16, 24)), 3),
        ({"resizer_mode": 1, "resizer_input_size": [64, 96], "toYUV_format": "YUV444SP"},
         "net_xh2_b1_1roi_1core_O2_dynamic_v2", ("YUV444SP", (1, 3, 64, 96)), 1),
        ({"resizer_input_size": [64, 96], "resizer_crop": [2, 4, 32, 48]},
         "net_xh2_b1_1roi_1core_O2_static", ("YUV420SP", (1, 3, 64, 96)), 3),
        ({"max_input_size": [64, 96]}, "net_xh2_b1_1roi_1core_O2_static", ("YUV420SP", (1, 3, 64, 96)), 3),
        ({"max_input_size": [64, 96], "enable_static_resizer": False},
         "net_xh2_b1_1roi_1core_O2_dynamic", ("YUV420SP", (1, 3, 64, 96)), 1),
    ],
)  # fmt: skip
def test_the_package_has_the_name_and_the_input_that_hmatc_expects(folder, resizer, name, info, mode):
    path = write(folder, IMAGE, resizer=resizer)
    assert main(["compile", str(path), "-q"]) == 0
    assert [file.name for file in (folder / "output" / "xh2").iterdir()] == [f"{name}.hmm"]
    module = rt.load(folder / "output" / "xh2" / f"{name}.hmm")
    found = module.get_input_info("images")
    assert (found.format.name, tuple(found.shape)) == info
    assert json.loads(module.get_custom_msg())["images"]["resizer_mode"] == mode
    assert module.get_num_inputs() == (2 if mode == 1 else 1)


def test_a_static_part_a_border_and_the_order_of_channels_are_those_of_the_file(folder):
    path = write(folder, {**IMAGE, "data_format": "BGR"}, resizer={"max_input_size": [64, 96]})
    assert main(["compile", str(path), "-q", "--quant", "float32", "-o", str(folder / "out"), "--name", "n"]) == 0
    module = rt.load(folder / "out" / "n.hmm")
    config = json.loads(module.get_custom_msg())["images"]["input_cfg"]
    assert config["resizer"]["resizer_crop"] == [0, 0, 16, 24]  # of earlier versions: what the network reads
    assert (config["data_format"], config["std"]) == ("BGR", [255.0] * 3)
    image = np.full((1, 64 * 96 * 3 // 2), 128, np.uint8)
    image[:, : 64 * 96] = 255  # beyond the part
    plane = image[0, : 64 * 96].reshape(64, 96)
    plane[:16, :24] = 51
    module.set_input("images", image)
    module.run(sync=True)
    np.testing.assert_allclose(module.get_output("y").numpy(), 0.2, rtol=1e-6)
    write(folder, IMAGE, resizer={"resizer_mode": 1, "resizer_input_size": [64, 96]})
    assert main(["compile", str(path), "-q", "--quant", "float32", "-o", str(folder / "out"), "--name", "d"]) == 0
    module = rt.load(folder / "out" / "d.hmm")
    module.set_input("images", image)
    module.set_input("resizer_crop_images", np.int32([[0, 0, 16, 24, 8, 24, 4, 0, 4, 0]]))
    module.run(sync=True)
    wanted = np.full((1, 3, 16, 24), 114 / 255, np.float32)
    wanted[:, :, 4:12] = 0.2
    np.testing.assert_allclose(module.get_output("y").numpy(), wanted, rtol=1e-6)


def test_several_parts_of_one_image(folder, make_model):
    model = make_model([("Relu", ["images"], ["y"], {})], {"images": ("n", 3, 16, 24)}, ["y"])
    (folder / "open.onnx").write_bytes(model.SerializeToString())
    resizer, build = {"resizer_mode": 1, "resizer_input_size": [64, 96]}, {"roi_num": 4, "batch": 2}
    assert main(["compile", str(write(folder, IMAGE, resizer, "open.onnx", build=build)), "-q"]) == 0
    module = rt.load(folder / "output" / "xh2" / "net_xh2_b2_4roi_1core_O2_dynamic_v2.hmm")
    shapes = [module.get_input_info(name).shape for name in ("images", "resizer_crop_images")]
    assert shapes == [(2, 3, 64, 96), (8, 10)]
    assert module.get_output_info("y").shape == (8, 3, 16, 24)


def test_open_axes_and_batches_of_several_inputs(folder):
    inputs = {"a": {"shape": [2, 3]}, "b": {"shape": [2, 3], "data_format": None}}
    model = {"name": "two", "save_dir": "output", "model_path": "two.onnx", "inputs": inputs}
    path = folder / "two.yaml"
    path.write_text(yaml.safe_dump({"model": model, "build": {"batch": 2, "ncore": 2}}), encoding="utf-8")
    assert main(["compile", str(path), "-q"]) == 0
    module = rt.load(folder / "output" / "xh2" / "two_xh2_b4_2core_O2.hmm")
    assert [tuple(module.get_input_info(name).shape) for name in "ab"] == [(4, 3), (4, 3)]


@pytest.mark.parametrize(("batch", "rows"), [("1", 2), ("3", 6)])
def test_the_batch_of_the_command_goes_before_that_of_the_file(folder, batch, rows, capsys):
    inputs = {name: {"shape": [2, 3]} for name in "ab"}
    model = {"name": "two", "save_dir": "output", "model_path": "two.onnx", "inputs": inputs}
    path = folder / "two.yaml"
    path.write_text(yaml.safe_dump({"model": model, "build": {"batch": 2}}), encoding="utf-8")
    assert main(["compile", str(path), "-q", "--batch", batch]) == 0
    module = rt.load(folder / "output" / "xh2" / f"two_xh2_b{rows}_1core_O2.hmm")
    assert tuple(module.get_input_info("a").shape) == (rows, 3)
    assert main(["compile", str(path), "--batch", "0"]) == 2
    assert "batch: 0: expected 1 or more" in capsys.readouterr().err


def test_the_network_may_lie_in_the_folder_of_models_and_end_before_its_end(folder, monkeypatch, capsys):
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir()
    path = write(elsewhere, IMAGE)
    assert main(["compile", str(path), "-q"]) == 2
    assert "model_path net.onnx is no file in" in capsys.readouterr().err
    monkeypatch.setenv("HOUMO_MODEL_PATH", str(folder))
    assert main(["compile", str(path), "--check"]) == 0
    assert main(["compile", str(path), "-q", "--end-at", "y"]) == 0
    assert (elsewhere / "output" / "xh2" / "net_xh2_b1_1core_O2.hmm").is_file()


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"version": 2}, "is of a language model: compile its checkpoint"),
        ({"model": None}, "config.yml: model: expected a mapping"),
        ({"model": {"inputs": {}}}, "inputs: it is empty"),
        ({"model": {"weight": "net.onnx", "inputs": [{"name": "x"}]}}, "of hmassist, which came before hmatc: compile"),
        ({"model": {"inputs": {"x": {"shape": "640"}}}}, "shape: expected a list of whole numbers, got '640'"),
        ({"model": {"inputs": {"x": {"shape": [1, 0]}}}}, "expected whole numbers above 0"),
        ({"model": {"inputs": {"x": {"shape": [1, 2.5]}}}}, "shape: expected a list of whole numbers, got [1, 2.5]"),
        ({"model": {"inputs": {"x": {"shape": [1, float("inf")]}}}}, "expected a list of whole numbers, got [1, inf]"),
        ({"model": {"inputs": {"x": {"shape": [1, 10**30]}}}}, "expected a list of whole numbers"),
        ({"model": {"inputs": {"x": {"shape": [1, 3]}}}}, "model_path: expected str, got None"),
        ({"build": {"batch": -1}}, "batch: -1: expected 0 or more"),
        ({"build": {"ncore": True}}, "ncore: expected int, got True"),
        ({"quant": {"quant_type": "w8w16a8a16_sefp"}}, "choose by --quant from w8a8h1_sefp, float16, float32"),
    ],
)
def test_configurations_that_are_none_are_refused(folder, capsys, change, text):
    path = write(folder, IMAGE, **change)
    assert main(["compile", str(path), "-q"]) == 2
    assert text in capsys.readouterr().err


@pytest.mark.parametrize(
    ("resizer", "build", "text"),
    [
        ({"resizer_mode": 2}, {}, "resizer_mode 2: expected 1 (dynamic) or 3 (static)"),
        ({"resizer_input_size": [64]}, {}, "expected two numbers for the size of the image"),
        ({"toYUV_format": "NV12"}, {}, "choose from YUV400"),
        ([], {}, "resizer: expected a mapping"),
        ({}, {"roi_num": 4}, "4 parts of an image; expected 1 or more, and above 1 a dynamic crop"),
        ({}, {"batch": 4}, "does not fit [1,3,16,24] of the file; for a batch export the network with an open axis 0"),
    ],
)
def test_images_that_are_not_offered_are_refused(folder, capsys, resizer, build, text):
    assert main(["compile", str(write(folder, IMAGE, resizer=resizer, build=build)), "-q"]) == 2
    assert text in capsys.readouterr().err


@pytest.mark.parametrize(
    ("entry", "text"),
    [
        ({"data_format": "rgb"}, "data_format 'rgb': expected RGB, BGR or GRAY"),
        ({"mean": [0.0]}, "expected three numbers for mean and std"),
        ({"mean": [float("nan")] * 3}, "expected numbers"),
        ({"std": None}, "std: expected a list of numbers, got None"),
        ({"padding_values": [float("inf")]}, "padding_values: expected a list of whole numbers"),
        ({"padding_values": [300]}, "fill (300, 300, 300)"),
    ],
)
def test_numbers_of_images_are_checked(folder, capsys, entry, text):
    path = write(folder, {**IMAGE, **entry}, resizer={"resizer_mode": 1})
    assert main(["compile", str(path), "-q"]) == 2
    assert text in capsys.readouterr().err


def test_a_file_that_repeats_itself_is_refused_at_once(tmp_path, capsys):
    """Aliases of aliases: printed in full, the value would fill the memory."""
    lines = ["a0: &a0 [x, x, x, x]", *(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 30))]
    path = tmp_path / "config.yml"
    path.write_text("\n".join([*lines, "model: {inputs: {x: {shape: *a29}}}"]), encoding="utf-8")
    assert main(["compile", str(path), "-q"]) == 2
    assert "expected a list of whole numbers, got [[[" in capsys.readouterr().err


@pytest.mark.parametrize("content", [b"a: [", b"\xff\xfe\x00", b"[]", b"1: 2", b"&a [*a]", b"- " * 3000, b"x" * 2**21])
def test_damaged_files_are_refused(tmp_path, capsys, content):
    path = tmp_path / "config.yml"
    path.write_bytes(content)
    assert main(["compile", str(path), "-q"]) == 2
    assert "config.yml" in capsys.readouterr().err
    assert main(["compile", str(tmp_path / "none.yml"), "-q"]) == 2


MERGES = "\n".join(f"a{i}: &a{i} {{k{i}: 1, <<: [{', '.join([f'*a{i - 1}'] * 9)}]}}" for i in range(1, 16))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"a0: &a0 {{k: x}}\n{MERGES}\nmodel: *a15", "no YAML: a mapping of more than 10000 keys"),
        ("model: !!timestamp x", "no YAML: "),
        ("model: !!bool x", "no YAML: "),
        ('model: {name: "a", save_dir: "\\0", model_path: net.onnx, inputs: {a: {shape: [1]}}}', "text without NUL"),
        (None, "is not a regular file"),
    ],
    ids=["merges", "timestamp", "bool", "nul", "fifo"],
)
def test_hostile_files_are_refused_at_once(folder, capsys, text, message):
    path = folder / "config.yml"
    if text is None:
        os.mkfifo(path)
    else:
        path.write_text(text, encoding="utf-8")
    assert main(["compile", str(path)]) == 2
    assert message in capsys.readouterr().err
