"""Hostile and broken models: refused with one short message that names what is wrong. And a part of the fuzzing."""

from __future__ import annotations

import numpy as np
import pytest

onnx = pytest.importorskip("onnx", reason="needs onnx")

from fuzz_models import judge
from onnx import TensorProto

from tcim_lite.cli import main
from tcim_lite.errors import TcimError
from tcim_lite.models.onnx import OnnxOptions, check_onnx, compile_onnx, lowering, onnx_bytes, table
from tcim_lite.runtime import Module

IMAGE = {"x": (1, 3, 4, 4)}
ROW = {"x": (1, 3)}
KERNEL = {"w": np.zeros((1, 3, 1, 1), np.float32)}


def ints(*values):
    return {"s": np.array(values, np.int64)}


# nodes, inputs, constants, what the message has
REFUSED = {
    "a node that reads its result": ([("Add", ["x", "y"], ["y"], {})], ROW, {}, "node 'n0' (Add) reads 'y'"),
    "a cycle": (
        [("Add", ["x", "b"], ["y"], {}), ("Relu", ["y"], ["b"], {})], ROW, {}, "made from its own result: a cycle"
    ),
    "a missing initialiser": ([("Add", ["x", "w"], ["y"], {})], ROW, {}, "node 'n0' (Add) reads 'w', which is no"),
    "two makers of a value": (
        [("Relu", ["x"], ["y"], {}), ("Abs", ["x"], ["y"], {})], ROW, {}, "node 'n1' (Abs): 'y' is already"
    ),
    "an unknown op": ([("Frobnicate", ["x"], ["y"], {})], ROW, {}, "node 'n0' (Frobnicate): the op is not supported"),
    "an unknown domain": (
        [("Relu", ["x"], ["y"], {"domain": "com.evil"})], ROW, {}, "node 'n0' (com.evil.Relu): the op is not supported"
    ),
    "an op of onnxruntime's optimiser": (
        [("NhwcMaxPool", ["x"], ["y"], {"domain": "com.microsoft"})], ROW, {},
        "node 'n0' (com.microsoft.NhwcMaxPool): tools of onnxruntime write it",
    ),
    "an op of onnxruntime's layout for one processor": (
        [("ReorderInput", ["x"], ["y"], {"domain": "com.microsoft.nchwc"})], ROW, {},
        "onnxruntime writes it for one processor; expected the model that it read, or one saved with ORT_ENABLE_EXT",
    ),
    "a random result": (
        [("RandomNormalLike", ["x"], ["y"], {})], ROW, {}, "node 'n0' (RandomNormalLike): its result is"
    ),
    "random constants": (
        [("RandomNormal", [], ["r"], {"shape": [3]}), ("Add", ["x", "r"], ["y"], {})], ROW, {},
        "node 'n0' (RandomNormal): its result is random; make it an input with --begin-at",
    ),
    "control characters": ([("\x1b[31mX\n", ["x"], ["y"], {})], ROW, {}, "node 'n0' (?[31mX?): the op"),
    "a name of megabytes": ([("R" * 3_000_000, ["x"], ["y"], {})], ROW, {}, "node 'n0' (RRRR"),
    "a value's name of megabytes": ([("Relu", ["x"], ["y" * 3_000_000], {})], ROW, {}, "node 'n0' (Relu): a value's"),
    "a huge Reshape": ([("Reshape", ["x", "s"], ["y"], {})], ROW, ints(2**40, 2**40), "node 'n0' (Reshape)"),
    "a shape of millions of axes": (
        [("Reshape", ["x", "s"], ["y"], {})], ROW, {"s": np.ones(2_000_000, np.int64)}, "node 'n0' (Reshape): the shape"
    ),
    "a huge Expand": ([("Expand", ["x", "s"], ["y"], {})], ROW, ints(2**33, 1, 3), "node 'n0' (Expand): a tensor of"),
    "a huge Tile": ([("Tile", ["x", "s"], ["y"], {})], ROW, ints(2**30, 2**30), "node 'n0' (Tile): a tensor of"),
    "a huge Pad": ([("Pad", ["x", "s"], ["y"], {})], ROW, ints(2**40, 0, 2**40, 0), "node 'n0' (Pad): a tensor of"),
    "a huge Pad by index": (
        [("Pad", ["x", "s"], ["y"], {"mode": "edge"})], ROW, ints(2**36, 0, 2**36, 0), "node 'n0' (Pad): an axis of"
    ),
    "a huge Resize": (
        [("Resize", ["x", "", "s"], ["y"], {})], IMAGE, {"s": np.float32([1, 1, 1e9, 1e9])}, "node 'n0' (Resize)"
    ),
    "a huge constant that folds": (
        [("ConstantOfShape", ["s"], ["r"], {}), ("Add", ["x", "r"], ["y"], {})], ROW, ints(2**40, 2**20),
        "node 'n0' (ConstantOfShape): all its operands are constants",
    ),
    "infinite repeats of a constant": (
        [("Tile", ["c", "s"], ["r"], {}), ("Add", ["x", "r"], ["y"], {})], ROW,
        {"c": np.ones((1, 3), np.float32), "s": np.float32([np.inf, 1])}, "node 'n0' (Tile)",
    ),
    "NaN for repeats of a constant": (
        [("Tile", ["c", "s"], ["r"], {}), ("Add", ["x", "r"], ["y"], {})], ROW,
        {"c": np.ones((1, 3), np.float32), "s": np.float32([np.nan, 1])}, "node 'n0' (Tile)",
    ),
    "an outer product by its equation": (
        [("Einsum", ["a", "b"], ["c"], {"equation": "i,j->ij"}), ("Add", ["x", "c"], ["y"], {})], ROW,
        {"a": np.zeros(2**13, np.float32), "b": np.zeros(2**15, np.float32)}, "node 'n0' (Einsum): all its",
    ),
    "an outer product of constants": (
        [("MatMul", ["a", "b"], ["c"], {}), ("Add", ["x", "c"], ["y"], {})], ROW,
        {"a": np.zeros((2**13, 1), np.float32), "b": np.zeros((2**9, 1, 2**13), np.float32)}, "node 'n0' (MatMul)",
    ),
    "a window of billions": (
        [("HannWindow", ["s"], ["a"], {}), ("Add", ["x", "a"], ["y"], {})], ROW, {"s": np.array(2**33)},
        "node 'n0' (HannWindow)",
    ),
    "an operand that is computed one element at a time": (
        [("ConstantOfShape", ["s"], ["r"], {}), ("Det", ["r"], ["a"], {}), ("Add", ["x", "a"], ["y"], {})], ROW,
        ints(2**20, 2, 2), "node 'n1' (Det): all its operands are constants",
    ),
    "huge pads": ([("Conv", ["x", "w"], ["y"], {"pads": [2**62] * 4})], IMAGE, KERNEL, "node 'n0' (Conv): a tensor of"),
    "a stride of 0": ([("Conv", ["x", "w"], ["y"], {"strides": [0, 0]})], IMAGE, KERNEL, "node 'n0' (Conv): a kernel"),
    "a huge pool": (
        [("MaxPool", ["x"], ["y"], {"kernel_shape": [2**40] * 2, "pads": [2**40] * 4})], IMAGE, {},
        "node 'n0' (MaxPool)"
    ),
    "a negative LRN": ([("LRN", ["x"], ["y"], {"size": -5})], IMAGE, {}, "node 'n0' (LRN): size -5"),
    "a Split in 0": ([("Split", ["x"], ["y"], {"num_outputs": 0})], ROW, {}, "node 'n0' (Split): its operands or attr"),
    "an axis twice": ([("Unsqueeze", ["x", "s"], ["y"], {})], ROW, ints(0, 0), "node 'n0' (Unsqueeze): axes"),
    "an index beyond the axis": ([("Gather", ["x", "s"], ["y"], {})], ROW, ints(7), "node 'n0' (Gather): indices"),
    "no operands": ([("Relu", [], ["y"], {})], ROW, {}, "node 'n0' (Relu)"),
    "an output that its op does not have": ([("Relu", ["x"], ["a", "y"], {})], ROW, {}, "its output 'y'"),
    "text for a size": (
        [("Range", ["s", "s", "s"], ["r"], {}), ("Add", ["x", "r"], ["y"], {})], ROW, {"s": np.array("a", object)},
        "node 'n0' (Range): all its operands are constants",
    ),
    "a norm that adds one number": (
        [("Mul", ["x", "x"], ["a"], {}), ("ReduceMean", ["a"], ["b"], {}), ("Add", ["b"], ["c"], {}),
         ("Sqrt", ["c"], ["d"], {}), ("Div", ["x", "d"], ["y"], {})], ROW, {}, "node 'n2' (Add): operand 1 is missing"
    ),
    "an operand too many": ([("Relu", ["x", "x"], ["y"], {})], ROW, {}, "node 'n0' (Relu) has 2 operands; the op"),
    "no axis of a Concat": ([("Concat", ["x", "x"], ["y"], {})], ROW, {}, "node 'n0' (Concat) has no attribute 'axis'"),
    "no blocks of a DepthToSpace": (
        [("DepthToSpace", ["x"], ["y"], {})], IMAGE, {}, "node 'n0' (DepthToSpace) has no attribute 'blocksize'"
    ),
    "fractions for indices": (
        [("Gather", ["x", "s"], ["y"], {"axis": 1})], ROW, {"s": np.float32([0.5, 1])},
        "node 'n0' (Gather): indices that are float32, no integers"
    ),
    "a Transpose of nothing": ([("Transpose", [], ["y"], {})], ROW, {}, "node 'n0' (Transpose)"),
    "a MatMul of one matrix": (
        [("MatMul", ["x"], ["a"], {}), ("Add", ["a", "s"], ["y"], {})], ROW, {"s": np.float32([1])},
        "node 'n0' (MatMul)",
    ),
    "a constant that is a sequence": (
        [("SplitToSequence", ["s"], ["a"], {}), ("Add", ["x", "a"], ["y"], {})], ROW, ints(1, 2),
        "node 'n1' (Add): operand 1 is a sequence of tensors"
    ),
    "fewer zero points than scales": (
        [("DequantizeLinear", ["c", "s", "z"], ["d"], {"axis": 0}), ("Add", ["x", "d"], ["y"], {})], ROW,
        {"c": np.uint8([1, 2, 3]), "s": np.float32([1, 2, 3]), "z": np.uint8([1])},
        "node 'n0' (DequantizeLinear): scales and zero points are 3 and 1",
    ),
    "an operand of text": ([("Add", ["x", "s"], ["y"], {})], ROW, {"s": np.array(["a"], object)}, "node 'n0' (Add)"),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_a_hostile_node_is_refused_by_name(make_model, what):
    nodes, inputs, constants, text = REFUSED[what]
    model = make_model(nodes, inputs, [nodes[-1][2][-1] if len(nodes) == 1 else "y"], constants)
    with pytest.raises(TcimError) as error:
        onnx_bytes(model)
    assert text in str(error.value)
    assert len(str(error.value)) < 1000


@pytest.mark.parametrize(
    ("dims", "text"),
    [
        ([2**62, 2**62], "'w' has the shape [4611686018427387904, 4611686018427387904], more than 2^33"),
        ([-4], "'w' has the shape [-4]"),
        ([2**32], "'w', [4294967296]"),
        ([2**62, 0], "'w', [4611686018427387904, 0]"),
        ([1] * 40, "expected at most 8 extents"),
    ],
)
def test_absurd_extents_of_an_initialiser_are_refused_by_name(make_model, dims, text):
    model = make_model([("Add", ["x", "w"], ["y"], {})], ROW, ["y"])
    model.graph.initializer.append(TensorProto(name="w", data_type=1, dims=dims, raw_data=b"\0" * 16))
    with pytest.raises(TcimError) as error:
        onnx_bytes(model)
    assert "initialiser " + text[:3] in str(error.value) or "initialiser 'w'" in str(error.value)
    assert text in str(error.value)


@pytest.mark.parametrize(
    ("location", "text"),
    [
        ("../secret", "expected a path inside the model's folder"),
        ("a/../../secret", "expected a path inside the model's folder"),
        ("/etc/passwd", "expected a path inside the model's folder"),
        ("", "expected a path inside the model's folder"),
        ("x\0y", "expected a path inside the model's folder"),
        ("n" * 300, "expected a path inside the model's folder"),
        ("link", "leads out of the model's folder"),
        ("away/secret", "leads out of the model's folder"),
        ("circle", "in the file 'circle'"),
        ("folder", "which is not there"),
        ("missing", "which is not there"),
        ("short", "bytes 0..16 of 'short', which has 4"),
    ],
)
def test_external_data_is_read_from_the_models_folder_only(make_model, tmp_path, capsys, location, text):
    (tmp_path / "secret").write_bytes(b"s" * 64)
    home = tmp_path / "home"
    (home / "folder").mkdir(parents=True)
    (home / "short").write_bytes(b"abcd")
    (home / "link").symlink_to(tmp_path / "secret")
    (home / "away").symlink_to(tmp_path)
    (home / "circle").symlink_to(home / "circle")
    model = make_model([("Add", ["x", "w"], ["y"], {})], {"x": (4,)}, ["y"])
    tensor = model.graph.initializer.add(name="w", data_type=1, dims=[4], data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value=location)
    (home / "net.onnx").write_bytes(model.SerializeToString())
    assert main(["compile", str(home / "net.onnx"), "-o", str(tmp_path / "out")]) == 2
    shown = capsys.readouterr().err
    assert text in shown
    assert "initialiser 'w'" in shown
    assert not (tmp_path / "out").exists()


def test_links_of_a_cache_lead_to_the_folder_of_the_models_own_file_and_no_further(make_model, tmp_path):
    """As the cache of Hugging Face's hub keeps a model and its data."""
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots/1/onnx"
    blobs.mkdir()
    snapshot.mkdir(parents=True)
    w = np.arange(4, dtype=np.float32)
    model = make_model([("Add", ["x", "w"], ["y"], {})], {"x": (4,)}, ["y"])
    tensor = model.graph.initializer.add(name="w", data_type=1, dims=[4], data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value="net.onnx_data")
    (blobs / "a1").write_bytes(model.SerializeToString())
    (blobs / "b2").write_bytes(w.tobytes())
    (snapshot / "net.onnx").symlink_to("../../../blobs/a1")
    (snapshot / "net.onnx_data").symlink_to("../../../blobs/b2")
    compile_onnx(OnnxOptions(model=snapshot / "net.onnx", output=tmp_path, quant="float32"))
    module = Module.load(tmp_path / "net.hmm")
    module.set_input("x", w)
    module.run(sync=True)
    np.testing.assert_array_equal(module.get_output("y").numpy(), 2 * w)
    (tmp_path / "secret").write_bytes(w.tobytes())
    (snapshot / "net.onnx_data").unlink()
    (snapshot / "net.onnx_data").symlink_to("../../../secret")
    with pytest.raises(TcimError, match="leads out of the model's folder"):
        check_onnx(OnnxOptions(model=snapshot / "net.onnx"))


def test_external_data_of_attributes_is_read(make_model, tmp_path):
    """As onnx saves it with `convert_attribute`."""
    w = np.arange(3, dtype=np.float32)
    constant = ("Constant", [], ["w"], {"value": onnx.numpy_helper.from_array(w, "w")})
    model = make_model([constant, ("Add", ["x", "w"], ["y"], {})], ROW, ["y"])
    path = tmp_path / "net.onnx"
    options = {"save_as_external_data": True, "size_threshold": 0, "convert_attribute": True, "location": "net.data"}
    onnx.save(model, path, **options)
    compile_onnx(OnnxOptions(model=path, output=tmp_path, quant="float32"))
    module = Module.load(tmp_path / "net.hmm")
    module.set_input("x", w.reshape(1, 3))
    module.run(sync=True)
    np.testing.assert_array_equal(module.get_output("y").numpy(), [2 * w])
    (tmp_path / "net.data").unlink()
    with pytest.raises(
        TcimError, match=r"tensor 'w' of the node that makes 'w' is in the file 'net.data', which is not"
    ):
        check_onnx(OnnxOptions(model=path))


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"data_type": 999, "raw_data": b"\0" * 16}, "the element type 999, which ONNX does not have"),
        ({"data_type": 1, "raw_data": b"\0" * 16, "float_data": [0.0] * 4}, "twice, as raw_data and as float_data"),
    ],
)
def test_an_initialiser_that_contradicts_itself_is_refused_by_name(make_model, fields, text):
    model = make_model([("Add", ["x", "w"], ["y"], {})], ROW, ["y"])
    model.graph.initializer.append(TensorProto(name="w", dims=[4], **fields))
    with pytest.raises(TcimError, match=f"initialiser 'w' has .*{text}"):
        onnx_bytes(model)


@pytest.mark.parametrize("change", ["name", "op_type", "output", "opset", "text"])
def test_a_file_that_is_not_what_it_says_is_refused(make_model, tmp_path, capsys, change):
    model = make_model([("Relu", ["x"], ["marker"], {})], ROW, ["marker"])
    data = model.SerializeToString()
    if change == "output":
        data = data.replace(b"marker", b"\xff\xfe\xfd\xfc\xfb\xfa")  # no UTF-8
    elif change == "op_type":
        data = data.replace(b"Relu", b"\xff\xfe\xfd\xfc")
    elif change == "name":
        data = data.replace(b"n0", b"\xff\xfe")
    elif change == "opset":
        model.opset_import[0].version = 2**40
        data = model.SerializeToString()
    else:
        data = b"<html>not found</html>"
    (tmp_path / "net.onnx").write_bytes(data)
    assert main(["compile", str(tmp_path / "net.onnx"), "--check"]) == 2
    shown = capsys.readouterr().err
    assert {"opset": "uses opset 1099511627776", "text": "is no ONNX file"}.get(change, "no") in shown
    assert "Traceback" not in shown


def test_an_attribute_that_is_there_twice_is_refused_by_name(make_model):
    model = make_model([("Softmax", ["x"], ["y"], {"axis": 0})], ROW, ["y"])
    model.graph.node[0].attribute.append(onnx.helper.make_attribute("axis", 1))
    with pytest.raises(TcimError, match=r"node 'n0' \(Softmax\) has the attribute 'axis' twice"):
        onnx_bytes(model)


def test_two_versions_of_the_same_ops_are_refused(make_model):
    model = make_model([("Relu", ["x"], ["y"], {})], ROW, ["y"])
    model.opset_import.append(onnx.helper.make_opsetid("ai.onnx", 7))  # another name of ""
    with pytest.raises(TcimError, match=r"two versions of the ops of 'ai\.onnx'"):
        onnx_bytes(model)


@pytest.mark.parametrize("what", ["output", "graph"])
def test_a_name_with_a_nul_is_refused(make_model, what):
    name = "a\0b"
    model = make_model([("Relu", ["x"], [name if what == "output" else "y"], {})], ROW, [])
    model.graph.output.append(onnx.helper.make_tensor_value_info(model.graph.node[0].output[0], 1, None))
    model.graph.name = name if what == "graph" else "g"
    with pytest.raises(TcimError, match=r"has a NUL"):
        onnx_bytes(model)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_damaged_models_are_taken_or_refused_and_nothing_else(tmp_path):
    """The first inputs of tests/onnx/fuzz_models.py; `make fuzz` has many more."""
    verdicts = {judge(number, tmp_path) for number in range(400)}
    assert verdicts == {"refused", "loaded", "ran"}


def test_constants_of_constants_are_refused_once_they_are_large_together(make_model, monkeypatch):
    monkeypatch.setattr(lowering, "MAX_GROWTH", 80)  # elements, in place of 2^28
    for count in 8, 9:  # of 12 elements each, made of 2
        names = [f"r{number}" for number in range(count)]
        values = [onnx.numpy_helper.from_array(np.float32([number])) for number in range(count)]
        nodes = [("ConstantOfShape", ["s"], [name], {"value": v}) for name, v in zip(names, values, strict=True)]
        model = make_model([*nodes, ("Sum", ["x", *names], ["y"], {})], {"x": (3, 4)}, ["y"], ints(3, 4))
        if count == 8:
            assert onnx_bytes(model)
        else:
            with pytest.raises(TcimError, match=r"'n8' \(ConstantOfShape\): with it, constants of constants have more"):
                onnx_bytes(model)


def test_tables_of_places_are_refused_once_they_are_large_together(make_model, monkeypatch):
    monkeypatch.setattr(table, "MAX_GROWTH", 800)  # elements, in place of 2^28
    gathers = [("GatherElements", ["x" if i == 0 else f"r{i - 1}", "i"], [f"r{i}"], {}) for i in range(9)]
    constants = {"i": np.arange(100).reshape(10, 10) % 10}
    with pytest.raises(TcimError, match=r"\(GatherElements\): with its table, those of the network have more than 800"):
        onnx_bytes(make_model(gathers, {"x": (10, 10)}, ["r8"], constants))


def test_a_mask_of_hundreds_of_millions_of_ones_is_no_constant_of_the_package(make_model):
    shape = (1, 3, 2**14, 2**14)
    model = make_model([("Dropout", ["x"], ["z", "m"], {}), ("Not", ["m"], ["y"], {})], {"x": shape}, ["z", "y"])
    assert len(onnx_bytes(model)) < 1 << 16


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.uint64])
def test_whole_numbers_of_every_width_become_int32(make_model, run_here, dtype):
    largest = np.iinfo(dtype).max
    model = make_model([("Identity", ["w"], ["y"], {})], ROW, ["y"], {"w": np.array([1, largest], dtype)})
    np.testing.assert_array_equal(run_here(model, {})["y"], np.float32([1, min(largest, 2**31 - 1)]))


def test_the_same_model_without_harm_compiles(make_model):
    """So the refusals above have no other reason."""
    assert onnx_bytes(make_model([("Relu", ["x"], ["y"], {})], ROW, ["y"]))
