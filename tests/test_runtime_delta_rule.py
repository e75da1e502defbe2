"""The op of linear attention alone: states in place, and what does not fit is refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from graph_maker import GraphMaker
from linear_attention_layer import HEADS, KEY_HEADS, KEYS, VALUES, WEIGHTS

import tcim_lite.runtime as rt
from tcim_lite import hmm
from tcim_lite.errors import HmmFormatError
from tcim_lite.hmm import Role
from tcim_lite.models.graphs.builder import GraphBuilder


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


def rule(attributes, **shapes):
    """A graph of one DeltaRule with inputs of these shapes, in order."""
    maker = GraphMaker("rule")
    inputs = [maker.input(name, shape) for name, shape in shapes.items()]
    results = {"y": ("float16", shapes["v"]), "new": ("float16", shapes["state"])}
    return rt.load(maker.file(maker.several("DeltaRule", inputs, results, **attributes)[0]))


STEPS = {"update_rule": "gated", "steps": "softplus"}
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
        ({"update_rule": "gated", "steps": "relu"}, {}, "attribute 'steps' is 'relu'"),
        (STEPS, {"decay": (1, 3, 4)}, "has 5 inputs, expected 8 to 9"),
        (STEPS, {"decay": (1, 3, 4, 8), "rate": (4,), "bias": (4,), "skip": (4,)}, "and one decay for each head"),
        (STEPS, {"decay": (1, 3, 4), "rate": (4,), "bias": (4,), "skip": (4,)}, "'rate' is input"),
        (STEPS | {"update_rule": "linear"}, {"rate": (4,), "bias": (4,), "skip": (4,)}, "or gated with steps"),
        (
            STEPS | {"update_rule": "gated_delta"},
            {"decay": (1, 3, 4), "beta": (1, 3, 4), "rate": (4,), "bias": (4,), "skip": (4,)},
            "or gated with steps",
        ),
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
    maker = GraphMaker("gate", "float32")
    operands = [maker.input("x", (1, 2, 3, 20)), maker.input("gate", (1, 2, 7))]
    product = maker.op("GateMul", operands, "y", (1, 2, 3, 20), function="silu")
    with pytest.raises(HmmFormatError, match=r"'gate' is .*\[1, 2, 7\], expected float32 \[1, 2, 3, 20\]"):
        rt.load(maker.file(product))
