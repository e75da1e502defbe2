"""Inputs that are constants instead: switches and sizes that a file leaves to its caller."""

from __future__ import annotations

import re

import numpy as np
import pytest

import tcim_lite.runtime as rt
from tcim_lite.cli import main
from tcim_lite.models.common.errors import CompileError
from tcim_lite.models.onnx import OnnxOptions, check_onnx, compile_onnx

onnx = pytest.importorskip("onnx", reason="needs onnx")
from onnx import TensorProto, helper

X = np.arange(24, dtype=np.float32).reshape(1, 2, 3, 4)


@pytest.fixture
def saved(tmp_path):
    """Writes a model of nodes (op, inputs, outputs, attributes) and inputs (type, shape), and returns its path."""

    def save(nodes, inputs, outputs, constants):
        graph = helper.make_graph(
            [helper.make_node(op, ins, outs, name=f"n{i}", **attrs) for i, (op, ins, outs, attrs) in enumerate(nodes)],
            "network",
            [helper.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in inputs.items()],
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
            [onnx.numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
        onnx.save(model, tmp_path / "net.onnx")
        return tmp_path / "net.onnx"

    return save


def branch(op, inputs, output):
    node = helper.make_node(op, inputs, [output], name=f"inside {output}")
    return helper.make_graph([node], "branch", [], [helper.make_tensor_value_info(output, TensorProto.FLOAT, None)])


@pytest.fixture
def resized(saved):
    """As the decoder of SAM ends: an input says how large the masks become."""
    nodes = [
        ("Cast", ["size"], ["whole"], {"to": TensorProto.INT64}),
        ("Concat", ["ones", "whole"], ["sizes"], {"axis": 0}),
        ("Resize", ["x", "", "", "sizes"], ["y"], {"mode": "nearest"}),
    ]
    inputs = {"x": (TensorProto.FLOAT, X.shape), "size": (TensorProto.FLOAT, [2])}
    return saved(nodes, inputs, ["y"], {"ones": np.array([1, 2])})


@pytest.fixture
def rates(saved):
    """As a voice detector for two sample rates begins: the other branch does not fit the input."""
    choice = {
        "then_branch": branch("Mul", ["x", "x"], "square"),
        "else_branch": branch("MatMul", ["x", "other"], "product"),
    }
    nodes = [("Constant", [], ["sixteen"], {"value_int": 16000}), ("Equal", ["sr", "sixteen"], ["is"], {})]
    inputs = {"x": (TensorProto.FLOAT, X.shape), "sr": (TensorProto.INT64, [])}
    return saved([*nodes, ("If", ["is"], ["y"], choice)], inputs, ["y"], {"other": np.ones((9, 9), np.float32)})


def run(folder, **feeds):
    module = rt.Module.load(folder / "net.hmm")
    assert [module.get_input_name(i) for i in range(module.get_num_inputs())] == [*feeds]
    for name, array in feeds.items():
        module.set_input(name, array)
    module.run(sync=True)
    return module.get_output("y").numpy()


def test_an_input_is_a_constant(resized, tmp_path):
    command = ["compile", str(resized), "-o", str(tmp_path / "out"), "--quant", "float32", "-q"]
    assert main([*command, "--constant", "size=6,8"]) == 0
    assert np.array_equal(run(tmp_path / "out", x=X), X.repeat(2, 2).repeat(2, 3))
    np.save(tmp_path / "size.npy", np.array([[6, 4]]))
    assert main([*command, "--constant", f"size={tmp_path}/size.npy"]) == 0
    assert np.array_equal(run(tmp_path / "out", x=X), X.repeat(2, 2))
    assert main([*command, "--constant", "size=5"]) == 0  # fills the shape
    assert run(tmp_path / "out", x=X).shape == (1, 2, 5, 5)


def test_a_scalar_chooses_a_branch(rates, tmp_path):
    constants = {"sr": (16000.0,)}
    compile_onnx(OnnxOptions(model=rates, output=tmp_path / "out", quant="float32", constants=constants))
    assert np.array_equal(run(tmp_path / "out", x=X), X * X)


def test_a_refusal_and_the_check_name_the_input(resized, tmp_path, capsys):
    said = "with a constant instead of the input 'size' it is supported, such as --constant size=1,1"
    with pytest.raises(CompileError, match=r"'n2' \(Resize\).*") as error:
        compile_onnx(OnnxOptions(model=resized, output=tmp_path / "out"))
    assert f"; {said}; all before it compiles with --end-at sizes" in str(error.value)
    assert main(["compile", str(resized), "--check"]) == 1
    assert said in capsys.readouterr().out.splitlines()


def test_the_number_that_the_network_compares_with_is_proposed(rates):
    found = check_onnx(OnnxOptions(model=rates))
    assert str(found.deciding).endswith("such as --constant sr=16000")


def test_the_check_lists_what_is_refused_inside_an_if(rates, capsys):
    assert main(["compile", str(rates), "--check"]) == 1
    assert any(line.startswith("     1  MatMul  not supported: ") for line in capsys.readouterr().out.splitlines())


def test_sizes_of_each_image_say_which_rows_are_padding(saved, tmp_path, run_there):
    """As SigLIP 2 has them: rows behind height x width become one row, and there may be none of those."""
    nodes = [
        ("ReduceProd", ["sizes"], ["used"], {"keepdims": 0}),
        ("Sub", ["all", "used"], ["more"], {}),
        ("Unsqueeze", ["more", "zero"], ["count"], {}),
        ("Concat", ["count", "columns"], ["shape"], {"axis": 0}),
        ("ReduceMean", ["x"], ["row"], {"axes": [0]}),
        ("Expand", ["row", "shape"], ["rows"], {}),
        ("Range", ["used", "all", "one"], ["behind"], {}),
        ("Unsqueeze", ["behind", "last"], ["places"], {}),
        ("ScatterND", ["x", "places", "rows"], ["y"], {}),
    ]
    constants = {"all": 6, "one": 1, "zero": [0], "last": [1], "columns": [4]}
    inputs = {"x": (TensorProto.FLOAT, [6, 4]), "sizes": (TensorProto.INT64, [1, 2])}
    path = saved(nodes, inputs, ["y"], {name: np.array(value) for name, value in constants.items()})
    assert str(check_onnx(OnnxOptions(model=path)).deciding).endswith("such as --constant sizes=1,1")
    x = np.arange(24, dtype=np.float32).reshape(6, 4)
    for sizes in ((2, 3), (2, 2)):
        constants = {"sizes": sizes}
        compile_onnx(OnnxOptions(model=path, output=tmp_path / "out", quant="float32", constants=constants))
        wanted = run_there(onnx.load(path), {"x": x, "sizes": np.array([sizes])})["y"]
        assert np.array_equal(run(tmp_path / "out", x=x), wanted)


def test_nothing_is_proposed_where_no_constant_helps(saved):
    inputs = {"x": (TensorProto.FLOAT, [2, 3]), "s": (TensorProto.FLOAT, [1])}
    path = saved([("Add", ["x", "s"], ["a"], {}), ("NonZero", ["a"], ["y"], {})], inputs, ["y"], {})
    assert check_onnx(OnnxOptions(model=path)).deciding is None


@pytest.mark.parametrize(
    ("constant", "message"),
    [
        ("sr=16000.5", r"--constant sr=16000.5: the input is int64 \[\], expected whole numbers that it can be"),
        ("sr=1,2", r"--constant sr=1,2: the input is int64 \[\], expected 1 number"),
        ("rate=1", "--constant rate=1 names an input that the model does not have; it has sr, x"),
        ("sr=", "--constant sr=: expected INPUT=NUMBER,.. such as orig_im_size=1200,1800"),
        ("sr=high", "--constant sr=high: expected INPUT=NUMBER"),
        ("sr=none.npy", "--constant sr=none.npy: No such file"),
        ("sr=nan", r"--constant sr=nan: the input is int64 \[\], expected whole numbers that it can be"),
        ("x=nan", r"--constant x=nan: the input is float32 \[.*\], expected finite numbers of its range"),
        ("x=-inf", "--constant x=-inf: .* expected finite numbers of its range"),
        ("x=1e39", r"--constant x=.*e\+38: .* expected finite numbers of its range"),
    ],
)
def test_numbers_that_do_not_fit_are_refused(constant, message, rates, tmp_path, capsys):
    assert main(["compile", str(rates), "-o", str(tmp_path / "out"), "--constant", constant]) == 2
    assert re.search(message, capsys.readouterr().err)


def test_a_file_without_numbers_is_refused(rates, tmp_path, capsys):
    (tmp_path / "text.npy").write_text("16000")
    np.save(tmp_path / "names.npy", np.array(["fast"]))
    np.save(tmp_path / "none.npy", np.zeros(0))
    np.savez(tmp_path / "many", a=np.zeros(1))
    (tmp_path / "many.npz").rename(tmp_path / "many.npy")
    (tmp_path / "short.npy").write_bytes((tmp_path / "many.npy").read_bytes()[:40])
    for name in ("text", "names", "none", "many", "short"):
        command = ["compile", str(rates), "-o", str(tmp_path / "out"), "--constant", f"sr={tmp_path}/{name}.npy"]
        assert main(command) == 2
        assert "or a file of such numbers that numpy saved as INPUT=FILE.npy" in capsys.readouterr().err


def test_an_empty_output_is_left_out_with_what_the_message_says(saved, tmp_path):
    """As merged decoders have them: of the branch that reads its cache, the cache of the encoder is empty."""
    nodes = [
        ("Relu", ["x"], ["y"], {}),
        ("ConstantOfShape", ["none"], ["z"], {}),
    ]
    path = saved(nodes, {"x": (TensorProto.FLOAT, X.shape)}, ["y", "z"], {"none": np.array([0, 2])})
    with pytest.raises(CompileError, match=r"'z'.* is empty.*; without its empty outputs it compiles with --end-at y"):
        compile_onnx(OnnxOptions(model=path, output=tmp_path / "out"))
    compile_onnx(OnnxOptions(model=path, output=tmp_path / "out", quant="float32", ends=("y",)))
    assert np.array_equal(run(tmp_path / "out", x=-X), np.maximum(-X, 0))
