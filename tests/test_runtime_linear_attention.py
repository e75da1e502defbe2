"""Linear attention, op by op: against sums in float64, chunk against tokens, states in place, rows that are padding."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from linear_attention_layer import CHANNELS, COLUMNS, WEIGHTS, expected, layer, numbers, run

import tcim_lite.runtime as rt
from tcim_lite import hmm
from tcim_lite.errors import HmmFormatError, TcimError
from tcim_lite.hmm import Role
from tcim_lite.models.graphs.builder import GraphBuilder


@pytest.mark.parametrize("steps", [False, True])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize(("tokens", "current"), [(1, 1), (3, 3), (20, 20), (20, 13), (20, 2)])
def test_layer_gives_the_sums_of_its_definition(tokens, current, dtype, steps):
    feed = numbers(tokens, dtype) | {"current": np.array([current], np.int32)}
    feed["mask"][0, current:] = 0
    y, columns, state = run(layer(tokens, dtype, steps=steps), feed)
    rows, last, after = expected(feed, current, dtype, steps)
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


@pytest.mark.parametrize("steps", [False, True])
@pytest.mark.parametrize("cut", [[1] * 21, [16, 5], [2, 17, 2]])
def test_chunk_is_its_tokens_one_by_one(cut, steps):
    """In float32, where a state between two runs is what it is inside of one."""
    feed = numbers(21, "float32")
    whole = run(layer(21, "float32", steps=steps), feed)
    columns, state, rows, at = feed["columns"], feed["state"], [], 0
    for tokens in cut:
        part = {name: feed[name][:, at : at + tokens] for name in ("x", "a", "b", "gate", "mask")}
        part |= {"columns": columns, "state": state, "current": np.array([tokens], np.int32)}
        y, columns, state = run(layer(tokens, "float32", steps=steps), part)
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
