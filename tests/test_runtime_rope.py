"""Rope with rows of cos and sin that the graph makes for its tokens, and heads that turn in part."""

from __future__ import annotations

import os

import numpy as np
import pytest
import warm_python
from built_graphs import load, run
from isas import FLAGS

from tcim_lite.hmm import WeightData
from tcim_lite.models.graphs.builder import GraphBuilder
from tcim_lite.models.graphs.slot import Slot

HEADS, DIM, CONTEXT, TOKENS = 3, 64, 40, 5


def tables(dtype, rotary_dim=DIM):
    angles = np.outer(np.arange(CONTEXT), 100.0 ** (-np.arange(rotary_dim // 2) / (rotary_dim // 2)))
    return [
        WeightData(name, dtype, "dense", angles.shape, function(angles).astype(dtype))
        for name, function in {"cos": np.cos, "sin": np.sin}.items()
    ]


def turned(dtype, x, rotary_dim=DIM, *, rows=None, places=None, norm=False):
    """By positions from 7 on, by `places`, or by `rows` of the tables; with a norm before."""
    weights = [*tables(dtype, rotary_dim), WeightData("norm", "float32", "dense", (DIM,), np.ones(DIM, np.float32))]
    builder = GraphBuilder("rope", dtype, weights)
    ref, given = builder.input("x", x.shape), {"x": x}
    heads = builder.rms_norm("normed", ref, "norm", 1e-6) if norm else ref
    if rows is not None:
        indices = builder.input("rows", rows.shape, "int32")
        given["rows"] = rows
        made = [
            builder.reshape(f"{name}_rows", builder.gather(f"{name}_at", builder.weight(name), indices, 0), shape)
            for name, shape in ((name, (*x.shape[:2], rotary_dim // 2)) for name in ("cos", "sin"))
        ]
        result = builder.rope_by_rows("y", heads, *made)
    else:
        valid = builder.input("valid", (1,), "int32")
        positions = None if places is None else builder.input("places", (1, TOKENS), "int32")
        given |= {"valid": 7} if places is None else {"places": places}
        slot = Slot(valid=valid, current=valid, positions=positions, keys=(), values=())
        result = builder.rope("y", heads, "cos", "sin", [slot])
    return run(load(builder, [result], weights), **given)[0]


@pytest.fixture(scope="module")
def x():
    return np.random.default_rng(0).standard_normal((1, TOKENS, HEADS, DIM))


@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("rotary_dim", [DIM, 16, 10, 2])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_rows_of_the_tables_turn_as_their_positions_do(x, dtype, rotary_dim, norm):
    x = x.astype(dtype)
    counted = turned(dtype, x, rotary_dim, norm=norm)
    assert counted.tobytes() == turned(dtype, x, rotary_dim, rows=np.arange(7, 12, dtype=np.int32), norm=norm).tobytes()
    places = np.array([39, 0, 7, 7, 30], np.int32)
    by_places = turned(dtype, x, rotary_dim, places=places[None], norm=norm)
    assert by_places.tobytes() == turned(dtype, x, rotary_dim, rows=places, norm=norm).tobytes() != counted.tobytes()


@pytest.mark.parametrize("rotary_dim", [16, 10])
def test_only_the_first_elements_turn(x, rotary_dim):
    x = x.astype(np.float32)
    found, half = turned("float32", x, rotary_dim), rotary_dim // 2
    cos, sin = (np.asarray(table.data)[7:12][:, None].astype(np.float64) for table in tables("float32", rotary_dim))
    first, second = x[0, ..., :half], x[0, ..., half:rotary_dim]
    np.testing.assert_allclose(found[0, ..., :half], first * cos - second * sin, rtol=0, atol=1e-6)
    np.testing.assert_allclose(found[0, ..., half:rotary_dim], second * cos + first * sin, rtol=0, atol=1e-6)
    assert found[..., rotary_dim:].tobytes() == x[..., rotary_dim:].tobytes()


def test_each_slot_has_its_own_rows(x):
    both = np.concatenate([x, x]).astype(np.float16)
    rows = np.arange(10, dtype=np.int32) * 3
    found = turned("float16", both, 16, rows=rows)
    for slot in range(2):
        own = turned("float16", both[slot : slot + 1], 16, rows=rows[5 * slot : 5 * slot + 5])
        assert found[slot].tobytes() == own[0].tobytes()


SCRIPT = """
import hashlib, sys
import numpy as np
sys.path.insert(0, sys.argv[1])
from test_runtime_rope import DIM, HEADS, TOKENS, turned
x = np.random.default_rng(1).standard_normal((1, TOKENS, HEADS, DIM))
rows = np.array([3, 1, 4, 1, 5], np.int32)
found = [turned(dtype, x.astype(dtype), dim, rows=rows, norm=norm)
         for dtype in ("float16", "float32") for dim in (DIM, 16, 10) for norm in (False, True)]
print(hashlib.sha256(b"".join(array.tobytes() for array in found)).hexdigest())
"""


def test_every_isa_gives_the_same_bits():
    found = set()
    for isa in FLAGS:
        here = os.path.dirname(__file__)
        done = warm_python.run("-c", SCRIPT, here, env={**os.environ, "TCIM_LITE_ISA": isa})
        if done.returncode and "TCIM_LITE_ISA" in done.stderr:
            continue  # this CPU has no such instructions
        assert done.returncode == 0, done.stderr
        found.add(done.stdout)
    assert len(found) == 1
