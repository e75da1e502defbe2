"""Attention over a cache that is longer than what a kernel takes at once."""

import numpy as np

from .. import under_test as rt
from ..registry import each

TIER = "full"
CONTEXT, CHUNK = 600, 8


def attention(queries, keys, values, valid):
    """Of rows [rows, 2, 64] over caches [2, context, 64] with `valid` rows before them, in float64."""
    scores = np.einsum("qhd,hkd->hqk", queries, keys) / 8
    scores[:, np.arange(CONTEXT) > valid + np.arange(len(queries))[:, None]] = -np.inf
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return np.einsum("hqk,hkd->qhd", weights / weights.sum(-1, keepdims=True), values)


@each("valid", [0, 250, 256, 505, 592])
@each("scale", [0.1, 1.0])
def test_attention_over_a_long_cache_is_near_the_exact_one(kit, valid, scale):
    module = rt.load(kit.model("attention_long"))
    rng = np.random.default_rng(valid)
    keys, values = rng.standard_normal((2, 1, 2, CONTEXT, 64)).astype(np.float16)
    keys *= np.float16(scale)
    for name, cached in zip(kit.caches, (keys, values), strict=True):
        module.set_input(name, cached)
    x = kit.rows(CHUNK).astype(np.float16)
    found = kit.step(module, x.astype(np.float32), valid)
    rows = x.astype(np.float64).reshape(CHUNK, 2, 64)
    keys, values = (cached[0].astype(np.float64) for cached in (keys, values))
    for cached in (keys, values):  # the graph caches its input
        cached[:, valid : valid + CHUNK] = rows.transpose(1, 0, 2)
    exact = attention(rows, keys, values, valid).reshape(CHUNK, 128)
    error = np.abs(found - exact).max() / np.abs(values).max()
    # As attention over a short cache (numbers.py).
    kit.measure(f"attention over {valid} rows of about {scale:g}: error over max |v|", error, 8 * 2.0**-11)
