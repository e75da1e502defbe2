"""A layer of linear attention, op by op, the numbers it gets, and its sums in float64."""

from __future__ import annotations

import numpy as np

import tcim_lite.runtime as rt
from tcim_lite import hmm
from tcim_lite.hmm import Role, WeightData
from tcim_lite.models.graphs.builder import GraphBuilder

KEY_HEADS, HEADS, KEYS, VALUES, TAPS, COLUMNS = 2, 4, 24, 40, 4, 4
CHANNELS = 2 * KEY_HEADS * KEYS + HEADS * VALUES
RNG = np.random.default_rng(5)
TAP_WEIGHTS = RNG.normal(0, 0.5, (TAPS, CHANNELS)).astype(np.float32)
RATE, BIAS = -RNG.uniform(0.1, 2, HEADS).astype(np.float32), RNG.normal(0, 1, HEADS).astype(np.float32)
SKIP = RNG.normal(1, 0.5, HEADS).astype(np.float32)
WEIGHTS = [
    WeightData(name, "float32", "dense", data.shape, data)
    for name, data in (("taps", TAP_WEIGHTS), ("rate", RATE), ("bias", BIAS), ("skip", SKIP))
]


def layer(tokens, dtype, batch=1, live=True, each=False, steps=False):
    """A convolution whose channels are q, k and v, the delta rule, and a gate; states at the end, or after `each`.

    With `steps` the rule is that of a state-space layer, without beta.
    """
    builder = GraphBuilder("layer", dtype, WEIGHTS)
    x, current = builder.input("x", (batch, tokens, CHANNELS)), builder.input("current", (1,), "int32")
    mask = builder.input("mask", (batch, tokens))
    gates = [builder.input(name, (batch, tokens, HEADS)) for name in ("a" if steps else "ab")]
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
    vectors = ("rate", "bias", "skip") if steps else ("rate", "bias")
    rows, new_state = builder.delta_rule("rule", (q, k, v), state, gates, vectors, mask, new[1])
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
    taken = {module.get_input_name(index) for index in range(module.get_num_inputs())}
    for name in taken & set(feed):
        module.set_input(name, feed[name])
    module.run(True)
    return [module.get_output(name).numpy() for name in outputs]


def softplus(x):
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


def silu(x):
    return x / (1 + np.exp(-x))


def expected(feed, current, round_to, steps=False):
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
        step = softplus(feed["a"][0, t].astype(np.float64) + BIAS)
        beta = 1 / (1 + np.exp(-feed["b"][0, t].astype(np.float64)))
        state = state * np.exp(RATE * step)[:, None, None]
        known = np.einsum("hkv,hk->hv", state, k[t])
        change = step[:, None] * v[t] if steps else beta[:, None] * (v[t] - known)
        state = state + k[t][:, :, None] * change[:, None]
        rows[t] = np.einsum("hkv,hk->hv", state, q[t])
        rows[t] = rows[t] + SKIP[:, None] * v[t] if steps else rows[t] / np.sqrt(KEYS)
    gated = rows.astype(round_to) * silu(feed["gate"][0].astype(np.float64))
    return gated, every[current : current + COLUMNS].T, state
