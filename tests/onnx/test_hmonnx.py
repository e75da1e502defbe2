"""HMONNX: files made from the vendor's op table, against numpy and against the same network in plain ONNX."""

from __future__ import annotations

import numpy as np
import pytest

onnx = pytest.importorskip("onnx", reason="needs onnx")

from onnx import TensorProto, helper, numpy_helper

import tcim_lite.runtime as rt
from tcim_lite.cli import main
from tcim_lite.models.common.errors import CompileError
from tcim_lite.models.onnx import onnx_bytes
from tcim_lite.models.weights.packing import dequantize
from tcim_lite.models.weights.quantize import quantize_w8

DOMAIN = "ai.houmo.xh2a"
RNG = np.random.default_rng(25)


def hmonnx(nodes, inputs, outputs, constants, version=1):
    """A model of nodes (op, inputs, outputs, attributes); inputs are float16, or int32 where the shape is (1,)."""
    protos = [
        helper.make_node(op, ins, outs, name=f"n{i}", **{"domain": DOMAIN, **attrs})
        for i, (op, ins, outs, attrs) in enumerate(nodes)
    ]
    kinds = {name: TensorProto.INT32 if shape == (1,) else TensorProto.FLOAT16 for name, shape in inputs.items()}
    graph = helper.make_graph(
        protos,
        "network",
        [helper.make_tensor_value_info(name, kinds[name], shape) for name, shape in inputs.items()],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT16, None) for name in outputs],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20), helper.make_opsetid(DOMAIN, version)])
    model.ir_version = 10
    return model


def run(model, feeds, quant="float32"):
    module = rt.Module.load(onnx_bytes(model, quant))
    for name, array in feeds.items():
        module.set_input(name, array)
    module.run(sync=True)
    return {info.name: module.get_output(info.name).numpy() for info in model.graph.output}


def codes_of(weight):
    """A weight [N, K] as qweight [K, N] and exponents [K / 64, N], and what they stand for."""
    padded = np.pad(weight, ((0, 0), (0, -weight.shape[1] % 64)))
    codes, exponents = quantize_w8(padded)
    meant = dequantize(codes, exponents)[:, : weight.shape[1]]
    return np.ascontiguousarray(codes[:, : weight.shape[1]].T), np.ascontiguousarray(exponents.T), meant


@pytest.fixture
def two_layers():
    """silu(x w1 + b1) w2 + x with K = 100, as HMONNX, and its weights."""
    w1, w2 = (RNG.standard_normal(shape).astype(np.float32) / 8 for shape in ((130, 100), (100, 130)))
    (q1, e1, m1), (q2, e2, m2) = codes_of(w1), codes_of(w2)
    bias = RNG.standard_normal(130).astype(np.float32)
    nodes = [
        ("Linear", ["x", "l.qweight", "l.scale_or_exp", "b1"], ["h"], {"hmfp_act_man_bit": 8, "in_features": 100}),
        ("Silu", ["h"], ["s"], {}),
        ("Linear", ["s", "m.qweight", "m.scale_or_exp"], ["o"], {"mode": "sefp", "out_features": 100}),
        ("Add", ["o", "x"], ["y"], {}),
    ]
    constants = {"l.qweight": q1, "l.scale_or_exp": e1, "m.qweight": q2, "m.scale_or_exp": e2, "b1": bias}
    return hmonnx(nodes, {"x": (3, 7, 100)}, ["y"], constants), m1, m2, bias


def test_float32_equals_float64_arithmetic(two_layers):
    model, w1, w2, bias = two_layers
    x = RNG.standard_normal((3, 7, 100)).astype(np.float16)
    h = x.astype(np.float64) @ w1.T.astype(np.float64) + bias
    wanted = h / (1 + np.exp(-h)) @ w2.T.astype(np.float64) + x
    np.testing.assert_allclose(run(model, {"x": x})["y"], wanted, atol=2e-5, rtol=0)


@pytest.mark.parametrize("quant", ["w8a8h1_sefp", "float16", "float32"])
def test_the_same_network_in_plain_onnx_gives_the_same_bits(two_layers, make_model, quant):
    model, w1, w2, bias = two_layers
    nodes = [
        ("MatMul", ["x", "w1"], ["p"], {}), ("Add", ["p", "b1"], ["h"], {}), ("Sigmoid", ["h"], ["g"], {}),
        ("Mul", ["h", "g"], ["s"], {}), ("MatMul", ["s", "w2"], ["o"], {}), ("Add", ["o", "x"], ["y"], {}),
    ]  # fmt: skip
    plain = make_model(nodes, {"x": (3, 7, 100)}, ["y"], {"w1": w1.T, "w2": w2.T, "b1": bias})
    x = RNG.standard_normal((3, 7, 100)).astype(np.float16)
    np.testing.assert_array_equal(run(model, {"x": x}, quant)["y"], run(plain, {"x": x}, quant)["y"])


@pytest.mark.parametrize("exponents", [True, False])
@pytest.mark.parametrize("bits", [4, 8])
def test_codes_and_scales_are_taken_over(bits, exponents):
    """Whole numbers below 128 are their own codes, so the sums are exact."""
    low, high = (-8, 8) if bits == 4 else (-127, 128)
    codes = RNG.integers(low, high, (128, 20), dtype=np.int8)
    powers = RNG.integers(-9, -5, (2, 20))
    scale = powers.astype(np.int32) if exponents else (2.0**powers).astype(np.float16)
    model = hmonnx(
        [("Linear", ["x", "q", "e"], ["y"], {"hmfp_weight_man_bit": bits})], {"x": (5, 128)}, ["y"],
        {"q": codes, "e": scale},
    )  # fmt: skip
    x = RNG.integers(-3, 4, (5, 128)).astype(np.float16)
    x[:, ::64] = 127
    wanted = x.astype(np.float64) @ (codes * np.repeat(2.0**powers, 64, axis=0))
    np.testing.assert_array_equal(run(model, {"x": x}, "w8a8h1_sefp")["y"], wanted.astype(np.float16))


def test_scales_of_four_bit_codes_need_be_no_powers_of_two():
    codes = RNG.integers(-8, 8, (64, 16), dtype=np.int8)
    scale = RNG.uniform(0.01, 0.02, (1, 16)).astype(np.float16)
    model = hmonnx(
        [("Linear", ["x", "q", "e"], ["y"], {"hmfp_weight_man_bit": 4})], {"x": (2, 64)}, ["y"],
        {"q": codes, "e": scale},
    )  # fmt: skip
    x = RNG.integers(-100, 101, (2, 64)).astype(np.float16)
    exact = x.astype(np.float64) @ (codes * scale.astype(np.float64))
    np.testing.assert_allclose(run(model, {"x": x}, "w8a8h1_sefp")["y"], exact, rtol=2**-10)


def test_vector_ops_equal_numpy():
    x = RNG.standard_normal((1, 2, 5, 16)).astype(np.float32)
    w, b = RNG.standard_normal((2, 16)).astype(np.float32)
    angle = RNG.uniform(0, 6, (5, 8))
    cos, sin = (np.tile(f(angle), 2).astype(np.float32) for f in (np.cos, np.sin))
    nodes = [
        ("RMSNorm", ["x", "w"], ["rms"], {"eps": 1e-6}),
        ("LayerNorm", ["x", "w", "b"], ["norm"], {"eps": 1e-5}),
        ("Normalize", ["x"], ["unit"], {"axis": 2, "eps": 1e-12}),
        ("Rope", ["x", "cos", "sin"], ["turned"], {}),
        ("TopK", ["x"], ["largest", "places"], {"k": 3, "axis": -1, "largest": 1}),
        ("Slice", ["x", "from", "to", "axis"], ["cut"], {"domain": ""}),
        ("Gelu", ["x", "table", "table"], ["gelu"], {}),
    ]
    constants = {"w": w, "b": b, "cos": cos, "sin": sin, "table": np.zeros(259, np.float16)}
    constants |= {"from": np.array([4]), "to": np.array([12]), "axis": np.array([3])}
    outputs = ["rms", "norm", "unit", "turned", "largest", "cut"]
    got = run(hmonnx(nodes, {"x": x.shape}, outputs, constants), {"x": x})
    d = x.astype(np.float64)
    wanted = {
        "rms": d / np.sqrt((d**2).mean(-1, keepdims=True) + 1e-6) * w,
        "norm": (d - d.mean(-1, keepdims=True)) / np.sqrt(d.var(-1, keepdims=True) + 1e-5) * w + b,
        "unit": d / np.linalg.norm(d, axis=2, keepdims=True),
        "turned": d * cos + np.concatenate([-d[..., 8:], d[..., :8]], -1) * sin,
        "largest": -np.sort(-d, -1)[..., :3],
        "cut": d[..., 4:12],
    }
    for name, array in wanted.items():
        np.testing.assert_allclose(got[name], array, atol=1e-5, rtol=0, err_msg=name)


HEADS, DIM, CONTEXT, TOKENS = 2, 64, 16, 3
CACHES = {"k": (1, 1, CONTEXT, DIM), "v": (1, 1, CONTEXT, DIM)}
LENGTHS = {"past": (1,), "current": (1,)}
ATTENTION = [
    ("KVcache", ["newk", "k", "past", "current"], ["keys"], {"axis": 2}),
    ("KVcache", ["newv", "v", "past", "current"], ["values"], {"axis": 2}),
    ("FlashAttention", ["q", "keys", "values", "table", "past", "current"], ["y"],
     {"is_causal": 1, "scale": -1.0, "num_heads": HEADS, "num_kv_heads": 1}),
]  # fmt: skip
ROWS = {"q": (1, HEADS, TOKENS, DIM), "newk": (1, 1, TOKENS, DIM), "newv": (1, 1, TOKENS, DIM)}
TABLE = {"table": np.zeros(4, np.float16)}


def test_attention_over_caches_sees_earlier_calls():
    module = rt.Module.load(onnx_bytes(hmonnx(ATTENTION, {**ROWS, **CACHES, **LENGTHS}, ["y"], TABLE), "float32"))
    keys = values = np.zeros((0, DIM))
    for past in (0, TOKENS):
        q, k, v = (RNG.standard_normal(shape).astype(np.float32) for shape in ROWS.values())
        for name, array in zip(ROWS, (q, k, v), strict=True):
            module.set_input(name, array)
        module.set_input("past", np.int32([past]))
        module.set_input("current", np.int32([TOKENS]))
        module.run(sync=True)
        keys, values = np.concatenate([keys, k[0, 0]]), np.concatenate([values, v[0, 0]])
        scores = np.einsum("htd,sd->hts", q[0].astype(np.float64), keys) / np.sqrt(DIM)
        scores[:, np.arange(len(keys)) > past + np.arange(TOKENS)[:, None]] = -np.inf
        shares = np.exp(scores - scores.max(-1, keepdims=True))
        mixed = np.einsum("hts,sd->thd", shares / shares.sum(-1, keepdims=True), values)
        np.testing.assert_allclose(module.get_output("y").numpy()[0], mixed.reshape(TOKENS, -1), atol=2e-5, rtol=0)


CODES, EXPONENTS = np.ones((64, 4), np.int8), np.zeros((1, 4), np.int8)
ROW = {"x": (2, 64)}
LINEAR = {"q": CODES, "e": EXPONENTS}


def one(op, inputs, **attributes):
    return [(op, inputs, ["y"], attributes)]


REFUSED = {
    "16-bit activations": (one("Linear", ["x", "q", "e"], hmfp_act_man_bit=16), ROW, LINEAR, "hmfp_act_man_bit is 16"),
    "packed codes": (one("Linear", ["x", "q", "e"]), ROW, {**LINEAR, "q": CODES[:32].view(np.uint8)}, "is uint8"),
    "scales of other groups": (
        one("Linear", ["x", "q", "e"]), ROW, {**LINEAR, "e": EXPONENTS[:, :3]},
        "scale_or_exp is [1, 3], expected [1, 4]",
    ),
    "scales that are no powers of two": (
        one("Linear", ["x", "q", "e"]), ROW, {**LINEAR, "e": np.full((1, 4), 0.3, np.float16)}, "no powers of two"
    ),
    "exponents beyond fp32": (
        one("Linear", ["x", "q", "e"]), ROW, {**LINEAR, "e": np.full((1, 4), 1000, np.int32)}, "an exponent of 1000"
    ),
    "codes beyond 4 bits": (
        one("Linear", ["x", "q", "e"], hmfp_weight_man_bit=4), ROW, {**LINEAR, "q": CODES * 9}, "beyond -8..7"
    ),
    "an op whose operands are not known": (one("MoEBlock", ["x"]), ROW, {}, "MoEBlock): the order of its quantised"),
    "an op that is not in the table": (one("Frobnicate", ["x"]), ROW, {}, "not in the import table"),
    "a mask": (
        [*ATTENTION[:2], (*ATTENTION[2][:1], [*ATTENTION[2][1], "q"], *ATTENTION[2][2:])],
        {**ROW, **ROWS, **CACHES, **LENGTHS}, TABLE, "masks, ranges",
    ),
    "a cache as an output": (
        [("KVcache", ["newk", "k", "past", "current"], ["y"], {})], {**ROWS, **CACHES, **LENGTHS}, {}, "is a KV cache"
    ),
    "a length that is computed": (
        [("Concat", ["past"], ["n"], {"axis": 0}), ("Reshape", ["n", "s"], ["m"], {}),
         ("BatchGather", ["x", "m"], ["y"], {})],
        {"x": (1, 4, 8), **LENGTHS}, {"s": np.array([1, 1])}, "must be an input",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_read_is_refused_with_its_node(case):
    nodes, inputs, constants, text = REFUSED[case]
    used = {name for _, ins, _, _ in nodes for name in ins}
    inputs = {name: shape for name, shape in inputs.items() if name in used}
    with pytest.raises(CompileError) as error:
        onnx_bytes(hmonnx(nodes, inputs, ["y"], constants), "w8a8h1_sefp")
    assert text in str(error.value)
    assert "node 'n" in str(error.value) or "(Identity)" in str(error.value)


def test_weights_beyond_float32_are_refused_where_they_are_floats():
    codes = np.full((64, 4), -128, np.int8)
    for exponent, fits in ((120, True), (121, False)):
        constants = {"q": codes, "e": np.full((1, 4), exponent, np.int32)}
        model = hmonnx(one("Linear", ["x", "q", "e"]), {"x": (1, 64)}, ["y"], constants)
        onnx_bytes(model, "w8a8h1_sefp")
        if fits:
            got = run(model, {"x": np.full((1, 64), 2**-24, np.float32)})["y"]
            np.testing.assert_array_equal(got, -(2.0**109))
            continue
        with pytest.raises(CompileError, match="a code times its scale is beyond float32"):
            onnx_bytes(model, "float32")


def test_another_version_of_the_domain_is_refused():
    with pytest.raises(CompileError, match=r"version 2 of ai\.houmo\.xh2a, supported is 1"):
        onnx_bytes(hmonnx(one("Relu", ["x"]), ROW, ["y"], {}, version=2))


def test_the_command_knows_the_domain_and_says_what_blocks(two_layers, tmp_path, capsys):
    path = tmp_path / "net.onnx"
    path.write_bytes(two_layers[0].SerializeToString())
    assert main(["compile", str(path), "--check"]) == 0
    shown = capsys.readouterr().out
    assert "2  ai.houmo.xh2a.Linear\n" in shown
    assert "HMONNX is read by guesses" in shown
    assert main(["compile", str(path), "-o", str(tmp_path / "out"), "-q"]) == 0
    assert "warning: HMONNX is read by guesses" in capsys.readouterr().err
    assert rt.load(tmp_path / "out" / "net.hmm").get_input_info("x").dtype == np.float16
    nodes = [
        ("Linear", ["x", "q", "e"], ["a"], {}),
        ("Linear", ["a", "q", "e"], ["b"], {"hmfp_act_man_bit": 16}),
        ("LSTM", ["b"], ["y"], {}),
    ]
    square = {"q": np.full((64, 64), -128, np.int8), "e": np.zeros((1, 64), np.int8)}
    path.write_bytes(hmonnx(nodes, ROW, ["y"], square).SerializeToString())
    assert main(["compile", str(path), "--check"]) == 1
    shown = capsys.readouterr().out
    assert "2  ai.houmo.xh2a.Linear  not supported: 1 of them: hmfp_act_man_bit is 16, supported is 8" in shown
    assert "1  ai.houmo.xh2a.LSTM  not supported: the order of its quantised operands is not public" in shown
    path.write_bytes(hmonnx(nodes[:1], ROW, ["a"], square).SerializeToString())
    assert main(["compile", str(path), "-o", str(tmp_path / "out"), "-q"]) == 0
    assert "4096 weight codes of -128 became -127" in capsys.readouterr().err
