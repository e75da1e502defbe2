"""Convolutions of every kind: near onnxruntime, and the same bits on every instruction set and number of threads."""

from __future__ import annotations

import itertools
import os

import numpy as np
import pytest
import warm_python
from isas import FLAGS

from tcim_lite.models.onnx import onnx_bytes
from tcim_lite.models.onnx.lower import conv as lower_conv

RUN = """
import hashlib, sys
import numpy as np
from tcim_lite.runtime import Module
rounds, *packages = sys.argv[1:]
for package in packages:
    module = Module.load(open(package, "rb").read())
    module.set_input("x", np.load(package + ".npy"))
    digests = []
    for _ in range(int(rounds)):
        module.run(sync=True)
        names = [module.get_output_name(i) for i in range(module.get_num_outputs())]
        outputs = b"".join(module.get_output(name).numpy().tobytes() for name in names)
        digests.append(hashlib.sha256(outputs).hexdigest())
    assert len(set(digests)) == 1
    print(package, digests[0])
"""


def depthwise(side, **attributes):
    return 1, side, {"group": 66, **attributes}


# Channels of a group, kernel and attributes, of 66 channels, and how many outputs if not 66; rows of several panels,
# strides that leave columns over.
KINDS = {
    "1x1": (66, 1, {}),
    "1x1 stride": (66, 1, {"strides": [2, 3]}),
    "3x3": (66, 3, {"pads": [1, 1, 1, 1]}),
    "3x3 stride": (66, 3, {"pads": [1, 0, 0, 2], "strides": [2, 2]}),
    "3x3 narrow": (66, 3, {"pads": [1, 1, 1, 1], "strides": [1, 3]}),
    "5x5 dilated": (66, 5, {"pads": [4, 4, 4, 4], "dilations": [2, 2]}),
    "3x3 mostly in the padding": (66, 3, {"pads": [9, 9, 9, 9], "dilations": [9, 9]}),
    "few pixels": (66, 3, {"strides": [9, 9]}),
    "few channels of a large plane": (22, 1, {"group": 3, "pads": [38, 38, 38, 38]}),
    "grouped": (33, 3, {"group": 2, "pads": [0, 1, 2, 1]}),
    "grouped, whole vectors": (33, 3, {"group": 2, "pads": [1, 1, 1, 1]}, 64),
    "depthwise": depthwise(3, pads=[1, 1, 1, 1]),
    "depthwise stride": depthwise(3, pads=[0, 1, 1, 0], strides=[2, 2]),
    "depthwise wide stride": depthwise(5, pads=[2, 2, 2, 2], strides=[1, 3]),
    "depthwise dilated": depthwise(3, pads=[3, 2, 1, 0], dilations=[3, 2], strides=[1, 2]),
    "depthwise padding beyond the input": depthwise(3, pads=[60, 70, 60, 70], dilations=[50, 60], strides=[7, 1]),
    "depthwise point": depthwise(1, strides=[3, 2]),
}
ENDS = ["", "Relu", "Clip", "Sigmoid"]


def network(make_model, kinds, size, ends=ENDS):
    """Convolutions with each function behind them, with a bias or none, and with a residual in front of it."""
    rng = np.random.default_rng(8)
    constants = {"low": np.float32(-0.25), "high": np.float32(0.5)}
    nodes, names = [], []
    for kind in kinds:
        channels, side, attributes, *more = KINDS[kind]
        outputs = more[0] if more else 66
        for end in ends:
            name = f"{kind} {end}"
            scale = side * channels**0.5
            constants[f"{name}.w"] = (rng.standard_normal((outputs, channels, side, side)) / scale).astype(np.float32)
            constants[f"{name}.b"] = rng.standard_normal(outputs).astype(np.float32)
            inputs = ["x", f"{name}.w", *([f"{name}.b"] if end in ("", "Clip") else [])]
            nodes.append(("Conv", inputs, [name], attributes))
            if end in ("Relu", "Clip"):
                nodes.append(("Add", [name, f"{kind} "], [f"{name} sum"], {}))
                name = f"{name} sum"
            if end:
                nodes.append((end, [name, *(["low", "high"] if end == "Clip" else [])], [f"{name} y"], {}))
                name = f"{name} y"
            names.append(name)
    image = rng.standard_normal(size).astype(np.float32)
    image[:, :, 3:12, 5:17] *= rng.integers(0, 2, image[:, :, 3:12, 5:17].shape)
    image[:, :, 2:5] = 0  # groups of nothing but zeros
    return make_model(nodes, {"x": size}, names, constants), image


@pytest.mark.parametrize("kind", KINDS)
def test_float32_is_within_rounding_of_onnxruntime(make_model, run_here, run_there, kind):
    model, image = network(make_model, [kind], (2, 66, 17, 21))
    got, wanted = run_here(model, {"x": image}), run_there(model, {"x": image})
    for name, array in wanted.items():
        bound = 64 * 2**-24 * np.sqrt(66 * 25) * np.abs(array).max()
        np.testing.assert_allclose(got[name], array, atol=bound, rtol=0, err_msg=name)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("quant", "cosine"), [("float16", 0.999999), ("w8a8h1_sefp", 0.999)])
def test_other_profiles_are_close_to_onnxruntime(make_model, run_here, run_there, kind, quant, cosine):
    model, image = network(make_model, [kind], (2, 66, 17, 21))
    got, wanted = run_here(model, {"x": image}, quant), run_there(model, {"x": image})
    for name, array in wanted.items():
        a, b = got[name].ravel().astype(np.float64), array.ravel().astype(np.float64)
        assert a @ b / np.linalg.norm(a) / np.linalg.norm(b) > cosine, name


@pytest.mark.parametrize("quant", ["float32", "float16"])
def test_packed_weights_give_the_bits_of_rows(make_model, run_here, monkeypatch, quant):
    model, image = network(make_model, KINDS, (1, 66, 17, 21), ENDS[:2])
    outputs = []
    for least in (1, 1 << 40):
        for limit in ("PACKED_CONV_TERMS", "PACKED_CONV_OUTPUTS", "PACKED_CONV_PIXELS"):
            monkeypatch.setattr(lower_conv, limit, least)
        outputs.append(run_here(model, {"x": image}, quant))
    packed, rows = outputs
    for name, array in packed.items():
        np.testing.assert_array_equal(array, rows[name], err_msg=name)


def chain(make_model, channels, show):
    """Layers one behind the other, whose results are shown or else read only by convolutions and pools."""
    rng = np.random.default_rng(12)
    nodes, constants, shown = [], {}, []

    def conv(x, y, outputs, inputs, side, **attributes):
        constants[f"{y}.w"] = (rng.standard_normal((outputs, inputs, side, side)) / side / inputs**0.5).astype("f4")
        constants[f"{y}.b"] = rng.standard_normal(outputs).astype("f4")
        nodes.append(("Conv", [x, f"{y}.w", f"{y}.b"], [y], attributes))
        shown.append(y)

    same = {"pads": [1, 1, 1, 1]}
    conv("x", "stem", channels, 3, 3, **same, strides=[2, 2])
    nodes.append(("MaxPool", ["stem"], ["pooled"], {"kernel_shape": [3, 3], "strides": [2, 2], **same}))
    conv("stem", "point", channels, channels, 1)  # of enough pixels for parts of their own
    nodes.append(("MaxPool", ["point"], ["far"], {"kernel_shape": [5, 5], "strides": [5, 5]}))
    conv("pooled", "wide", 3 * channels, channels, 1)
    nodes.append(("Clip", ["wide", "low", "high"], ["clipped"], {}))
    conv("clipped", "moved", 3 * channels, 1, 3, group=3 * channels, pads=[0, 1, 2, 1])
    nodes.append(("Sigmoid", ["moved"], ["soft"], {}))
    conv("soft", "narrow", channels, 3 * channels, 1)
    nodes.append(("Add", ["pooled", "narrow"], ["sum"], {}))
    conv("sum", "square", channels, channels, 3, **same, dilations=[1, 1])
    nodes.append(("Relu", ["square"], ["positive"], {}))
    conv("positive", "again", channels, channels, 1)
    nodes.append(("Add", ["sum", "again"], ["twice"], {}))  # of what is read later
    conv("twice", "more", channels, channels, 1)
    nodes.append(("Add", ["twice", "more"], ["own"], {}))  # of what the convolution reads
    conv("own", "apart", 2 * channels, channels, 1, strides=[2, 2])
    conv("sum", "strided", 2 * channels, channels, 3, **same, strides=[2, 2])
    nodes.append(("Add", ["strided", "apart"], ["both"], {}))
    conv("both", "large", 2 * channels, 1, 5, group=2 * channels, pads=[2, 2, 2, 2], strides=[1, 2])
    nodes.append(("MaxPool", ["both"], ["highest"], {"kernel_shape": [2, 2]}))
    conv("sum", "thin", channels, channels, 1)  # which nothing reads behind "fan"
    conv("thin", "fan", 3 * channels, channels, 1)
    conv("fan", "leaf", 3 * channels, 1, 3, group=3 * channels, **same, strides=[2, 2])
    conv("leaf", "last", channels, 3 * channels, 1)
    conv("far", "spread", 2 * channels, channels, 1)  # from planes, and its reader into planes
    conv("spread", "edge", 2 * channels, 1, 5, group=2 * channels, pads=[2, 2, 2, 2])
    constants |= {"low": np.float32(0), "high": np.float32(1)}
    ends = ["large", "highest", "far", "last", "edge"]
    between = ["pooled", "clipped", "soft", "sum", "positive", "twice", "own", "both", "stem", "point", "apart"]
    between += ["thin", "fan", "leaf", "spread"]
    return make_model(nodes, {"x": (2, 3, 82, 80)}, ends + between * show, constants), ends


def chain_image():
    return np.random.default_rng(3).standard_normal((2, 3, 82, 80)).astype(np.float32)


@pytest.mark.parametrize("quant", ["float32", "float16"])
@pytest.mark.parametrize("channels", [16, 24, 48])
def test_layers_that_keep_blocks_between_them_give_the_bits_of_planes(make_model, run_here, channels, quant):
    image = chain_image()
    planes, _ = chain(make_model, channels, show=True)  # what is an output lies in planes
    blocks, names = chain(make_model, channels, show=False)
    wanted, got = run_here(planes, {"x": image}, quant), run_here(blocks, {"x": image}, quant)
    for name in names:
        np.testing.assert_array_equal(got[name], wanted[name], err_msg=name)


@pytest.mark.parametrize("sums", [["wide", "deep"], ["deep", "wide"]])
def test_what_is_added_to_a_depthwise_of_planes_lies_in_planes(make_model, run_here, sums):
    rng = np.random.default_rng(15)
    weights = {
        name: rng.standard_normal(shape).astype("f4")
        for name, shape in (("a", (16, 48, 3, 3)), ("b", (16, 1, 3, 3)), ("c", (16, 16, 1, 1)))
    }
    pads = {"pads": [1, 1, 1, 1]}
    nodes = [
        ("Conv", ["x", "a"], ["wide"], pads),
        ("Conv", ["y", "b"], ["deep"], {**pads, "group": 16}),
        ("Add", sums, ["sum"], {}),
        ("Conv", ["sum", "c"], ["z"], {}),
    ]
    feeds = {"x": rng.standard_normal((1, 48, 28, 31)), "y": rng.standard_normal((1, 16, 28, 31))}
    feeds = {name: array.astype(np.float32) for name, array in feeds.items()}
    shapes = {name: array.shape for name, array in feeds.items()}
    found = [run_here(make_model(nodes, shapes, ends, weights), feeds)["z"] for ends in (["z"], ["z", "wide", "deep"])]
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize("quant", ["float32", "float16"])
@pytest.mark.parametrize(("channels", "batch"), [(16, 1), (48, 1), (24, 1), (16, 2)])
def test_values_side_by_side_in_blocks_give_the_bits_of_planes(make_model, run_here, channels, batch, quant):
    """Not of several images or parts of blocks. Sums take the place of neither a part nor of what has parts."""
    rng = np.random.default_rng(14)
    constants, nodes = {}, []

    def conv(x, y, inputs, side=1, outputs=channels):
        constants[f"{y}.w"] = (rng.standard_normal((outputs, inputs, side, side)) / side / inputs**0.5).astype("f4")
        nodes.append(("Conv", [x, f"{y}.w"], [y], {"pads": [side // 2] * 4}))

    def put(parts, y):
        nodes.append(("Concat", parts, [y], {"axis": 1}))

    conv("x", "a", 3, 3)
    conv("a", "b", channels)
    conv("a", "c", channels, 3)
    put(["b", "c"], "bc")
    conv("bc", "d", 2 * channels, 3)
    conv("d", "q", channels)
    nodes.append(("Add", ["c", "q"], ["r"], {}))  # of a part, whose bytes are read later as those of another
    conv("r", "s", channels)
    conv("d", "m", channels, outputs=2 * channels)
    nodes.append(("Add", ["bc", "m"], ["n"], {}))  # of parts of which one is read later
    conv("n", "g", 2 * channels)
    conv("n", "t", 2 * channels)
    nodes.append(("Add", ["b", "t"], ["e"], {}))
    conv("e", "f", channels)
    nodes.append(("MaxPool", ["n"], ["p"], {"kernel_shape": [3, 3], "strides": [2, 2]}))
    conv("p", "h", 2 * channels)
    conv("p", "i", 2 * channels, 3)
    nodes.append(("MaxPool", ["h"], ["j"], {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}))
    put(["i", "h", "j"], "ihj")
    put(["i", "j"], "ij")  # in two places
    nodes.append(("MaxPool", ["ihj"], ["highest"], {"kernel_shape": [3, 3], "strides": [2, 2]}))
    conv("highest", "k", 3 * channels)
    conv("ij", "l", 2 * channels)
    conv("d", "o", channels)
    conv("d", "u", channels, 3)
    conv("d", "v", channels)
    put(["o", "u"], "ou")
    put(["v", "ou"], "vou")  # of a value that has parts itself
    conv("vou", "w", 3 * channels)
    image = rng.standard_normal((batch, 3, 28, 31)).astype(np.float32)
    ends = ["f", "g", "k", "l", "s", "w"]
    blocks = make_model(nodes, {"x": image.shape}, ends, constants)
    planes = make_model(nodes, {"x": image.shape}, [*ends, *(node[2][0] for node in nodes)], constants)
    wanted, got = run_here(planes, {"x": image}, quant), run_here(blocks, {"x": image}, quant)
    for name in ends:
        np.testing.assert_array_equal(got[name], wanted[name], err_msg=name)


@pytest.fixture(scope="module")
def files(make_model, tmp_path_factory):
    """Networks of all kinds, of many pixels and of layers in a row, each with an image beside it."""
    folder = tmp_path_factory.mktemp("convolutions")
    every_kind = network(make_model, KINDS, (1, 66, 17, 21))
    many_pixels = network(make_model, ["1x1"], (1, 66, 50, 57), ENDS[:2])
    paths = []
    in_a_row = chain(make_model, 24, show=False)[0], chain_image()
    for networks, quant in ((3, "float32"), (3, "float16"), (1, "w8a8h1_sefp")):
        for model, image in (every_kind, many_pixels, in_a_row)[:networks]:
            paths.append(folder / f"{quant} {image.shape[-1]}")
            paths[-1].write_bytes(onnx_bytes(model, quant))
            np.save(f"{paths[-1]}.npy", image)
    return paths


@pytest.fixture(scope="module")
def reference(files):
    return digests(files, "ref", 3)


def digests(files, isa, threads):
    environment = os.environ | ({"TCIM_LITE_ISA": isa} if isa else {}) | {"TCIM_LITE_THREADS": str(threads)}
    rounds = 1 if isa == "ref" else 2  # a run of the reference kernels takes seconds
    done = warm_python.run("-c", RUN, rounds, *files, env=environment)
    if "not to be had here" in done.stderr:
        pytest.skip(f"this machine has no {isa}")
    assert done.returncode == 0, done.stderr
    return done.stdout


# Threads decide which convolutions are cut into shares, and whether many pixels are packed part by part.
@pytest.mark.parametrize(
    ("isa", "threads"),
    [*(pytest.param(isa, 2, marks=[pytest.mark.slow] * (isa == "ref")) for isa in FLAGS), ("", 1), ("", 8)],
)
def test_every_instruction_set_and_number_of_threads_gives_the_same_bits(files, reference, isa, threads):
    assert digests(files, isa, threads) == reference


# How weights and inputs are made, and channels of inputs and outputs: of vectors, and with some left over.
@pytest.mark.parametrize("kind", ["usual", "infinite", "underflow"])
@pytest.mark.parametrize(("channels", "outputs"), [(66, 70), (48, 64)])
def test_taps_in_the_padding_change_no_bits(make_model, run_here, kind, channels, outputs):
    """With a stride of two along the rows all taps are multiplied; its columns are those of even places."""
    rng = np.random.default_rng(5)
    weight = rng.standard_normal((outputs, channels, 3, 3)).astype(np.float32)
    x = rng.standard_normal((2, channels, 18, 23)).astype(np.float32)
    if kind == "infinite":
        weight[3, 7, 0, 0], weight[9, 40, 2, 1], weight[20, 2, 1, 1] = np.inf, np.nan, -np.inf
    if kind == "underflow":  # sums of 0 and -0, of which a product with the padding makes 0
        weight, x = weight * np.float32(1e-30), abs(x) * np.float32(1e-30)
    nodes = [("Relu", ["x"], ["in"], {})]
    for pads, step, along in itertools.product(([9, 9, 9, 9], [11, 8, 9, 14]), (1, 2), (1, 2)):
        attributes = {"pads": pads, "dilations": [9, 9], "strides": [step, along]}
        nodes.append(("Conv", ["in", "w"], [f"{pads} {step} {along}"], attributes))
    names = [node[2][0] for node in nodes[1:]]
    model = make_model(nodes, {"x": x.shape}, names, {"w": weight})
    for quant in ("float32", "float16") if kind == "usual" else ("float32",):
        got = run_here(model, {"x": x}, quant)
        for inside, all_taps in zip(names[::2], names[1::2], strict=True):
            here, there = got[inside][..., ::2], got[all_taps]
            if kind == "infinite":
                np.testing.assert_array_equal(here, there)
                assert np.isnan(here).any()
            else:
                np.testing.assert_array_equal(here.view(f"i{here.itemsize}"), there.view(f"i{here.itemsize}"))
            if kind == "underflow":
                assert (np.signbit(here) & (here == 0)).any()
