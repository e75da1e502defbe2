"""Outputs bound to the memory of inputs: the results of outputs of their own, whatever else reads the input."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tcim_lite.errors import TcimError

SHAPE = (30, 40, 50)  # large enough for a GPU to read it where it lies
# Nodes that make y, and z where there is a second output, from x and u of SHAPE, one row r and a condition c.
NETWORKS = {
    "a Where over x": [("Where", ["c", "u", "x"], ["y"], {})],
    "a Where of x": [("Where", ["c", "x", "u"], ["y"], {})],
    "a Where of one row": [("Where", ["c", "r", "x"], ["y"], {})],
    "x on both sides": [("Where", ["c", "x", "x"], ["y"], {})],
    "a sum": [("Add", ["x", "u"], ["y"], {})],
    "x twice": [("Mul", ["x", "x"], ["y"], {})],
    "a row of x is added to x": [("Gather", ["x", "one"], ["row"], {"axis": 1}), ("Add", ["x", "row"], ["y"], {})],
    "planes turned": [
        ("Reshape", ["x", "square"], ["s"], {}),
        ("Transpose", ["s"], ["t"], {"perm": [1, 0]}),
        ("Reshape", ["t", "shape"], ["v"], {}),
        ("Where", ["c", "u", "v"], ["y"], {}),
    ],
    "x is read later": [("Where", ["c", "u", "x"], ["y"], {}), ("Sub", ["y", "x"], ["z"], {})],
    "y is read later": [("Where", ["c", "u", "x"], ["y"], {}), ("Neg", ["y"], ["z"], {})],
    "two of one input": [("Where", ["c", "u", "x"], ["y"], {}), ("Where", ["c", "x", "r"], ["z"], {})],
    "one after the other": [("Add", ["x", "r"], ["y"], {}), ("Add", ["y", "u"], ["z"], {})],
    "a chain that reads x at its end": [
        ("Mul", ["u", "r"], ["p"], {}),
        ("Tanh", ["p"], ["q"], {}),
        ("Add", ["x", "q"], ["y"], {}),
    ],
    "a chain that reads x at both ends": [
        ("Mul", ["x", "r"], ["p"], {}),
        ("Tanh", ["p"], ["q"], {}),
        ("Add", ["x", "q"], ["y"], {}),
    ],
    "a chain that reads a row of x at its end": [
        ("Slice", ["x", "zero", "one_more", "zero"], ["row"], {}),
        ("Mul", ["x", "r"], ["p"], {}),
        ("Add", ["p", "row"], ["y"], {}),
    ],
    "crossed": [("Where", ["c", "r", "u"], ["y"], {}), ("Where", ["c", "r", "x"], ["z"], {})],
}


def made(make_model, nodes):
    read = {name for _, inputs, _, _ in nodes for name in inputs}
    outputs = [name for name in "yz" if any(name in made for _, _, made, _ in nodes)]
    shapes = {"x": SHAPE, "u": SHAPE, "r": SHAPE[2:], "c": (SHAPE[0], SHAPE[1], 1)}
    casts = [("Cast", ["c"], ["is"], {"to": 9})] if "c" in read else []
    nodes = casts + [
        (op, ["is" if name == "c" else name for name in inputs], made, attributes)
        for op, inputs, made, attributes in nodes
    ]
    constants = {
        "one": np.array([2]),
        "zero": np.array([0]),
        "one_more": np.array([1]),
        "square": np.array([SHAPE[0] * SHAPE[1], SHAPE[2]]),
        "shape": np.array(SHAPE),
    }
    used = {name: array for name, array in constants.items() if name in read}
    return make_model(nodes, {name: shapes[name] for name in shapes if name in read}, outputs, used), outputs


@pytest.mark.parametrize("quant", ["float32", "float16"])
@pytest.mark.parametrize("network", NETWORKS)
def test_outputs_over_inputs_are_those_of_their_own(network, quant, make_model, load):
    model, outputs = made(make_model, NETWORKS[network])
    rng = np.random.default_rng(5)
    dtype = np.dtype(quant)
    feeds = {}
    for port in model.graph.input:
        extents = [dim.dim_value for dim in port.type.tensor_type.shape.dim]
        numbers = rng.integers(0, 2, extents) if port.name == "c" else rng.normal(size=extents)
        feeds[port.name] = numbers.astype(dtype)
    own = load(model, feeds, quant)
    own.run(sync=True)
    expected = [own.get_output(name).numpy() for name in outputs]
    large = [name for name in ("x", "u") if name in feeds]
    for bound in itertools.permutations(large, min(len(large), len(outputs))):
        module = load(model, feeds, quant)
        for output, name in zip(outputs, bound, strict=False):
            module.set_output(output, module.get_dev_input(name))
        module.run(sync=True)
        for output, array in zip(outputs, expected, strict=True):
            np.testing.assert_array_equal(module.get_output(output).numpy(), array, err_msg=f"{output} over {bound}")
        for name in set(feeds) - set(bound[: len(outputs)]):
            np.testing.assert_array_equal(module.get_dev_input(name).numpy(), feeds[name], err_msg=name)


def test_an_output_over_two_inputs_in_one_buffer_is_that_of_its_own(make_model, load):
    """Planned over x, but u, which other places are read of, lies there too."""
    nodes = [("Gather", ["u", "turned"], ["v"], {"axis": 0}), ("Add", ["x", "v"], ["y"], {}), ("Neg", ["u"], ["z"], {})]
    model = make_model(nodes, {"x": SHAPE, "u": SHAPE}, ["y", "z"], {"turned": np.arange(SHAPE[0])[::-1].copy()})
    numbers = np.random.default_rng(3).normal(size=SHAPE).astype(np.float32)
    module = load(model, {"x": numbers}, "float32")
    shared = module.get_dev_input("x")
    module.set_dev_input("u", shared)
    module.set_output("y", shared)
    module.run(sync=True)
    np.testing.assert_array_equal(shared.numpy(), numbers + numbers[::-1])
    np.testing.assert_array_equal(module.get_output("z").numpy(), -numbers)


@pytest.mark.parametrize("network", ["a Where over x", "planes turned", "x is read later"])
def test_a_refused_input_leaves_what_outputs_are_bound_over(network, make_model, load):
    model, _ = made(make_model, NETWORKS[network])
    rng = np.random.default_rng(7)
    feeds = {"x": rng.normal(size=SHAPE), "u": rng.normal(size=SHAPE), "c": np.ones((*SHAPE[:2], 1))}
    module = load(model, {name: array.astype(np.float32) for name, array in feeds.items()}, "float32")
    module.set_output("y", module.get_dev_input("x"))
    module.run(sync=True)
    before = module.get_dev_input("x").numpy()
    feeds["u"][3, 4, 5] = np.nan
    module.set_input("u", feeds["u"].astype(np.float32))
    with pytest.raises(TcimError, match="'u'"):
        module.run(sync=True)
    np.testing.assert_array_equal(module.get_dev_input("x").numpy(), before)
