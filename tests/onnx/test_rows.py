"""Updates of rows along an axis at computed places, as decoders write their caches, against onnxruntime."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from tcim_lite import hmm
from tcim_lite.errors import TcimError
from tcim_lite.models.onnx import UnsupportedNodeError, onnx_bytes

RNG = np.random.default_rng(21)
CACHE = (1, 3, 10, 8)  # [B, heads, rows, head_dim]
SHAPE = np.array([1, 3, 1, 8])


def turned(there, back):
    """As torch's newer exporter writes `index_copy`: a ScatterND between two Transposes."""
    return [
        ("Transpose", ["x"], ["t"], {"perm": there}),
        ("Transpose", ["u"], ["tu"], {"perm": there}),
        ("Unsqueeze", ["at", "last"], ["column"], {}),
        ("ScatterND", ["t", "column", "tu"], ["s"], {}),
        ("Transpose", ["s"], ["y"], {"perm": back}),
    ]


# As its older exporter does: places repeated for the elements of each row.
REPEATED = [
    ("Unsqueeze", ["at", "outer"], ["row"], {}),
    ("Shape", ["u"], ["shape"], {}),
    ("Expand", ["row", "shape"], ["all"], {}),
    ("ScatterElements", ["x", "all", "u"], ["y"], {"axis": -2}),
]
CONSTANTS = {"last": np.array([-1]), "outer": np.array([0, 1, 3])}
# nodes, the axis of the rows
WAYS = {
    "index_copy": (turned([2, 0, 1, 3], [1, 2, 0, 3]), 2),
    "index_copy of heads": (turned([1, 0, 2, 3], [1, 0, 2, 3]), 1),
    "repeated places": (REPEATED, 2),
}
PLACES = {"one": [2], "the last": [-1], "some": [2, 0, 1], "one twice": [1, 2, 1]}


def feeds_of(axis, at):
    extents = [len(at) if i == axis else extent for i, extent in enumerate(CACHE)]
    cache, updates = (RNG.normal(size=shape).astype(np.float32) for shape in (CACHE, extents))
    return {"x": cache, "at": np.array(at), "u": updates}


def model_of(make_model, nodes, feeds):
    used = {name for _, inputs, _, _ in nodes for name in inputs}
    constants = {name: value for name, value in CONSTANTS.items() if name in used}
    model = make_model(nodes, {name: value.shape for name, value in feeds.items()}, ["y"], constants)
    model.graph.input[1].type.tensor_type.elem_type = 7
    return model


@pytest.mark.parametrize("at", PLACES.values(), ids=PLACES)
@pytest.mark.parametrize("way", WAYS)
def test_rows_are_replaced(way, at, make_model, run_here, run_there):
    nodes, axis = WAYS[way]
    feeds = feeds_of(axis, at)
    model = model_of(make_model, nodes, feeds)
    here = run_here(model, feeds | {"at": np.array(at, np.int32)})["y"]
    np.testing.assert_array_equal(here, run_there(model, feeds)["y"])


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("quant", ["float16", "w8a8h1_sefp"])
def test_what_is_not_replaced_keeps_its_bits_in_float16(quant, way, make_model, run_here):
    nodes, axis = WAYS[way]
    feeds = feeds_of(axis, [1, 0])
    feeds["x"].reshape(-1)[:4] = [-65504, -0.0, 6e-8, 65504]
    feeds = {name: value.astype(np.int32 if name == "at" else np.float16) for name, value in feeds.items()}
    expected = feeds["x"].copy()
    expected[(slice(None),) * axis + ([1, 0],)] = feeds["u"]
    here = run_here(model_of(make_model, nodes, feeds), feeds, quant)["y"]
    np.testing.assert_array_equal(here.astype(np.float16).view(np.int16), expected.view(np.int16))


@pytest.mark.parametrize("way", WAYS)
def test_a_row_is_written_in_one_pass_over_the_cache(way, make_model, tmp_path):
    nodes, axis = WAYS[way]
    path = tmp_path / "net.hmm"
    path.write_bytes(onnx_bytes(model_of(make_model, nodes, feeds_of(axis, [3])), "float32"))
    ops = Counter(op.kind for op in hmm.read(path).graphs[0].ops)
    assert ops["Where"] == 1
    assert ops["Transpose"] == ops["Concat"] == ops["Gather"] == ops["ReduceMax"] == 0


def test_a_cache_that_others_read_turned_is_turned_for_them(make_model, run_here, run_there):
    nodes = [*WAYS["index_copy"][0], ("Neg", ["s"], ["turned"], {}), ("Exp", ["t"], ["old"], {})]
    feeds = feeds_of(2, [4])
    model = make_model(
        nodes, {name: value.shape for name, value in feeds.items()}, ["y", "turned", "old"], {"last": np.array([-1])}
    )
    model.graph.input[1].type.tensor_type.elem_type = 7
    here, there = run_here(model, feeds | {"at": np.array([4], np.int32)}), run_there(model, feeds)
    for name in ("y", "turned", "old"):
        np.testing.assert_allclose(here[name], there[name], rtol=1e-6)


def test_rows_of_integers_are_replaced(make_model, run_here, run_there):
    feeds = feeds_of(2, [5, -4]) | {"x": RNG.integers(-9, 9, CACHE), "u": RNG.integers(-9, 9, (1, 3, 2, 8))}
    model = model_of(make_model, REPEATED, feeds)
    for port in model.graph.input:
        port.type.tensor_type.elem_type = 7
    model.graph.output[0].type.tensor_type.elem_type = 7
    here = run_here(model, {name: value.astype(np.int32) for name, value in feeds.items()})["y"]
    np.testing.assert_array_equal(here, run_there(model, feeds)["y"])


@pytest.mark.parametrize("extents", [(1, 2, 3, 8), (3, 1, 2, 8), (2, 1, 3, 9), (2, 24)])
def test_updates_of_another_shape_are_refused_as_without_transposes(extents, make_model):
    """The ScatterND, whose updates are [2, 1, 3, 8], is refused by its own name."""
    nodes = [node for node in WAYS["index_copy"][0] if node[1] != ["u"]]
    shapes = {"x": CACHE, "at": (2,), "tu": extents}
    model = make_model(nodes, shapes, ["y"], {"last": np.array([-1])})
    model.graph.input[1].type.tensor_type.elem_type = 7
    with pytest.raises(UnsupportedNodeError, match=r"ScatterND.*updates .*, expected \[2, 1, 3, 8\]"):
        onnx_bytes(model, "float32")


@pytest.mark.parametrize("axis", [6, -6])
def test_an_axis_beyond_the_rank_is_refused(axis, make_model):
    nodes = [*REPEATED[:-1], ("ScatterElements", ["x", "all", "u"], ["y"], {"axis": axis})]
    with pytest.raises(UnsupportedNodeError, match=f"ScatterElements.*axis {axis}"):
        onnx_bytes(model_of(make_model, nodes, feeds_of(2, [1, 0])), "float32")


@pytest.mark.parametrize("way", WAYS)
def test_places_that_are_no_integers_are_refused_by_the_name_in_the_file(way, make_model):
    nodes, axis = WAYS[way]
    model = model_of(make_model, nodes, feeds_of(axis, [1]))
    model.graph.input[1].type.tensor_type.elem_type = 1
    with pytest.raises(TcimError, match=r"Scatter(ND|Elements).*places of floats"):
        onnx_bytes(model, "float32")
