"""Which files are read: opsets, external data beyond 2 GB, and what --check says of nodes."""

from __future__ import annotations

import numpy as np
import pytest

import tcim_lite.runtime as rt
from tcim_lite.cli import main
from tcim_lite.models.common.errors import CheckpointError, CompileError
from tcim_lite.models.onnx import OnnxOptions, compile_onnx, onnx_bytes
from tcim_lite.models.onnx.errors import UnsupportedNodeError

onnx = pytest.importorskip("onnx", reason="needs onnx")

RNG = np.random.default_rng(31)
OPSETS = range(7, 29)


def network(make_model, opset):
    """Ops that changed within these opsets: the axes of a mean became an input, Split got num_outputs."""
    by_input = opset >= 18
    nodes = [
        ("Split", ["x"], ["a", "b"], {"axis": 1} | ({"num_outputs": 2} if by_input else {})),
        ("ReduceMean", ["a", "axes"] if by_input else ["a"], ["m"], {} if by_input else {"axes": [2]}),
        ("Sub", ["b", "m"], ["c"], {}),
        ("Softmax", ["c"], ["y"], {"axis": 2}),
    ]
    constants = {"axes": np.array([2], np.int64)} if by_input else {}
    return make_model(nodes, {"x": (2, 6, 5)}, ["y"], constants, opset)


@pytest.mark.parametrize("opset", OPSETS)
def test_every_opset_from_7_to_28_is_read(opset, make_model, run_here, run_there):
    x = RNG.standard_normal((2, 6, 5)).astype(np.float32)
    known = network(make_model, min(opset, 24))  # by onnxruntime; these ops are the same since
    here, there = run_here(network(make_model, opset), {"x": x}), run_there(known, {"x": x})
    np.testing.assert_allclose(here["y"], there["y"], rtol=1e-5)


@pytest.mark.parametrize("opset", [6, 29])
def test_other_opsets_are_refused(opset, make_model):
    with pytest.raises(UnsupportedNodeError, match=f"opset {opset}, supported are 7 to 28"):
        onnx_bytes(network(make_model, opset))


def test_weights_beyond_4_gb_of_an_external_file_are_read(make_model, tmp_path):
    """A file of 5 GiB, nearly all of it a hole."""
    weight = RNG.standard_normal((64, 16)).astype(np.float32)
    model = make_model([("MatMul", ["x", "w"], ["y"], {})], {"x": (3, 64)}, ["y"], {"w": weight})
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    offset = 5 << 30
    for key, value in (("location", "data/weights.bin"), ("offset", offset), ("length", weight.nbytes)):
        tensor.external_data.add(key=key, value=str(value))
    (tmp_path / "data").mkdir()
    with open(tmp_path / "data" / "weights.bin", "wb") as file:
        file.seek(offset)
        file.write(weight.tobytes())
    (tmp_path / "net.onnx").write_bytes(model.SerializeToString())
    command = ["compile", str(tmp_path / "net.onnx"), "-o", str(tmp_path / "out"), "--quant", "float32", "-q"]
    assert main(command) == 0
    module = rt.load(tmp_path / "out" / "net.hmm")
    x = RNG.standard_normal((3, 64)).astype(np.float32)
    module.set_input("x", x)
    module.run(sync=True)
    np.testing.assert_allclose(module.get_output("y").numpy(), x @ weight, rtol=0, atol=1e-4)


@pytest.mark.parametrize("k", [65, 70, 147])
def test_a_k_that_is_no_multiple_of_64_is_padded_with_zeros(k, make_model, run_here):
    """The same product with the zeros in the file gives the same bits."""
    weight, x = RNG.standard_normal((k, 24)).astype(np.float32), RNG.standard_normal((3, k)).astype(np.float32)
    more = -k % 64
    nodes = [("MatMul", ["x", "w"], ["y"], {})]
    plain = make_model(nodes, {"x": (3, k)}, ["y"], {"w": weight})
    padded = make_model(nodes, {"x": (3, k + more)}, ["y"], {"w": np.pad(weight, ((0, more), (0, 0)))})
    got = run_here(plain, {"x": x}, "w8a8h1_sefp")["y"]
    np.testing.assert_array_equal(got, run_here(padded, {"x": np.pad(x, ((0, 0), (0, more)))}, "w8a8h1_sefp")["y"])
    assert np.abs(got).max() > 1


def test_check_judges_each_node_and_counts_the_file_s_own(make_model, tmp_path, capsys):
    nodes = [
        ("Transpose", ["x"], ["a"], {"perm": [0, 1, 2]}),
        ("MaxPool", ["a"], ["b"], {"kernel_shape": [2]}),
        ("Unsqueeze", ["b", "axes"], ["c"], {}),
        ("MaxPool", ["c"], ["y"], {"kernel_shape": [1, 1, 1, 2]}),
        ("Relu", ["y"], ["z"], {}),
    ]
    constants = {"axes": np.array([2, 3, 4], np.int64)}
    path = tmp_path / "net.onnx"
    path.write_bytes(make_model(nodes, {"x": (1, 2, 8)}, ["z"], constants).SerializeToString())
    assert main(["compile", str(path), "--check"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("     2  MaxPool  not supported: 1 of them: ") for line in lines)
    assert "     1  Transpose" in lines
    assert "     1  Relu" in lines
    assert lines[-1] == "5 nodes; not supported: MaxPool"


@pytest.mark.parametrize("quant", ["w8a8h1_sefp", "float16", "float32"])
@pytest.mark.parametrize("what", ["sums of codes", "codes of 16 bits", "an input of 4 bits", "an image"])
def test_check_agrees_with_the_compiler_in_every_quantisation(what, quant, make_model, tmp_path, capsys):
    nodes = {
        "sums of codes": [("MatMulInteger", ["x", "w"], ["y"], {})],
        "codes of 16 bits": [("QuantizeLinear", ["x", "s", "z"], ["y"], {})],
    }.get(what, [("Cast", ["x"], ["y"], {"to": 1})])
    w, s, z = np.ones((4, 3), np.uint8), np.float32(0.5), np.uint16(3)
    model = make_model(nodes, {"x": (1, 4)}, ["y"], {"w": w, "s": s, "z": z}, opset=21)
    kind = {"sums of codes": onnx.TensorProto.UINT8, "an input of 4 bits": onnx.TensorProto.INT4}.get(what, 1)
    model.graph.input[0].type.tensor_type.elem_type = kind
    path = tmp_path / "net.onnx"
    path.write_bytes(model.SerializeToString())
    options = ["--image", "x=YUV400,2,2"] if what == "an image" else []
    check = main(["compile", str(path), "--check", "--quant", quant, *options])
    compiled = main(["compile", str(path), "-o", str(tmp_path / "out"), "--quant", quant, *options])
    assert (check == 0) == (compiled == 0) == (quant == "float32" and "codes" in what)
    capsys.readouterr()


@pytest.mark.parametrize("name", ["", " ", "a/b"])
def test_a_name_that_no_file_can_have_is_refused(name, make_model, tmp_path):
    path = tmp_path / "net.onnx"
    path.write_bytes(make_model([("Relu", ["x"], ["y"], {})], {"x": (1, 2)}, ["y"]).SerializeToString())
    with pytest.raises(CompileError, match="is no file name"):
        compile_onnx(OnnxOptions(model=path, output=tmp_path / "out", name=name))


def test_axes_of_one_name_have_one_extent(make_model, tmp_path, capsys):
    model = make_model([("Add", ["a", "b"], ["y"], {})], {"a": ("n", "k"), "b": ("n", "k")}, ["y"])
    path = tmp_path / "net.onnx"
    path.write_bytes(model.SerializeToString())
    command = ["compile", str(path), "-o", str(tmp_path / "out"), "-q", "--shape"]
    assert main([*command, "a=2,4"]) == 0
    assert rt.Module.load(tmp_path / "out" / "net.hmm").get_input_info("b").shape == (2, 4)
    assert main([*command, "a=2,4", "--shape", "b=1,4"]) == 0  # who says more is believed
    assert main([*command, "a=2,4", "--shape", "a=3,4"]) == 2
    assert "--shape gives the input 'a' two shapes" in capsys.readouterr().err


def with_functions(make_model, functions):
    """y = F0(x) of functions that are made of nodes (op, domain, attributes), one after the other."""
    model = make_model([("F0", ["x"], ["y"], {"domain": "mine"})], {"x": (2, 3)}, ["y"])
    imports = [onnx.helper.make_opsetid("", 17), onnx.helper.make_opsetid("mine", 1)]
    model.opset_import.append(imports[1])
    for i, ops in enumerate(functions):
        names = ["a", *(f"t{j}" for j in range(len(ops) - 1)), "b"]
        nodes = [
            onnx.helper.make_node(op, [names[j]], [names[j + 1]], domain=domain, **attributes)
            for j, (op, domain, attributes) in enumerate(ops)
        ]
        model.functions.append(onnx.helper.make_function("mine", f"F{i}", ["a"], ["b"], nodes, imports))
    return model


def test_functions_of_the_file_are_read_as_their_nodes(make_model, run_here, run_there):
    model = with_functions(make_model, [[("F1", "mine", {}), ("F1", "mine", {})], [("Elu", "", {"alpha": 0.5})]])
    x = RNG.standard_normal((2, 3)).astype(np.float32)
    np.testing.assert_allclose(run_here(model, {"x": x})["y"], run_there(model, {"x": x})["y"], rtol=1e-5)


def test_attributes_that_a_call_leaves_out_have_the_defaults_of_the_function(make_model, run_here, run_there):
    model = with_functions(make_model, [[("F1", "mine", {"alpha": 0.5}), ("F1", "mine", {})], [("Elu", "", {})]])
    outer, inner = model.functions
    for body, default in ((outer, 2.0), (inner, 3.0)):
        body.attribute_proto.append(onnx.helper.make_attribute("alpha", default))
    for node in (outer.node[0], inner.node[0]):
        del node.attribute[:]
        node.attribute.add(name="alpha", ref_attr_name="alpha", type=onnx.AttributeProto.FLOAT)
    x = RNG.standard_normal((2, 3)).astype(np.float32)
    np.testing.assert_allclose(run_here(model, {"x": x})["y"], run_there(model, {"x": x})["y"], rtol=1e-5)


@pytest.mark.parametrize("opset", [13, 12])
def test_a_function_of_another_opset_is_read_where_its_ops_are_the_same(opset, make_model, run_here, run_there):
    model = with_functions(make_model, [[("Selu", "", {}), ("Relu" if opset == 12 else "Elu", "", {})]])
    model.functions[0].opset_import[0].version = opset
    if opset == 12:
        with pytest.raises(UnsupportedNodeError, match=r"function 'F0' .* opset 12, in which Relu is not .* opset 17"):
            onnx_bytes(model)
        return
    x = RNG.standard_normal((2, 3)).astype(np.float32)
    np.testing.assert_allclose(run_here(model, {"x": x})["y"], run_there(model, {"x": x})["y"], rtol=1e-5)


def sparse(values, places, shape, name=""):
    """A sparse tensor: values at places."""
    values = onnx.numpy_helper.from_array(np.float32(values), name)
    return onnx.helper.make_sparse_tensor(values, onnx.numpy_helper.from_array(np.array(places, np.int64)), shape)


@pytest.mark.parametrize("places", [[1, 5], [[0, 1], [1, 2]]], ids=["of all", "by axis"])
def test_sparse_constants_are_made_dense(places, make_model, run_here, run_there):
    c = {"sparse_value": sparse([3, 4], places, (2, 3))}
    nodes = [("Constant", [], ["c"], c), ("Add", ["x", "c"], ["a"], {}), ("Mul", ["a", "w"], ["y"], {})]
    model = make_model(nodes, {"x": (2, 3)}, ["y"])
    model.graph.sparse_initializer.append(sparse([5, 6], places, (2, 3), "w"))
    x = RNG.standard_normal((2, 3)).astype(np.float32)
    want = run_there(model, {"x": x})["y"]
    np.testing.assert_array_equal(run_here(model, {"x": x})["y"], want)


@pytest.mark.parametrize(
    ("places", "shape", "text"),
    [
        ([1, 6], (2, 3), r"'w' has values \[2\] and int64 places \[2\]; expected an int64 place inside \[2, 3\]"),
        ([[0, 1], [0, 3]], (2, 3), "expected an int64 place inside"),
        ([[0, 1]], (2, 3), "expected an int64 place inside"),
        ([1, -1], (2, 3), "expected an int64 place inside"),
        ([1, 2], (2**14, 2**13), r"'w' has the shape \[16384, 8192\], .* 67108864 elements of all sparse tensors"),
    ],
)
def test_sparse_constants_that_do_not_fit_are_refused(places, shape, text, make_model):
    model = make_model([("Add", ["x", "w"], ["y"], {})], {"x": (2, 3)}, ["y"])
    model.graph.sparse_initializer.append(sparse([5, 6], places, shape, "w"))
    with pytest.raises(CheckpointError, match=text):
        onnx_bytes(model)


@pytest.mark.parametrize(
    ("functions", "text"),
    [
        ([[("F1", "mine", {})], [("F0", "mine", {})]], "in a circle"),
        ([*[[(f"F{i + 1}", "mine", {})] * 10 for i in range(9)], [("Relu", "", {})]], "more than 65536 nodes"),
    ],
)
def test_functions_without_end_are_refused(functions, text, make_model):
    with pytest.raises(CheckpointError, match=text):
        onnx_bytes(with_functions(make_model, functions))
