"""What gpt-oss asks of ops: attention sinks and the clamped product of gate and up."""

import numpy as np
import pytest
from built_graphs import load, run

import tcim_lite.runtime as rt
from tcim_lite import hmm
from tcim_lite.errors import HmmFormatError
from tcim_lite.hmm import WeightData
from tcim_lite.models.graphs.builder import Clamp, GraphBuilder
from tcim_lite.models.graphs.slot import Slot

HEADS, KV_HEADS, DIM, CONTEXT, TOKENS = 6, 2, 64, 600, 5


# Sinks


def attention(sinks, window=None):
    """FlashAttention over a cache of which rows from `valid` on are written first."""
    entries = [] if sinks is None else [WeightData("sinks", "float32", "dense", sinks.shape, sinks.astype(np.float32))]
    builder = GraphBuilder("attention", "float32", entries)
    query, new = (builder.input(name, (1, TOKENS, heads, DIM)) for name, heads in (("q", HEADS), ("new", KV_HEADS)))
    valid, current = (builder.input(name, (1,), "int32") for name in ("valid", "current"))
    k, v = (builder.state(name, (1, KV_HEADS, CONTEXT, DIM)) for name in "kv")
    slot = Slot(valid=valid, current=current, positions=None, keys=(k,), values=(v,))
    written = [
        builder.kv_cache([f"{name}_new"], new, [cache], [slot]) for name, cache in zip("kv", (k, v), strict=True)
    ]
    y = builder.attention("y", query, *written, [slot], window, None if sinks is None else "sinks")
    return load(builder, [y], entries)


def attend(q, k, v, valid, sinks, window=None):
    fresh = k[:, :, valid : valid + TOKENS].transpose(0, 2, 1, 3)
    lengths = {"valid": np.array([valid], np.int32), "current": np.array([TOKENS], np.int32)}
    return run(attention(sinks, window), q=q, new=fresh, k=k, v=v, **lengths)[0]


@pytest.fixture(scope="module")
def attention_values():
    random = np.random.default_rng(3)
    k = random.standard_normal((1, KV_HEADS, CONTEXT, DIM)).astype(np.float32)
    return random.standard_normal((1, TOKENS, HEADS, DIM)).astype(np.float32), k, k.copy()


@pytest.mark.parametrize("window", [None, 3])
@pytest.mark.parametrize("valid", [0, 20, 590])
def test_sinks_of_minus_infinity_are_none(attention_values, valid, window):
    without = attend(*attention_values, valid, None, window)
    assert attend(*attention_values, valid, np.full(HEADS, -np.inf), window).tobytes() == without.tobytes()


@pytest.mark.parametrize("window", [None, 3])
@pytest.mark.parametrize("valid", [0, 20, 590])
def test_a_sink_is_one_more_score(attention_values, valid, window):
    q, k, v = attention_values
    sinks = np.array([-3.0, -1.0, 0.0, 1.0, 4.0, 90.0])
    found = attend(q, k, v, valid, sinks, window).reshape(TOKENS, HEADS, DIM)
    for token in range(TOKENS):
        end = valid + token + 1
        seen = slice(0 if window is None else max(end - window, 0), end)
        for head in range(HEADS):
            kv = head // (HEADS // KV_HEADS)
            scores = k[0, kv, seen].astype(np.float64) @ q[0, token, head] / np.sqrt(DIM)
            scores = np.exp(np.append(scores, sinks[head]) - max(scores.max(), sinks[head]))
            expected = scores[:-1] @ v[0, kv, seen] / scores.sum()
            np.testing.assert_allclose(found[token, head], expected, rtol=0, atol=2e-6)


def test_sinks_that_do_not_fit_are_refused():
    with pytest.raises(HmmFormatError, match=r"FlashAttention.*'sinks' is .*\[7\], expected float32 \[6\]"):
        attention(np.zeros(7))


# The clamped product


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_the_clamped_product(dtype):
    builder = GraphBuilder("product", dtype, [])
    y = builder.silu_mul("y", builder.input("x", (1, 3, 64)), Clamp(alpha=1.702, limit=7.0))
    x = (np.random.default_rng(0).standard_normal((1, 3, 64)) * 8).astype(dtype)
    x[0, 0, :4] = x[0, 0, 16:20] = [7, -7, 60, -60]
    (found,) = run(load(builder, [y], []), x=x)
    gate, up = x.reshape(3, 2, 2, 16).astype(np.float64).transpose(2, 0, 1, 3).reshape(2, 3, 32)
    assert (gate > 7).any()
    assert (abs(up) > 7).any()
    gate, up = np.minimum(gate, 7), np.clip(up, -7, 7)
    expected = (up + 1) * gate / (1 + np.exp(-1.702 * gate))
    np.testing.assert_allclose(found[0], expected, rtol=1e-6 if dtype == "float32" else 1e-3, atol=1e-7)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_gelu_of_the_gate(dtype):
    builder = GraphBuilder("product", dtype, [])
    y = builder.silu_mul("y", builder.input("x", (1, 3, 64)), "gelu_tanh")
    x = (np.random.default_rng(0).standard_normal((1, 3, 64)) * 3).astype(dtype)
    (found,) = run(load(builder, [y], []), x=x)
    gate, up = x.reshape(3, 2, 2, 16).astype(np.float64).transpose(2, 0, 1, 3).reshape(2, 3, 32)
    expected = gate / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (gate + 0.044715 * gate**3))) * up
    # 1 + tanh loses what is small beside 1.
    bound = (1e-6 if dtype == "float32" else 1e-3) * abs(expected) + 2e-7 * abs(gate * up) + 6e-8
    assert (abs(found[0] - expected) <= bound).all()


@pytest.mark.parametrize(
    ("attributes", "message"),
    [({"function": "relu"}, "'function'"), ({"function": "gelu_tanh", "alpha": 1.0, "limit": 1.0}, "does not go with")],
)
def test_the_function_of_the_gate_is_gelu_alone(attributes, message):
    values = [hmm.Value("x", "input", "float32", (1, 3, 64)), hmm.Value("y", "intermediate", "float32", (1, 3, 32))]
    graph = hmm.Graph("product", values, [hmm.Op("SiluMul", [0], [1], attributes)], inputs=[0], outputs=[1])
    with pytest.raises(HmmFormatError, match=rf"SiluMul.*{message}"):
        rt.load(hmm.model_bytes(graph, []))


@pytest.mark.parametrize("attributes", [{"alpha": 1.0}, {"limit": 1.0}, {"alpha": 1.0, "limit": -1.0}])
def test_the_clamp_has_two_positive_numbers(attributes):
    values = [hmm.Value("x", "input", "float32", (1, 3, 64)), hmm.Value("y", "intermediate", "float32", (1, 3, 32))]
    graph = hmm.Graph("product", values, [hmm.Op("SiluMul", [0], [1], attributes)], inputs=[0], outputs=[1])
    with pytest.raises(HmmFormatError, match=r"SiluMul.*'(alpha|limit)' is (missing|-1)"):
        rt.load(hmm.model_bytes(graph, []))
