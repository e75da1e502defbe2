"""Masks of integers hide tokens from attention as exporters write them, against onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest
from integer_casts import BOOL, FLOAT

LOWEST = {"lowest": np.float32(np.finfo(np.float32).min), "one": np.float32(1), "nothing": np.float32(0)}
# From "mask" int64 [2, 6], 1 where a token counts, to "bias" [2, 1, 1, 6], as versions of transformers export BERT.
MASKS = {
    "1 less the mask, times the lowest": [
        ("Unsqueeze", ["mask", "axes"], ["m"], {}), ("Cast", ["m"], ["f"], FLOAT),
        ("Sub", ["one", "f"], ["s"], {}), ("Mul", ["s", "lowest"], ["bias"], {}),
    ],
    "the lowest where a cast of that is true": [
        ("Unsqueeze", ["mask", "axes"], ["m"], {}), ("Cast", ["m"], ["f"], FLOAT),
        ("Sub", ["one", "f"], ["s"], {}), ("Cast", ["s"], ["b"], BOOL), ("Where", ["b", "lowest", "s"], ["bias"], {}),
    ],
    "the lowest where the mask is 0": [
        ("Unsqueeze", ["mask", "axes"], ["m"], {}), ("Equal", ["m", "zero"], ["e"], {}),
        ("Where", ["e", "lowest", "nothing"], ["bias"], {}),
    ],
    "0 where the elements of a mask of truths are true": [
        ("Cast", ["mask"], ["b"], BOOL), ("Flatten", ["b"], ["flat"], {"axis": 2}),
        ("Gather", ["flat", "places"], ["rows"], {"axis": 0}), ("Reshape", ["rows", "shape"], ["t"], {}),
        ("Where", ["t", "nothing", "lowest"], ["bias"], {}),
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", MASKS)
def test_a_mask_hides_tokens_from_attention(name, of_integers, run_here, run_there):
    rng = np.random.default_rng(5)
    constants = LOWEST | {"axes": np.array([1, 2]), "zero": np.array(0)}
    constants |= {"places": np.arange(12).reshape(2, 6), "shape": np.array([2, 1, 1, 6]), "axis": np.array([1])}
    constants["table"] = rng.normal(size=(20, 8)).astype(np.float32)
    nodes = [
        ("Gather", ["table", "n"], ["embedded"], {}), ("Unsqueeze", ["embedded", "axis"], ["x"], {}),
        ("Transpose", ["x"], ["xt"], {"perm": [0, 1, 3, 2]}), ("MatMul", ["x", "xt"], ["scores"], {}),
        *MASKS[name], ("Add", ["scores", "bias"], ["masked"], {}), ("Softmax", ["masked"], ["shares"], {"axis": -1}),
        ("MatMul", ["shares", "x"], ["y"], {}),
    ]  # fmt: skip
    model = of_integers(nodes, {"n": (2, 6), "mask": (2, 6)}, ["y", "shares"], constants)
    feeds = {"n": rng.integers(0, 20, (2, 6)), "mask": np.array([[1, 1, 1, 1, 1, 1], [0, 1, 1, 1, 0, 0]])}
    there = run_there(model, feeds)
    assert there["shares"][1, ..., [0, 4, 5]].max() == 0
    for quant, bound in (("float32", 1e-5), ("float16", 2e-2)):
        here = run_here(model, {name: array.astype(np.int32) for name, array in feeds.items()}, quant)
        assert here["shares"][1, ..., [0, 4, 5]].max() == 0
        np.testing.assert_allclose(here["y"], there["y"], atol=bound)
