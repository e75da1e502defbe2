"""`tcim-lite golden`: what passes, and that nothing passes unseen."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tcim_lite.cli import main
from tcim_lite.diff.golden import check, compare
from tcim_lite.errors import ArgumentError

RNG = np.random.default_rng(21)
SHAPE = (2, 8)
WEIGHT = RNG.standard_normal((8, 6)).astype(np.float32)


@pytest.fixture
def package(make_model, tmp_path):
    """A network with two inputs, whose names have the letters that file names lose, and two outputs."""
    nodes = [
        ("MatMul", ["in:put/1", "w"], ["p"], {}),
        ("Add", ["p", "more"], ["y/1"], {}),
        ("Relu", ["y/1"], ["z"], {}),
    ]
    model = make_model(nodes, {"in:put/1": SHAPE, "more": (2, 6)}, ["y/1", "z"], {"w": WEIGHT})
    path = tmp_path / "net.onnx"
    path.write_bytes(model.SerializeToString())
    assert main(["compile", str(path), "-o", str(tmp_path / "out"), "--quant", "float16", "-q"]) == 0
    return tmp_path / "out"


def arrays():
    x, more = RNG.standard_normal(SHAPE).astype(np.float32), RNG.standard_normal((2, 6)).astype(np.float32)
    y = x @ WEIGHT + more
    return {"in_put_1_input": x, "more_input": more, "y_1_output": y, "z_output": np.maximum(y, 0)}


def write(folder, files):
    folder.mkdir(parents=True, exist_ok=True)
    for name, array in files.items():
        np.save(folder / f"hmquant_net_{name}.npy", array)
    return folder


def failures(package, folder, *options):
    return {verdict.tensor: verdict.reason for verdict in check(package, folder, *options) if not verdict.passed}


@pytest.mark.parametrize("place", ["", "golden/step_0", "step_0"])
def test_files_of_the_vendor_s_names_pass(package, tmp_path, place, capsys):
    write(tmp_path / "g" / place, arrays())
    assert main(["golden", str(package), str(tmp_path / "g"), "--cosine", "0.999"]) == 0
    shown = capsys.readouterr().out
    assert re.search(r"pass  .*net y/1  (0.99999|1.0000)", shown)
    assert "2 pass, 0 fail, limit 0.999" in shown


def test_every_step_is_run_and_judged(package, tmp_path):
    for step in range(3):
        write(tmp_path / f"step_{step}", arrays())
    verdicts = check(package / "net.hmm", tmp_path)
    assert [(verdict.step, verdict.tensor) for verdict in verdicts] == [
        (f"step_{step}", name) for step in range(3) for name in ("y/1", "z")
    ]
    assert all(verdict.passed and verdict.cosine > 0.99999 for verdict in verdicts)


def test_an_output_passes_from_its_limit_on(package, tmp_path):
    files = arrays()
    y = files["y_1_output"].astype(np.float64)
    turned = np.zeros_like(y)
    turned[0, 0], turned[0, 1] = y[0, 1], -y[0, 0]  # at a right angle to y
    files["y_1_output"] = (y + 0.1 * np.linalg.norm(y) / np.linalg.norm(turned) * turned).astype(np.float32)
    write(tmp_path / "g", files)  # a cosine of 1 / sqrt(1.01) = 0.99504
    assert failures(package, tmp_path / "g") == {}
    assert failures(package, tmp_path / "g", 0.995) == {}
    assert failures(package, tmp_path / "g", 0.9951) == {"y/1": "the cosine is below 0.9951"}
    assert main(["golden", str(package), str(tmp_path / "g"), "--cosine", "0.999"]) == 1


@pytest.mark.parametrize("name", ["in_put_1_input", "more_input", "y_1_output", "z_output"])
def test_nothing_passes_where_a_file_is_missing(package, tmp_path, name, capsys):
    files = arrays()
    del files[name]
    write(tmp_path / "g", files)
    assert main(["golden", str(package), str(tmp_path / "g")]) == 1
    assert f"hmquant_net_{name}.npy is missing" in capsys.readouterr().out


def test_a_file_of_no_tensor_and_a_graph_without_files_fail(package, tmp_path):
    write(tmp_path / "g", arrays() | {"other_output": np.zeros(3)})
    assert failures(package, tmp_path / "g") == {"hmquant_net_other_output.npy": "is of no tensor of the package"}
    (package / "second.hmm").write_bytes((package / "net.hmm").read_bytes())
    write(tmp_path / "h", arrays())
    assert list(failures(package, tmp_path / "h").values()) == [
        "has no golden files (hmquant_second_*_input.npy, *_output.npy)"
    ]
    assert failures(package, tmp_path / "h", 0.98, ["net"]) == {}


def test_a_step_that_is_missing_or_empty_is_no_pass(package, tmp_path):
    write(tmp_path / "step_0", arrays())
    write(tmp_path / "step_2", arrays())
    with pytest.raises(ArgumentError, match="step_1 is missing"):
        check(package, tmp_path)
    (tmp_path / "step_1").mkdir()
    assert failures(package, tmp_path) == {"step_1": "has no golden file of the package"}
    with pytest.raises(ArgumentError, match="has no golden files"):
        check(package, tmp_path / "step_1")
    assert main(["golden", str(package), str(tmp_path / "nowhere")]) == 2


def test_nan_and_other_shapes_fail_and_infinities_are_the_largest_float16(package, tmp_path):
    files = arrays()
    files["z_output"][0, 0] = np.nan
    files["y_1_output"] = files["y_1_output"].reshape(6, 2)
    write(tmp_path / "g", files)
    assert failures(package, tmp_path / "g") == {
        "y/1": "has the shape [2, 6], the golden file [6, 2]",
        "z": "the golden file has a NaN",
    }
    half = np.array([65504, 1, 2], np.float16)
    infinite = np.array([np.inf, 1, 2], np.float32)
    assert compare(infinite, half, 0.9999) == (1.0, True, "")
    assert compare(half, -infinite, 0.98)[:2] == (-1.0, False)
    assert compare(half, half * np.float16(np.nan), 0.98) == (None, False, "the result has a NaN")


def test_an_input_that_the_runtime_refuses_is_a_failure(package, tmp_path):
    files = arrays()
    files["more_input"][0, 0] = np.inf
    write(tmp_path / "g", files)
    failed = failures(package, tmp_path / "g")
    assert failed[""].startswith("does not run: run: input 'more' holds a NaN or an infinity")
    assert failed["z"] == "was not computed"


def test_equal_zeros_pass_and_zeros_for_numbers_do_not(package, tmp_path):
    files = {name: np.zeros_like(array) for name, array in arrays().items()}
    write(tmp_path / "g", files)
    assert failures(package, tmp_path / "g") == {}
    files["z_output"][0, 0] = 1
    write(tmp_path / "g", files)
    assert failures(package, tmp_path / "g") == {"z": "the cosine is below 0.98"}


def test_one_input_is_repeated_for_a_larger_batch(make_model, tmp_path):
    model = make_model([("Relu", ["x"], ["y"], {})], {"x": ("N", 3)}, ["y"])
    (tmp_path / "net.onnx").write_bytes(model.SerializeToString())
    assert main(["compile", str(tmp_path / "net.onnx"), "-o", str(tmp_path / "out"), "--batch", "4", "-q"]) == 0
    x = RNG.standard_normal((1, 3)).astype(np.float32)
    write(tmp_path / "g", {"x_input": x, "y_output": np.maximum(x, 0)})
    assert failures(tmp_path / "out", tmp_path / "g") == {}
    write(tmp_path / "h", {"x_input": np.tile(x, (3, 1)), "y_output": np.maximum(x, 0)})
    assert failures(tmp_path / "out", tmp_path / "h")["x"].endswith("has the shape [3, 3], the input [4, 3]")


def test_a_file_that_is_no_array_is_named(package, tmp_path, capsys):
    write(tmp_path / "g", arrays())
    (tmp_path / "g" / "hmquant_net_z_output.npy").write_bytes(b"no array")
    assert main(["golden", str(package), str(tmp_path / "g")]) == 2
    assert "hmquant_net_z_output.npy: is no .npy file" in capsys.readouterr().err
