"""Models that begin or end at values inside: what cannot be compiled is left to the host."""

from __future__ import annotations

import numpy as np
import pytest

import tcim_lite.runtime as rt
from tcim_lite.cli import main
from tcim_lite.models.common.errors import CompileError
from tcim_lite.models.onnx import OnnxOptions, check_onnx, compile_onnx

pytest.importorskip("onnx", reason="needs onnx")

# A detector whose boxes are suppressed in the file; the sum of pixels does not need them.
DETECTOR = [
    ("Relu", ["x"], ["all boxes"], {}),
    ("Sigmoid", ["s"], ["scores"], {}),
    ("ReduceSum", ["x"], ["pixels"], {"keepdims": 0}),
    ("NonMaxSuppression", ["all boxes", "scores", "most"], ["chosen"], {}),
    ("Gather", ["chosen", "column"], ["index"], {"axis": 1}),
    ("Gather", ["all boxes", "index"], ["boxes"], {"axis": 1}),
]


@pytest.fixture
def detector(make_model, tmp_path):
    constants = {"most": np.array([3]), "column": np.array(2)}
    model = make_model(DETECTOR, {"x": (1, 6, 4), "s": (1, 2, 6)}, ["pixels", "boxes"], constants)
    (tmp_path / "net.onnx").write_bytes(model.SerializeToString())
    return tmp_path / "net.onnx"


def inputs_of(folder):
    module = rt.Module.load(folder / "net.hmm")
    names = [module.get_input_name(i) for i in range(module.get_num_inputs())]
    return {name: tuple(module.get_input_info(name).shape) for name in names}


def test_the_refusal_and_the_check_say_where_to_end(detector, tmp_path, capsys):
    ends = ("pixels", "all boxes", "scores")
    said = (
        "all before it compiles with --end-at pixels --end-at 'all boxes' --end-at scores; the host then computes the "
        "rest, which --rest FILE writes: 2 Gather, 1 NonMaxSuppression"
    )
    command = ["compile", str(detector), "-o", str(tmp_path / "out"), "--quant", "float32", "-q"]
    assert main(command) == 2
    error = capsys.readouterr().err
    assert "'n3' (NonMaxSuppression): the number of its results depends on the data" in error
    assert said in error
    assert main(["compile", str(detector), "--check"]) == 1
    assert said in capsys.readouterr().out.splitlines()
    assert check_onnx(OnnxOptions(model=detector)).cut.ends == ends
    assert main([*command, *(part for end in ends for part in ("--end-at", end))]) == 0
    module = rt.Module.load(tmp_path / "out" / "net.hmm")
    for name, shape in (("x", (1, 6, 4)), ("s", (1, 2, 6))):
        module.set_input(name, np.full(shape, -1, np.float32))
    module.run(sync=True)
    assert module.get_output("all boxes").numpy().tolist() == np.zeros((1, 6, 4)).tolist()
    np.testing.assert_allclose(module.get_output("scores").numpy(), 1 / (1 + np.exp(1)), rtol=1e-6)


def test_nothing_is_suggested_where_nothing_comes_before(make_model, tmp_path):
    path = tmp_path / "net.onnx"
    path.write_bytes(make_model([("NonZero", ["x"], ["y"], {})], {"x": (2, 3)}, ["y"]).SerializeToString())
    with pytest.raises(CompileError) as error:
        compile_onnx(OnnxOptions(model=path, output=tmp_path / "out"))
    assert "--end-at" not in str(error.value)


def run_with_rest(path, folder, feeds, *options, quant="float32"):
    """The outputs of a package and of the rest that the host computes, by name."""
    rest, command = folder / "out/rest.onnx", ["compile", str(path), "-o", str(folder / "out"), "--quant", quant, "-q"]
    assert main([*command, "--rest", str(rest), *options]) == 0
    module = rt.Module.load(folder / "out" / "net.hmm")
    for name, array in feeds.items():
        module.set_input(name, array)
    module.run(sync=True)
    made = {
        name: module.get_output(name).numpy() for name in map(module.get_output_name, range(module.get_num_outputs()))
    }
    session = pytest.importorskip("onnxruntime", reason="needs onnxruntime").InferenceSession(rest)
    read = {info.name: made[info.name] if info.name in made else feeds[info.name] for info in session.get_inputs()}
    outputs = [info.name for info in session.get_outputs()]
    return {**made, **dict(zip(outputs, session.run(outputs, read), strict=True))}


@pytest.mark.parametrize("quant", ["float32", "float16"])
def test_the_rest_is_a_file_that_the_host_runs(detector, tmp_path, run_there, quant):
    import onnx

    rng = np.random.default_rng(5)
    corner = rng.integers(0, 8, (1, 6, 2)) * 0.5  # numbers of float16
    x, s = np.concatenate([corner, corner + 2], axis=2, dtype=np.float32), rng.permutation(12).reshape(1, 2, 6) * 0.25
    feeds = {"x": x, "s": s.astype(np.float32)}
    wanted = run_there(onnx.load(detector), feeds)
    found = run_with_rest(detector, tmp_path, feeds, quant=quant)
    assert wanted["boxes"].shape[1] > 1
    assert [*found] == ["pixels", "all boxes", "scores", "boxes"]
    for name, array in wanted.items():
        assert np.array_equal(found[name].reshape(array.shape), array)


def test_the_rest_reads_integers_truths_scalars_and_inputs_as_the_file_has_them(make_model, tmp_path, run_there):
    """A branch reads values from outside, a size is known, and an input is read behind the cut as well."""
    from onnx import TensorProto, helper

    info = helper.make_tensor_value_info
    chosen = helper.make_graph(
        [helper.make_node("Identity", ["found"], ["chosen"])], "a", [], [info("chosen", 7, None)]
    )
    other = helper.make_graph([helper.make_node("Identity", ["places"], ["other"])], "b", [], [info("other", 7, None)])
    nodes = [
        ("Greater", ["x", "limit"], ["is large"], {}),
        ("NonZero", ["is large"], ["found"], {}),
        ("ArgMax", ["x"], ["places"], {"axis": 1}),
        ("ReduceMax", ["x"], ["most"], {"keepdims": 0}),
        ("Greater", ["most", "limit"], ["any"], {}),
        ("If", ["any"], ["which"], {"then_branch": chosen, "else_branch": other}),
        ("Size", ["places"], ["size"], {}),
        ("Mul", ["which", "size"], ["scaled"], {}),
        ("Size", ["scaled"], ["count"], {}),
        ("Cast", ["count"], ["number"], {"to": 1}),
        ("Mul", ["x", "number"], ["y"], {}),
        ("Mul", ["number", "most"], ["z"], {}),
    ]
    model = make_model(nodes, {"x": (2, 3)}, ["y", "z", "scaled"], {"limit": np.float32(1)})
    model.graph.output[2].type.tensor_type.elem_type = TensorProto.INT64
    (tmp_path / "net.onnx").write_bytes(model.SerializeToString())
    for x in (np.float32([[0, 2, 1], [3, 0, 2]]), np.float32([[0, 1, 0], [1, 0, 0]])):
        wanted = run_there(model, {"x": x})
        found = run_with_rest(tmp_path / "net.onnx", tmp_path, {"x": x})
        for name, array in wanted.items():
            assert found[name].dtype == array.dtype
            assert np.array_equal(found[name], array)


def test_a_rest_of_nothing_is_refused(detector, make_model, tmp_path):
    def error(path, **options):
        with pytest.raises(CompileError) as caught:
            compile_onnx(OnnxOptions(model=path, output=tmp_path / "out", rest=tmp_path / "rest.onnx", **options))
        return str(caught.value)

    for name, op, text in (
        ("whole", "Relu", "every node is supported"),
        ("none", "NonZero", "nothing can be compiled before what is not supported"),
    ):
        path = tmp_path / f"{name}.onnx"
        path.write_bytes(make_model([(op, ["x"], ["y"], {})], {"x": (2, 3)}, ["y"]).SerializeToString())
        assert f"--rest: {text}; leave it out" in error(path)
    assert "--rest: nothing is left for the host" in error(tmp_path / "whole.onnx", ends=("y",))
    assert not (tmp_path / "rest.onnx").exists()


def test_a_rest_that_cannot_be_written_or_replaces_what_is_needed_is_refused_first(detector, tmp_path):
    before, output = detector.read_bytes(), tmp_path / "out"
    link = tmp_path / "link.onnx"
    link.symlink_to(detector)
    for rest in (detector, link, output / f"{detector.stem}.hmm", tmp_path, tmp_path / "none/rest.onnx"):
        with pytest.raises(CompileError, match=f"--rest {rest}: .* name (another one|a file|another file)$"):
            compile_onnx(OnnxOptions(model=detector, output=output, rest=rest))
    assert not output.exists()
    assert detector.read_bytes() == before


def test_values_that_no_node_makes_are_refused(detector, tmp_path):
    cases = {
        "do you mean 'scores'?": ["score"],
        "--end-at names 'x', which no node of the file makes": ["x"],
        "--end-at names 'pixels' twice": ["pixels", "pixels"],
    }
    for text, ends in cases.items():
        with pytest.raises(CompileError) as error:
            compile_onnx(OnnxOptions(model=detector, output=tmp_path / "out", ends=tuple(ends)))
        assert text in str(error.value)
    with pytest.raises(CompileError, match="--begin-at names 'x', which no node of the file makes"):
        compile_onnx(OnnxOptions(model=detector, output=tmp_path / "out", begins=("x",)))


def test_inputs_that_nothing_reads_any_more_are_left_out(detector, tmp_path):
    compile_onnx(OnnxOptions(model=detector, output=tmp_path / "out", ends=("scores",)))
    assert inputs_of(tmp_path / "out") == {"s": (1, 2, 6)}


def test_a_model_may_begin_at_a_value_inside(make_model, tmp_path):
    """The shape of a decoded image is not in the file; that of the next value follows from it."""
    nodes = [
        ("ImageDecoder", ["file"], ["image"], {}),
        ("Cast", ["image"], ["pixels"], {"to": 1}),
        ("Transpose", ["b"], ["turned"], {}),
        ("Add", ["pixels", "turned"], ["y"], {}),
    ]
    path = tmp_path / "net.onnx"
    path.write_bytes(make_model(nodes, {"file": (9,), "b": (2, 1)}, ["y"], opset=20).SerializeToString())
    options = {"model": path, "output": tmp_path / "out", "quant": "float32"}
    with pytest.raises(
        CompileError, match=r"input 'pixels' has the open shape .*; give it with --shape such as pixels="
    ):
        compile_onnx(OnnxOptions(**options, begins=("pixels",)))
    compile_onnx(OnnxOptions(**options, begins=("pixels",), shapes={"pixels": (4, 3, 2)}))
    module = rt.Module.load(tmp_path / "out" / "net.hmm")
    module.set_input("pixels", np.ones((4, 3, 2), np.float32))
    module.set_input("b", np.full((2, 1), 5, np.float32))
    module.run(sync=True)
    assert module.get_output("y").numpy().tolist() == [[[6] * 2] * 3] * 4
    compile_onnx(OnnxOptions(**options, begins=("turned", "pixels"), shapes={"pixels": (4, 3, 2)}))
    assert inputs_of(tmp_path / "out") == {"turned": (1, 2), "pixels": (4, 3, 2)}


def test_a_vocoder_in_two_parts_is_called_as_the_vendor_calls_it(make_model, tmp_path):
    """Its programs give spectra to input 0 of the second part, and bind to it the first part's input by name."""
    nodes = [
        ("ReduceSum", ["mel", "steps"], ["source"], {"keepdims": 0}),
        ("Reshape", ["source", "shape"], ["spectrum"], {}),
        ("ReduceSum", ["spectrum", "parts"], ["power"], {"keepdims": 0}),
        ("MatMul", ["mel", "power"], ["samples"], {}),
    ]
    constants = {"steps": np.array([2]), "shape": np.array([1, 4, 3, 2]), "parts": np.array([3])}
    path = tmp_path / "hift.onnx"
    path.write_bytes(make_model(nodes, {"mel": (1, 24, 4)}, ["samples"], constants).SerializeToString())
    common = {"model": path, "output": tmp_path, "quant": "float16"}
    compile_onnx(OnnxOptions(**common, name="part1", ends=("source",)))
    compile_onnx(OnnxOptions(**common, name="part2", begins=("spectrum",), shapes={"spectrum": (1, 4, 3, 2)}))

    manager = rt.WeightManager(rt.DevManager([0], "Xh2HalBackend"))
    part1 = rt.load(tmp_path / "part1.hmm", option=rt.Option(manager))
    mel = part1.get_input_name(0)
    option = rt.Option(manager)
    option.set_dummy_tensors([mel])
    part2 = rt.load(tmp_path / "part2.hmm", option=option)
    part2.set_input(mel, part1.get_dev_input(mel))
    spectra = part2.get_input_name(0)
    assert tuple(part2.get_input_info(spectra).shape) == (1, 4, 3, 2)
    features = np.arange(96, dtype=np.float16).reshape(1, 24, 4) / 16
    values = np.arange(24, dtype=np.float16).reshape(1, 4, 3, 2)
    part1.set_input(mel, features)
    part1.run(sync=True)
    np.testing.assert_array_equal(part1.get_output("source").numpy(), features.sum(2))
    part2.set_input(spectra, values)
    part2.run(sync=True)
    np.testing.assert_allclose(part2.get_output("samples").numpy(), features @ values.sum(3), rtol=2e-3)
