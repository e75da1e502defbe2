"""Linear attention, op by op: against sums in float64, chunk against tokens, states in place, rows that are padding."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import tcim_lite.runtime as rt
from tcim_lite import hmm
from tcim_lite.errors import HmmFormatError, TcimError
from tcim_lite.hmm import Op, Role, Value, WeightData
from tcim_lite.models.graphs.builder import GraphBuilder

KEY_HEADS, HEADS, KEYS, VALUES, TAPS, COLUMNS = 2, 4, 24, 40, 4, 4
CHANNELS = 2 * KEY_HEADS * KEYS + HEADS * VALUES
RNG = np.random.default_rng(5)
TAP_WEIGHTS = RNG.normal(0, 0.5, (TAPS, CHANNELS)).astype(np.float32)
RATE, BIAS = -RNG.uniform(0.1, 2, HEADS).astype(np.float32), RNG.normal(0, 1, HEADS).astype(np.float32)
WEIGHTS = [
    WeightData(name, "float32", "dense", data.shape, data)
    for name, data in (("taps", TAP_WEIGHTS), ("rate", RATE), ("bias", BIAS))
]


def layer(tokens, dtype, batch=1, live=True, each=False):
    """A convolution whose channels are q, k and v, the delta rule, and a gate; states at the end, or after `each`."""
    builder = GraphBuilder("layer", dtype, WEIGHTS)
    x, current = builder.input("x", (batch, tokens, CHANNELS)), builder.input("current", (1,), "int32")
    mask = builder.input("mask", (batch, tokens))
    a, b = (builder.input(name, (batch, tokens, HEADS)) for name in "ab")
    gate = builder.input("gate", (batch, tokens, HEADS, VALUES))
    columns = builder.input("columns", (batch, CHANNELS, COLUMNS))
    state = builder.input("state", (batch, HEADS, KEYS, VALUES))
    new = [[f"{name}_{t}" for t in range(tokens)] if each else [name] for name in ("new_columns", "new_state")]
    mixed, new_columns = builder.causal_conv("conv", x, columns, "taps", current, new[0])
    wide = KEY_HEADS * KEYS
    q, k = (
        builder.reshape(f"{name}_heads", builder.slice(name, mixed, at, at + wide), (batch, tokens, KEY_HEADS, KEYS))
        for name, at in (("q", 0), ("k", wide))
    )
    v = builder.reshape("v_heads", builder.slice("v", mixed, 2 * wide, CHANNELS), (batch, tokens, HEADS, VALUES))
    rows, new_state = builder.delta_rule("rule", (q, k, v), state, (a, b), ("rate", "bias"), mask, new[1])
    y = builder.gate_mul("y", rows, gate, "silu")
    names = ("y", *new[0], *new[1])
    outputs = dict(zip((y, *new_columns, *new_state), map(Role, names), strict=True))
    return rt.load(hmm.model_bytes(builder.build(outputs, current if live else None), WEIGHTS))


def numbers(tokens, dtype, batch=1, seed=0):
    random = np.random.default_rng(seed)
    shapes = {
        "x": (tokens, CHANNELS), "a": (tokens, HEADS), "b": (tokens, HEADS), "gate": (tokens, HEADS, VALUES),
        "columns": (CHANNELS, COLUMNS), "state": (HEADS, KEYS, VALUES),
    }  # fmt: skip
    made = {name: random.normal(0, 0.4, (batch, *shape)).astype(dtype) for name, shape in shapes.items()}
    return made | {"mask": np.ones((batch, tokens), dtype), "current": np.array([tokens], np.int32)}


def run(module, feed, outputs=("y", "new_columns", "new_state")):
    for name, value in feed.items():
        module.set_input(name, value)
    module.run(True)
    return [module.get_output(name).numpy() for name in outputs]


def softplus(x):
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


def silu(x):
    return x / (1 + np.exp(-x))


def expected(feed, current, round_to):
    """One slot in float64; `round_to` is what tensors between ops hold."""
    x, columns, state = (feed[name][0].astype(np.float64) for name in ("x", "columns", "state"))
    every = np.concatenate((columns.T, x))
    taps = TAP_WEIGHTS.astype(np.float64)
    first = COLUMNS + 1 - TAPS
    mixed = np.stack([silu((every[first + t : first + t + TAPS] * taps).sum(0)) for t in range(len(x))])
    mixed = mixed.astype(round_to).astype(np.float64)
    wide = KEY_HEADS * KEYS
    q, k = (mixed[:, at : at + wide].reshape(-1, KEY_HEADS, KEYS).repeat(HEADS // KEY_HEADS, 1) for at in (0, wide))
    v = mixed[:, 2 * wide :].reshape(-1, HEADS, VALUES)
    rows = np.zeros_like(v)
    for t in range(current):
        if feed["mask"][0, t] == 0:
            continue
        decay = np.exp(RATE * softplus(feed["a"][0, t].astype(np.float64) + BIAS))
        beta = 1 / (1 + np.exp(-feed["b"][0, t].astype(np.float64)))
        state = state * decay[:, None, None]
        change = beta[:, None] * (v[t] - np.einsum("hkv,hk->hv", state, k[t]))
        state = state + k[t][:, :, None] * change[:, None]
        rows[t] = np.einsum("hkv,hk->hv", state, q[t]) / np.sqrt(KEYS)
    gated = rows.astype(round_to) * silu(feed["gate"][0].astype(np.float64))
    return gated, every[current : current + COLUMNS].T, state


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize(("tokens", "current"), [(1, 1), (3, 3), (20, 20), (20, 13), (20, 2)])
def test_layer_gives_the_sums_of_its_definition(tokens, current, dtype):
    feed = numbers(tokens, dtype) | {"current": np.array([current], np.int32)}
    feed["mask"][0, current:] = 0
    y, columns, state = run(layer(tokens, dtype), feed)
    rows, last, after = expected(feed, current, dtype)
    bound = 2e-6 if dtype == "float32" else 3e-3
    np.testing.assert_allclose(y[0, :current], rows[:current], rtol=bound, atol=bound)
    assert (y[0, current:] == 0).all()
    np.testing.assert_array_equal(columns[0], last.astype(dtype))
    np.testing.assert_allclose(state[0], after, rtol=bound, atol=bound)


def test_masked_token_changes_nothing():
    feed = numbers(7, "float32")
    feed["mask"][0, 3] = 0
    y, _, state = run(layer(7, "float32"), feed)
    rows, _, after = expected(feed, 7, "float32")
    assert (y[0, 3] == 0).all()
    np.testing.assert_allclose(y[0], rows, rtol=2e-6, atol=2e-6)
    np.testing.assert_allclose(state[0], after, rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("cut", [[1] * 21, [16, 5], [2, 17, 2]])
def test_chunk_is_its_tokens_one_by_one(cut):
    """In float32, where a state between two runs is what it is inside of one."""
    feed = numbers(21, "float32")
    whole = run(layer(21, "float32"), feed)
    columns, state, rows, at = feed["columns"], feed["state"], [], 0
    for tokens in cut:
        part = {name: feed[name][:, at : at + tokens] for name in ("x", "a", "b", "gate", "mask")}
        part |= {"columns": columns, "state": state, "current": np.array([tokens], np.int32)}
        y, columns, state = run(layer(tokens, "float32"), part)
        rows.append(y)
        at += tokens
    np.testing.assert_array_equal(np.concatenate(rows, axis=1), whole[0])
    np.testing.assert_array_equal(columns, whole[1])
    np.testing.assert_array_equal(state, whole[2])


@pytest.mark.parametrize(("tokens", "current"), [(1, 1), (2, 2), (5, 5), (5, 3), (18, 17)])
@pytest.mark.parametrize("live", [True, False])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_states_after_each_token_are_those_of_runs_of_one(tokens, current, dtype, live):
    """Where a run of one rounds its state too. Tokens that are padding leave the states as they are."""
    feed = numbers(tokens, dtype) | {"current": np.array([current], np.int32)}
    feed["mask"][0, current:] = 0
    module = layer(tokens, dtype, live=live, each=True)
    y = run(module, feed, ["y"])[0]
    columns, state = feed["columns"], feed["state"]
    one = layer(1, dtype)
    for t in range(tokens):
        if t < current:
            part = {name: feed[name][:, t : t + 1] for name in ("x", "a", "b", "gate", "mask")}
            part |= {"columns": columns, "state": state, "current": np.array([1], np.int32)}
            row, columns, state = run(one, part)
            np.testing.assert_array_equal(y[:, t : t + 1], row)
        np.testing.assert_array_equal(module.get_output(f"new_columns_{t}").numpy(), columns)
        np.testing.assert_array_equal(module.get_output(f"new_state_{t}").numpy(), state)


@pytest.mark.parametrize("at", [0, 2, 4])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_a_state_may_lie_over_the_one_after_some_token(at, dtype):
    """As after the last run, when so many tokens were accepted."""
    feed = numbers(5, dtype)
    apart, over = (layer(5, dtype, each=True) for _ in range(2))
    names = ["y", *(f"new_{kind}_{t}" for kind in ("columns", "state") for t in range(5))]
    first = run(apart, feed, names)
    again = {kind: first[names.index(f"new_{kind}_{at}")] for kind in ("columns", "state")}
    second = run(apart, feed | again, names)
    run(over, feed, names)
    for kind in ("columns", "state"):
        over.set_input(kind, over.get_dev_output(f"new_{kind}_{at}"))
    over.run(True)
    for name, want in zip(names, second, strict=True):
        np.testing.assert_array_equal(over.get_output(name).numpy(), want)


def test_slots_have_states_after_each_token_of_their_own():
    feed, parts = numbers(3, "float32", batch=2), []
    names = ["y", *(f"new_{kind}_{t}" for kind in ("columns", "state") for t in range(3))]
    both = run(layer(3, "float32", batch=2, live=False, each=True), feed, names)
    for slot in range(2):
        own = {name: value[slot : slot + 1] for name, value in feed.items() if name != "current"}
        parts.append(run(layer(3, "float32", each=True), own | {"current": feed["current"]}, names))
    for got, one, other in zip(both, *parts, strict=True):
        np.testing.assert_array_equal(got, np.concatenate((one, other)))


def test_as_many_states_as_tokens_or_one():
    builder = GraphBuilder("odd", "float32", WEIGHTS)
    x, current = builder.input("x", (1, 3, CHANNELS)), builder.input("current", (1,), "int32")
    columns = builder.input("columns", (1, CHANNELS, COLUMNS))
    y, _ = builder.causal_conv("y", x, columns, "taps", current, ["one", "two", "three"])
    graph = builder.build({y: Role("y")})
    (conv,) = graph.ops
    graph = replace(graph, ops=[replace(conv, outputs=conv.outputs[:3])])
    with pytest.raises(HmmFormatError, match="has 3 outputs, expected 2, or 4 with a state after each of 3 tokens"):
        rt.load(hmm.model_bytes(graph, WEIGHTS))


def rule_graph(dtype, tokens, in_place):
    """The delta rule alone, its state an input with an output, or a state."""
    builder = GraphBuilder("rule", dtype, WEIGHTS)
    q, k = (builder.input(name, (1, tokens, KEY_HEADS, KEYS)) for name in "qk")
    v, mask = builder.input("v", (1, tokens, HEADS, VALUES)), builder.input("mask", (1, tokens))
    a, b = (builder.input(name, (1, tokens, HEADS)) for name in "ab")
    state = (builder.state if in_place else builder.input)("state", (1, HEADS, KEYS, VALUES))
    y, (new_state,) = builder.delta_rule("y", (q, k, v), state, (a, b), ("rate", "bias"), mask, ["new_state"])
    outputs = {y: Role("y")} if in_place else {y: Role("y"), new_state: Role("new_state")}
    return builder.build(outputs)


@pytest.mark.parametrize("tokens", [1, 20])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_a_state_in_place_is_that_of_an_output(tokens, dtype):
    usual, in_place = (rt.load(hmm.model_bytes(rule_graph(dtype, tokens, kind), WEIGHTS)) for kind in (False, True))
    random = np.random.default_rng(4)
    assert not in_place.get_dev_input("state").numpy().any()
    for _ in range(3):
        for index in range(usual.get_num_inputs()):
            name = usual.get_input_name(index)
            if name != "state":
                value = random.normal(0, 0.4, usual.get_input_info(name).shape).astype(dtype)
                usual.set_input(name, value)
                in_place.set_input(name, value)
        usual.run(True)
        in_place.run(True)
        np.testing.assert_array_equal(in_place.get_output("y").numpy(), usual.get_output("y").numpy())
        after = usual.get_output("new_state").numpy()
        np.testing.assert_array_equal(in_place.get_dev_input("state").numpy(), after)
        usual.set_input("state", after)


def test_what_states_in_place_cannot_be():
    def load(graph, change):
        (op,) = graph.ops
        rt.load(hmm.model_bytes(replace(graph, ops=[change(op)]), WEIGHTS))

    usual, in_place = (rule_graph("float32", 1, kind) for kind in (False, True))
    attributes = {"update_rule": "gated_delta"}
    with pytest.raises(HmmFormatError, match="reads the state 'state' as operand 3, which it does not update"):
        load(in_place, lambda op: replace(op, attributes=attributes))
    (rule,) = in_place.ops
    returned = replace(in_place, outputs=rule.outputs)
    with pytest.raises(HmmFormatError, match="'new_state' is a state, which is updated in place and is no output"):
        rt.load(hmm.model_bytes(returned, WEIGHTS))
    with pytest.raises(HmmFormatError, match="attribute 'state' is 'copied', which this version does not know"):
        load(in_place, lambda op: replace(op, attributes=attributes | {"state": "copied"}))
    with pytest.raises(HmmFormatError, match=r"'state' is input float32 .*, expected a state"):
        load(usual, lambda op: replace(op, attributes=attributes | {"state": "in_place"}))


@pytest.mark.parametrize("tokens", [1, 5])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_state_and_its_result_may_be_one_buffer(tokens, dtype):
    feed = numbers(tokens, dtype)
    wanted = [run(layer(tokens, dtype), feed)]
    again = {"columns": wanted[0][1], "state": wanted[0][2]}
    wanted.append(run(layer(tokens, dtype), feed | again))
    module = layer(tokens, dtype)
    for name, value in feed.items():
        module.set_input(name, value)
    for state in ("columns", "state"):
        module.set_dev_output(f"new_{state}", module.get_dev_input(state))
    for rows, columns, state in wanted:
        module.run(True)
        np.testing.assert_array_equal(module.get_output("y").numpy(), rows)
        np.testing.assert_array_equal(module.get_dev_input("columns").to_host(True).numpy(), columns)
        np.testing.assert_array_equal(module.get_dev_input("state").to_host(True).numpy(), state)


def test_a_state_that_is_read_later_is_not_written_over_before():
    builder = GraphBuilder("later", "float32", WEIGHTS)
    x, current = builder.input("x", (1, 3, CHANNELS)), builder.input("current", (1,), "int32")
    columns = builder.input("columns", (1, CHANNELS, COLUMNS))
    y, (new_columns,) = builder.causal_conv("conv", x, columns, "taps", current, ["new_columns"])
    doubled = builder.add("doubled", columns, columns)
    outputs = {y: Role("y"), new_columns: Role("new_columns"), doubled: Role("doubled")}
    module = rt.load(hmm.model_bytes(builder.build(outputs, current), WEIGHTS))
    feed = numbers(3, "float32")
    for name in ("x", "current", "columns"):
        module.set_input(name, feed[name])
    module.set_dev_output("new_columns", module.get_dev_input("columns"))
    module.run(True)
    np.testing.assert_array_equal(module.get_output("doubled").numpy(), 2 * feed["columns"])
    moved = np.concatenate((feed["columns"][0].T, feed["x"][0]))[3:].T
    np.testing.assert_array_equal(module.get_dev_input("columns").to_host(True).numpy()[0], moved)


def test_slots_are_apart():
    feed = numbers(5, "float16", batch=2)
    both = run(layer(5, "float16", batch=2, live=False), feed)
    one = layer(5, "float16")
    for slot in range(2):
        alone = {name: value if name == "current" else value[slot : slot + 1] for name, value in feed.items()}
        for together, single in zip(both, run(one, alone), strict=True):
            np.testing.assert_array_equal(together[slot : slot + 1], single)


def test_numerics_float_keeps_the_states_dtype(monkeypatch):
    monkeypatch.setenv("TCIM_LITE_NUMERICS", "float")
    feed = numbers(6, "float16")
    y, _, state = run(layer(6, "float16"), feed)
    rows, _, after = expected(feed, 6, "float32")
    assert (y.dtype, state.dtype) == (np.float16, np.float16)
    np.testing.assert_allclose(y[0], rows, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(state[0], after, rtol=1e-3, atol=1e-3)


def test_nan_in_a_state_is_refused():
    feed = numbers(2, "float16")
    feed["state"][0, 1, 2, 3] = np.nan
    with pytest.raises(TcimError, match="'state' holds a NaN"):
        run(layer(2, "float16"), feed)


def rule(attributes, **shapes):
    """A graph of one DeltaRule with inputs of these shapes, in order."""
    values = [Value(name, "input", "float16", shape) for name, shape in shapes.items()]
    v, state = shapes["v"], shapes["state"]
    values += [Value("y", "intermediate", "float16", v), Value("new", "intermediate", "float16", state)]
    inputs, outputs = list(range(len(shapes))), [len(shapes), len(shapes) + 1]
    graph = hmm.Graph("rule", values, [Op("DeltaRule", inputs, outputs, attributes)], inputs, outputs[:1])
    return rt.load(hmm.model_bytes(graph, []))


SHAPES = {"q": (1, 3, 2, 8), "k": (1, 3, 2, 8), "v": (1, 3, 4, 5), "state": (1, 4, 8, 5)}


@pytest.mark.parametrize(
    ("attributes", "shapes", "message"),
    [
        ({}, {}, "attribute 'update_rule'"),
        ({"update_rule": "slow"}, {}, "attribute 'update_rule' is"),
        ({"update_rule": "delta"}, {}, "4 inputs"),
        ({"update_rule": "linear", "scale": -1.0}, {}, "'scale'"),
        ({"update_rule": "linear"}, {"q": (1, 3, 3, 8)}, "'q' has 3 heads, expected a divisor of the 4"),
        ({"update_rule": "linear"}, {"state": (1, 4, 8, 6)}, "'state' is input float16"),
        ({"update_rule": "gated"}, {"decay": (1, 3, 4, 9)}, "'decay' is input float16"),
        ({"update_rule": "delta"}, {"beta": (1, 3, 2)}, "'beta' is input float16"),
    ],
)
def test_rule_refuses_what_does_not_fit(attributes, shapes, message):
    with pytest.raises(HmmFormatError, match=message):
        rule(attributes, **SHAPES | shapes)


@pytest.mark.parametrize("function", ["sigmoid", "silu", "softplus"])
@pytest.mark.parametrize("gates", [(1,), (3,), (3, 20)])
def test_a_gate_is_for_as_many_elements_as_there_are(gates, function):
    random, tokens = np.random.default_rng(2), 5
    builder = GraphBuilder("gate", "float32", [])
    x, gate = builder.input("x", (1, tokens, 3, 20)), builder.input("gate", (1, tokens, *gates))
    y = builder.gate_mul("y", x, gate, function)
    module = rt.load(hmm.model_bytes(builder.build({y: Role("result")}), []))
    values, factors = (random.normal(0, 3, each.shape).astype(np.float32) for each in (x, gate))
    module.set_input("x", values)
    module.set_input("gate", factors)
    module.run(True)
    wide = np.repeat(factors.reshape(tokens, -1).astype(np.float64), 60 // np.prod(gates), axis=1)
    sigmoid = 1 / (1 + np.exp(-wide))
    want = {"sigmoid": sigmoid, "silu": wide * sigmoid, "softplus": np.log1p(np.exp(wide))}[function]
    got = module.get_output("y").numpy().reshape(tokens, -1)
    np.testing.assert_allclose(got, want * values.reshape(tokens, -1), rtol=2e-6, atol=1e-6)


def test_gates_that_divide_no_token_are_refused():
    values = [
        hmm.Value("x", "input", "float32", (1, 2, 3, 20)),
        hmm.Value("gate", "input", "float32", (1, 2, 7)),
        hmm.Value("y", "intermediate", "float32", (1, 2, 3, 20)),
    ]
    graph = hmm.Graph("gate", values, [Op("GateMul", [0, 1], [2], {"function": "silu"})], [0, 1], [2])
    with pytest.raises(HmmFormatError, match=r"'gate' is .*\[1, 2, 7\], expected float32 \[1, 2, 3, 20\]"):
        rt.load(hmm.model_bytes(graph, []))
