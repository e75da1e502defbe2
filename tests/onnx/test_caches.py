"""Caches of keys and values: attention of onnxruntime's domain against onnxruntime, and TensorScatter against numpy."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from tcim_lite import hmm
from tcim_lite.errors import TcimError
from tcim_lite.models.onnx import onnx_bytes

RNG = np.random.default_rng(11)
HEADS, GROUPS, SIZE = 4, 2, 16
ANGLES = RNG.uniform(0, 3, (32, SIZE // 2))


def numbers(*shape):
    return RNG.normal(0, 0.5, shape).astype(np.float32)


def rows(count, heads=HEADS, batch=2):
    return numbers(batch, count, heads * SIZE)


def cache(count, heads=HEADS):
    return numbers(2, heads, count, SIZE)


TABLES = {"cos": np.cos(ANGLES).astype(np.float32), "sin": np.sin(ANGLES).astype(np.float32)}
GROUPED = {"num_heads": HEADS, "kv_num_heads": GROUPS}
STEP = {"q": rows(1), "k": rows(1, GROUPS), "v": rows(1, GROUPS)}
CHUNK = {"q": rows(3), "k": rows(3, GROUPS), "v": rows(3, GROUPS)}
PAST = {"pk": cache(5, GROUPS), "pv": cache(5, GROUPS)}
LONG = {"pk": cache(9, GROUPS), "pv": cache(9, GROUPS)}
GROUP = ["q", "k", "v", "pk", "pv", "last", "total"]
KV = ["y", "keys", "values"]
# op, operands, results, attributes, what is fed, constants
CASES = {
    "MultiHeadAttention with a cache": (
        "MultiHeadAttention", ["q", "k", "v", "", "", "", "pk", "pv"], KV, {"num_heads": HEADS},
        {"q": rows(3), "k": rows(3), "v": rows(3), "pk": cache(4), "pv": cache(4)}, {},
    ),
    "MultiHeadAttention of earlier tokens": (
        "MultiHeadAttention", ["q", "k", "v", "", "", "", "pk", "pv"], KV, {"num_heads": HEADS, "unidirectional": 1},
        {"q": rows(3), "k": rows(3), "v": rows(3), "pk": cache(4), "pv": cache(4)}, {},
    ),
    "MultiHeadAttention of another's keys": (
        "MultiHeadAttention", ["q", "k", "v"], ["y"], {"num_heads": HEADS},
        {"q": rows(3), "k": cache(5), "v": cache(5)}, {},
    ),
    "Attention with a cache": (
        "Attention", ["x", "w", "b", "", "past"], ["y", "present"], {"num_heads": HEADS, "unidirectional": 1},
        {"x": rows(3), "past": numbers(2, 2, HEADS, 4, SIZE)}, {"w": numbers(64, 192), "b": numbers(192)},
    ),
    "Attention of values of another size": (
        "Attention", ["x", "w", "b"], ["y"], {"num_heads": HEADS, "qkv_hidden_sizes": [64, 64, 32]},
        {"x": rows(3)}, {"w": numbers(64, 160), "b": numbers(160)},
    ),
    "GroupQueryAttention of a prompt": (
        "GroupQueryAttention", ["q", "k", "v", "", "", "last", "total"], KV, GROUPED,
        CHUNK, {"last": np.int32([2, 2]), "total": np.int32([3])},
    ),
    "GroupQueryAttention of a step": (
        "GroupQueryAttention", GROUP, KV, GROUPED, STEP | PAST, {"last": np.int32([5, 5]), "total": np.int32([6])},
    ),
    "GroupQueryAttention of a chunk, near by": (
        "GroupQueryAttention", GROUP, KV, {**GROUPED, "local_window_size": 3, "softcap": 2.0, "scale": 0.4},
        {name: array[:1] for name, array in (CHUNK | PAST).items()}, {"last": np.int32([7]), "total": np.int32([8])},
    ),
    "GroupQueryAttention with rotary positions": (
        "GroupQueryAttention", [*GROUP, "cos", "sin"], KV, {**GROUPED, "do_rotary": 1, "rotary_interleaved": 1},
        STEP | PAST, {"last": np.int32([5, 5]), "total": np.int32([6]), **TABLES},
    ),
    "GroupQueryAttention of packed operands": (
        "GroupQueryAttention", ["q", "", "", "", "", "last", "total", "cos", "sin"], KV, {**GROUPED, "do_rotary": 1},
        {"q": numbers(2, 3, (HEADS + 2 * GROUPS) * SIZE)}, {"last": np.int32([2, 2]), "total": np.int32([3]), **TABLES},
    ),
    "GroupQueryAttention, lengths at run time": (
        "GroupQueryAttention", [*GROUP, "cos", "sin"], KV, {**GROUPED, "do_rotary": 1, "local_window_size": 4},
        STEP | LONG | {"last": np.int32([7, 4])}, {"total": np.int32([9]), **TABLES},
    ),
    "RotaryEmbedding": (
        "RotaryEmbedding", ["q", "at", "cos", "sin"], ["y"], {},
        {"q": rows(3)}, {"at": np.array([4]), **TABLES},
    ),
    "RotaryEmbedding, places at run time": (
        "RotaryEmbedding", ["q", "at", "cos", "sin"], ["y"], {"interleaved": 1},
        {"q": cache(3), "at": np.int64([[3, 4, 5], [0, 9, 2]])}, TABLES,
    ),
}  # fmt: skip


def model_of(make_model, case):
    op, operands, results, attributes, feeds, constants = case
    nodes = [(op, operands, results, {**attributes, "domain": "com.microsoft"})]
    model = make_model(nodes, {name: array.shape for name, array in feeds.items()}, results, constants)
    for info in model.graph.input:
        if feeds[info.name].dtype.kind == "i":
            info.type.tensor_type.elem_type = 6 if feeds[info.name].dtype == np.int32 else 7
    entry = model.opset_import.add()
    entry.domain, entry.version = "com.microsoft", 1
    return model, feeds


@pytest.mark.parametrize("case", CASES)
def test_results_and_caches_are_those_of_onnxruntime(case, make_model, run_here, run_there):
    model, feeds = model_of(make_model, CASES[case])
    here = run_here(model, {n: a.astype(np.int32) if a.dtype.kind == "i" else a for n, a in feeds.items()})
    for name, expected in run_there(model, feeds).items():
        got = here[name]
        if name != "y" and "last" in feeds:  # rows that no token has yet are anything there
            got, expected = (
                np.concatenate([array[i, :, : last + 1].ravel() for i, last in enumerate(feeds["last"])])
                for array in (got, expected)
            )
        np.testing.assert_allclose(got, expected, atol=3e-6, err_msg=name)


@pytest.mark.parametrize("packed", [3, 2])
def test_packed_operands_are_those_side_by_side(packed, make_model, run_here):
    """onnxruntime has them on GPUs only."""
    own = {name: numbers(2, 5, HEADS, SIZE) for name in "qkv"}
    flat = {name: array.reshape(2, 5, -1) for name, array in own.items()}
    both = np.stack([own[name] for name in "qkv"[-packed:]], 3)
    feeds = {"x": both} if packed == 3 else {"q": flat["q"], "x": both}
    expected, got = (
        run_here(*model_of(make_model, ("MultiHeadAttention", list(fed), ["y"], {"num_heads": HEADS}, fed, {})))["y"]
        for fed in (flat, feeds)
    )
    np.testing.assert_array_equal(got, expected)


def test_a_cache_of_other_heads_is_refused(make_model):
    model, _ = model_of(make_model, CASES["GroupQueryAttention of a step"])
    model.graph.input[3].type.tensor_type.shape.dim[1].dim_value = 3
    with pytest.raises(TcimError, match=r"'n0' .*a cache \[2, 3, 5, 16\] for rows \[2, 2, 1, 16\]"):
        onnx_bytes(model, "float32")


def test_norms_inside_are_those_of_the_rows_before(make_model, run_here):
    """As onnxruntime-genai writes Qwen3 for GPUs; onnxruntime has them there only."""
    constants = {"last": np.int32([5, 5]), "total": np.int32([6]), **TABLES}
    norms = {name: 1 + numbers(SIZE) for name in ("qn", "kn")}
    operands = [*GROUP, "cos", "sin", "", "", "", "", "", "qn", "kn"]
    attributes = {**GROUPED, "do_rotary": 1, "qk_norm_epsilon": 1e-4}
    case = ("GroupQueryAttention", operands, KV, attributes, STEP | PAST, constants | norms)
    normed = {}
    for name in "qk":
        x = STEP[name].reshape(2, 1, -1, SIZE)
        x = x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-4) * norms[f"{name}n"]
        normed[name] = x.reshape(STEP[name].shape).astype(np.float32)
    plain = ("GroupQueryAttention", operands[:9], KV, {**GROUPED, "do_rotary": 1}, STEP | PAST | normed, constants)
    got, expected = (run_here(*model_of(make_model, one)) for one in (case, plain))
    for name in KV:
        np.testing.assert_allclose(got[name], expected[name], atol=3e-6, err_msg=name)


@pytest.mark.parametrize(("name", "value"), [("sliding_window_cache", 1), ("causal", 0), ("qk_output", 1)])
def test_attributes_that_mean_another_attention_are_refused(name, value, make_model):
    op, operands, results, attributes, feeds, constants = CASES["GroupQueryAttention of a step"]
    model, _ = model_of(make_model, (op, operands, results, {**attributes, name: value}, feeds, constants))
    with pytest.raises(TcimError, match=rf"'n0' .*{name} {value}; expected {1 - value}"):
        onnx_bytes(model, "float32")


def scattered(cache, update, begins, axis, mode):
    result = np.moveaxis(cache.copy(), axis, 1)
    rows = np.moveaxis(update, axis, 1)
    for batch, begin in enumerate(begins):
        for i in range(rows.shape[1]):
            at = (begin + i) % result.shape[1] if mode == "circular" else begin + i
            if 0 <= at < result.shape[1]:
                result[batch, at] = rows[batch, i]
    return np.moveaxis(result, 1, axis)


# The shape of the cache, how many new rows, their axis, the place in each batch
SCATTERS = {
    "one row": ((1, 3, 10, 8), 1, -2, [4]),
    "one row in each batch": ((3, 2, 10, 8), 1, -2, [0, 9, 5]),
    "some rows in each batch": ((3, 2, 10, 8), 4, -2, [0, 6, 3]),
    "rows beyond the end": ((2, 2, 10, 8), 4, -2, [8, 10]),
    "rows beyond the begin": ((2, 2, 10, 8), 3, -2, [-2, -3]),
    "all rows": ((2, 2, 4, 8), 4, -2, [0, 1]),
    "a cache of one row": ((2, 3, 1, 8), 1, 2, [0, 0]),
    "heads last": ((2, 10, 3, 8), 2, 1, [7, 3]),
    "three axes": ((2, 10, 8), 2, 1, [7, 3]),
    "single numbers": ((2, 10), 3, 1, [7, 3]),
}


def scatter_model(make_model, case, mode, feeds):
    _, _, axis, begins = case
    nodes = [("TensorScatter", ["cache", "update", "at"], ["y"], {"axis": axis, "mode": mode})]
    constants = {} if "at" in feeds else {"at": np.array(begins)}
    model = make_model(nodes, {name: array.shape for name, array in feeds.items()}, ["y"], constants, 24)
    if "at" in feeds:
        model.graph.input[2].type.tensor_type.elem_type = 7
    return model


@pytest.mark.parametrize("is_constant", [False, True], ids=["computed", "constant"])
@pytest.mark.parametrize(
    ("case", "mode"),
    [(case, "linear") for case in SCATTERS] + [(case, "circular") for case in SCATTERS if "beyond" not in case],
)
def test_rows_are_scattered_in_one_pass_over_the_cache(case, mode, is_constant, make_model, run_here, tmp_path):
    shape, count, axis, begins = SCATTERS[case]
    update = [count if i == axis % len(shape) else extent for i, extent in enumerate(shape)]
    feeds = {"cache": numbers(*shape), "update": numbers(*update)}
    if not is_constant:
        feeds["at"] = np.array(begins, np.int32)
    model = scatter_model(make_model, SCATTERS[case], mode, feeds)
    got = run_here(model, feeds)["y"]
    np.testing.assert_array_equal(got, scattered(feeds["cache"], feeds["update"], begins, axis, mode))
    path = tmp_path / "net.hmm"
    path.write_bytes(onnx_bytes(model, "float32"))
    ops = Counter(op.kind for op in hmm.read(path).graphs[0].ops)
    assert (ops["Where"], ops["Concat"], ops["Gather"]) == (1, 0, int(count > 1))
