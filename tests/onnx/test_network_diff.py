"""`tcim-lite diff` and `dump` of networks, by their folders."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tcim_lite.cli import main
from tcim_lite.diff.metrics import difference
from tcim_lite.diff.report import beyond
from tcim_lite.hmm import read
from tcim_lite.models.onnx import OnnxOptions, compile_onnx, onnx_bytes

NETWORK = Path(__file__).parents[2] / "examples/demo_networks/shapes_classifier.onnx"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The demo classifier in float32 and in w8a8, and an image."""
    pytest.importorskip("onnx", reason="needs onnx")
    made = tmp_path_factory.mktemp("networks")
    for quant in ("float32", "w8a8h1_sefp"):
        compile_onnx(OnnxOptions(model=NETWORK, output=made / quant, quant=quant, batch=1))
    np.save(made / "image.npy", np.random.default_rng(0).random((1, 3, 64, 64)).astype(np.float16))
    return made


def test_no_op_of_a_quantised_network_leaves_the_bound_of_its_format(folder, tmp_path, capsys):
    sides = [str(folder / quant) for quant in ("float32", "w8a8h1_sefp")]
    given = ["--input", f"input={folder / 'image.npy'}"]
    assert main(["diff", *sides, *given, "-o", str(tmp_path / "diff")]) == 0
    assert "no op leaves its bound" in capsys.readouterr().out
    assert main(["diff", *sides, *given, "-o", str(tmp_path / "diff"), "--bound", "exact"]) == 1
    assert "first beyond its bound: the op Conv that makes" in capsys.readouterr().out
    assert main(["dump", sides[0], *given, "-o", str(tmp_path / "dump")]) == 0


def test_values_have_the_same_names_in_every_format(make_model, tmp_path):
    """Only the products of w8a8 need whole groups, hence a Pad."""
    nodes = [("MatMul", ["x", "w"], ["a"], {}), ("Relu", ["a"], ["b"], {}), ("MatMul", ["b", "w"], ["c"], {})]
    constants = {"w": np.ones((72, 72), np.float32)}
    model = make_model([*nodes, ("Sigmoid", ["c"], ["y"], {})], {"x": (2, 72)}, ["y"], constants)
    names = []
    for quant in ("float32", "w8a8h1_sefp"):
        path = tmp_path / f"{quant}.hmm"
        path.write_bytes(onnx_bytes(model, quant))
        graph = read(path).graphs[0]
        names.append([graph.values[op.outputs[0]].name for op in graph.ops if op.kind != "Pad"])
    assert names[0] == names[1] == ["Linear_0", "Relu_0", "Linear_1", "y"]


def test_a_folder_of_several_networks_needs_a_name(folder, tmp_path, capsys):
    for name in ("one", "two"):
        compile_onnx(OnnxOptions(model=NETWORK, output=tmp_path / "both", name=name, quant="float16", batch=1))
    command = ["diff", str(tmp_path / "both"), str(tmp_path / "both"), "--input", f"input={folder / 'image.npy'}"]
    assert main([*command, "-o", str(tmp_path / "diff")]) == 2
    assert "holds several networks (one, two); say which with --name" in capsys.readouterr().err
    assert main([*command, "-o", str(tmp_path / "diff"), "--name", "two"]) == 0


def test_a_step_of_a_number_with_few_bits_is_a_rounding_unless_bits_have_to_be_equal():
    right = np.float32([3e-7, -2e-7])
    found = difference(right, right.astype(np.float16))
    assert found is not None
    assert found.relative > 2**-10
    assert not beyond(found, 2**-10)
    assert beyond(found, 0)
