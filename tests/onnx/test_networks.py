"""Whole small networks against onnxruntime, and what a package of one looks like."""

from __future__ import annotations

import json

import numpy as np
import pytest

import tcim_lite.runtime as rt
from tcim_lite import hmm
from tcim_lite.cli import main

RNG = np.random.default_rng(5)


@pytest.fixture(autouse=True)
def _numbers_of_its_own() -> None:
    """A test's numbers do not depend on which ran before."""
    RNG.bit_generator.state = np.random.default_rng(5).bit_generator.state


def weights(*shape):
    fan_in = int(np.prod(shape[1:])) or 1
    return (RNG.standard_normal(shape) * np.sqrt(2 / fan_in)).astype(np.float32)


def batch_norm(prefix, channels):
    stats = {"scale": 1 + 0.1 * RNG.standard_normal(channels), "bias": RNG.standard_normal(channels)}
    stats |= {"mean": RNG.standard_normal(channels), "var": RNG.uniform(0.5, 2, channels)}
    return {f"{prefix}_{name}": value.astype(np.float32) for name, value in stats.items()}


@pytest.fixture
def residual_network(make_model):
    """Convolutions (strided, grouped, dilated, depthwise), batch norm, a residual, pools, Concat, and a classifier."""
    constants = {
        "w1": weights(24, 3, 7, 7), "w2": weights(24, 24, 3, 3), "b2": weights(24), "w3": weights(24, 1, 3, 3),
        "w4": weights(40, 12, 3, 3), "w5": weights(10, 64), "b5": weights(10), "shape": np.array([2, -1], np.int64),
    } | batch_norm("n1", 24) | batch_norm("n2", 24)  # fmt: skip
    stats = [[f"{prefix}_{name}" for name in ("scale", "bias", "mean", "var")] for prefix in ("n1", "n2")]
    nodes = [
        ("Conv", ["x", "w1"], ["c1"], {"strides": [2, 2], "pads": [3, 3, 3, 3]}),
        ("BatchNormalization", ["c1", *stats[0]], ["a1"], {}),
        ("Relu", ["a1"], ["r1"], {}),
        ("MaxPool", ["r1"], ["p1"], {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}),
        ("Conv", ["p1", "w2", "b2"], ["c2"], {"pads": [2, 2, 2, 2], "dilations": [2, 2]}),
        ("Conv", ["c2", "w3"], ["c3"], {"pads": [1, 1, 1, 1], "group": 24}),
        ("Sigmoid", ["c3"], ["s3"], {}),
        ("Mul", ["c3", "s3"], ["m3"], {}),
        ("Add", ["m3", "p1"], ["sum"], {}),
        ("BatchNormalization", ["sum", *stats[1]], ["a2"], {}),
        ("Conv", ["a2", "w4"], ["c4"], {"group": 2, "strides": [1, 2]}),
        ("AveragePool", ["a2"], ["p2"], {"kernel_shape": [3, 3], "strides": [1, 2]}),
        ("Concat", ["c4", "p2"], ["cat"], {"axis": 1}),
        ("GlobalAveragePool", ["cat"], ["g"], {}),
        ("Reshape", ["g", "shape"], ["f"], {}),
        ("Gemm", ["f", "w5", "b5"], ["logits"], {"transB": 1}),
        ("Softmax", ["logits"], ["y"], {}),
    ]
    return make_model(nodes, {"x": (2, 3, 37, 41)}, ["y", "logits", "m3"], constants)


@pytest.fixture
def image():
    return RNG.standard_normal((2, 3, 37, 41)).astype(np.float32)


def test_float32_is_within_rounding_of_onnxruntime(residual_network, image, run_here, run_there):
    """K is 216 at most and 8 layers follow each other: 8 sqrt(K) roundings, as numerics.md section 9 counts them."""
    got, wanted = run_here(residual_network, {"x": image}), run_there(residual_network, {"x": image})
    for name, array in wanted.items():
        bound = 64 * 2**-24 * np.sqrt(216 * 8) * np.abs(array).max()
        np.testing.assert_allclose(got[name], array, atol=bound, rtol=0, err_msg=name)


@pytest.mark.parametrize(("quant", "cosine"), [("float16", 0.999999), ("w8a8h1_sefp", 0.999)])
def test_other_profiles_are_close(residual_network, image, run_here, run_there, quant, cosine):
    here, there = run_here(residual_network, {"x": image}, quant), run_there(residual_network, {"x": image})
    got, wanted = ({name: array.astype(np.float64) for name, array in side.items()} for side in (here, there))
    for name in ("logits", "m3"):
        a, b = got[name].ravel(), wanted[name].ravel()
        assert a @ b / np.linalg.norm(a) / np.linalg.norm(b) > cosine, name
    # A share moves by half of what logits move by at most; then it is rounded to float16.
    moved = np.abs(got["logits"] - wanted["logits"]).max()
    assert np.abs(got["y"] - wanted["y"]).max() <= moved / 2 + 2**-11


def test_a_package_from_the_command(residual_network, image, run_here, tmp_path, capsys):
    path = tmp_path / "net.onnx"
    path.write_bytes(residual_network.SerializeToString())
    assert main(["compile", str(path), "--check"]) == 0
    shown = capsys.readouterr().out
    assert "4  Conv" in shown
    assert "all supported" in shown
    assert main(["compile", str(path), "-o", str(tmp_path / "out"), "--quant", "float16", "--name", "demo"]) == 0
    assert "demo.hmm" in capsys.readouterr().out
    assert main(["inspect", str(tmp_path / "out")]) == 0
    assert "tokenizer" not in capsys.readouterr().out  # a network has none
    file = hmm.read(tmp_path / "out" / "demo.hmm")
    kinds = [op.kind for op in file.graphs[0].ops]
    assert kinds.count("Conv") == 4
    assert kinds.count("Silu") == 1
    assert kinds.count("Add") + kinds.count("Mul") == 3  # the residual, and the norm that follows no convolution
    module = rt.load(tmp_path / "out" / "demo.hmm")
    info = module.get_input_info("x")
    assert (tuple(info.shape), info.dtype) == ((2, 3, 37, 41), np.float16)
    assert json.loads(module.get_custom_msg()) == {
        "x": {"shape": [2, 3, 37, 41], "resizer_mode": 0, "input_cfg": {"shape": [2, 3, 37, 41]}}
    }
    module.set_input("x", image)
    module.run(sync=True)
    np.testing.assert_array_equal(
        module.get_output("y").numpy(), run_here(residual_network, {"x": image}, "float16")["y"].astype(np.float16)
    )


def test_open_shapes_are_given_by_options(make_model, run_there, tmp_path, capsys):
    model = make_model([("Relu", ["x"], ["y"], {})], {"x": ("N", 3, "h")}, ["y"])
    path = tmp_path / "net.onnx"
    path.write_bytes(model.SerializeToString())
    assert main(["compile", str(path), "-o", str(tmp_path / "out")]) == 2
    assert "input 'x' has the open shape [1,3,h]; give it with --shape such as x=1,3,128" in capsys.readouterr().err
    assert main(["compile", str(path), "-o", str(tmp_path / "out"), "--shape", "x=2,3,5", "-q"]) == 0
    assert tuple(rt.load(tmp_path / "out" / "net.hmm").get_input_info("x").shape) == (2, 3, 5)
    for wrong, text in (
        ("y=1", "names the input 'y'"),
        ("x=1,a", "expected INPUT=N,N"),
        ("x=0", "expected INPUT=N,N"),
        ("x=2,4,5", "x=2,4,5 does not fit [N,3,h] of the file"),
        ("x=2,3", "x=2,3 does not fit [N,3,h] of the file"),
    ):
        assert main(["compile", str(path), "-o", str(tmp_path / "out"), "--shape", wrong]) == 2
        assert text in capsys.readouterr().err
    for other in (["--pipeline", "2"], ["--mtp"], ["--no-single-device"], ["--audio-frames", "8"], ["--vision-mask"]):
        assert main(["compile", str(path), "-o", str(tmp_path / "out"), *other]) == 2
        assert f"{other[0]} is for language models" in capsys.readouterr().err
    path.write_bytes(make_model([("Relu", ["x"], ["y"], {})], {"x": (1, 3)}, ["y"]).SerializeToString())
    assert main(["compile", str(path), "-o", str(tmp_path / "out"), "--batch", "2"]) == 2
    assert "--batch 2: no input of the file leaves axis 0 open" in capsys.readouterr().err
    path.write_bytes(make_model([("Relu", ["x"], ["y"], {})], {"x": ("N", 3)}, ["y"]).SerializeToString())
    assert main(["compile", str(path), "-o", str(tmp_path / "out"), "--batch", "2", "--shape", "x=1,3"]) == 2
    assert "or --shape gives another extent" in capsys.readouterr().err
    assert main(["compile", str(path), "-o", str(tmp_path / "out"), "--batch", "2", "--shape", "x=2,3"]) == 0


def test_check_names_what_is_missing(make_model, tmp_path, capsys):
    model = make_model([("Relu", ["x"], ["a"], {}), ("Det", ["a"], ["y"], {})], {"x": (1, 3, 3)}, ["y"])
    path = tmp_path / "net.onnx"
    path.write_bytes(model.SerializeToString())
    assert main(["compile", str(path), "--check"]) == 1
    shown = capsys.readouterr().out
    assert "1  Det  not supported" in shown
    assert "2 nodes; not supported: Det" in shown
    assert main(["compile", str(path), "-o", str(tmp_path / "out")]) == 2
    assert "node 'n1' (Det): the op is not supported" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_images_are_fed_as_float16_nchw_as_the_public_demos_do(residual_network, image, tmp_path):
    """The calls of the vendor's resnet50 script: info, ascontiguous, an ndarray in, float32 out."""
    (tmp_path / "net.onnx").write_bytes(residual_network.SerializeToString())
    assert main(["compile", str(tmp_path / "net.onnx"), "-o", str(tmp_path), "--quant", "float16", "-q"]) == 0
    module = rt.load(tmp_path / "net.hmm")
    info = module.get_input_info(module.get_input_name(0)).ascontiguous()
    assert (info.format.name, tuple(info.shape), info.dtype) == ("ND", (2, 3, 37, 41), np.float16)
    pictures = image.transpose(0, 2, 3, 1)  # NHWC, as an image library gives it
    module.set_input("x", np.ascontiguousarray(pictures.transpose(0, 3, 1, 2).astype(np.float16)))
    module.run()
    module.sync()
    first = module.get_output("y").astype(np.float32).numpy()
    assert (first.shape, first.dtype) == ((2, 10), np.float32)
    module.set_input("x", pictures.transpose(0, 3, 1, 2).astype(np.float16))  # a view with other strides
    module.run(sync=True)
    np.testing.assert_array_equal(module.get_output("y").numpy(), first)
    assert np.ptp(first, axis=1).min() > 0
