"""Products, sums and attention of the numpy model of a package, in the order of docs/numerics.md."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_F32 = np.float32
_GROUP = 64
_LANES = 16  # partial sums of a reduction
_KEY_BLOCK = 256  # cache rows merged at a time

Array = NDArray[np.generic]
Floats = NDArray[np.float32]


def quantize_activations(x: Floats) -> tuple[Floats, NDArray[np.int32]]:
    """Codes [T, K] (integers held in fp32) and exponents [T, K / 64] of docs/numerics.md section 3."""
    groups = x.reshape(len(x), -1, _GROUP)
    amax = np.abs(groups).max(axis=2)
    exponents = np.full(amax.shape, -30)
    live = amax > 0
    exponents[live] = np.clip(np.floor(np.log2(amax[live].astype(np.float64))).astype(int) - 6, -30, 9)
    codes = np.clip(np.rint(np.ldexp(groups, -exponents[:, :, None])), -127, 127)
    return codes.reshape(x.shape).astype(_F32), exponents


def quantized_product(activations: Array, exponents: Array, codes: Array, scales: Array) -> Floats:
    """Activations [T, K] with their exponents times codes [N, K] with their scales: group by group, in fp32."""
    factors = np.ldexp(1.0, scales.astype(np.int32)) if scales.dtype == np.int8 else scales.astype(np.float64)
    weights = codes.astype(_F32)
    acc = np.zeros((len(activations), len(codes)), _F32)
    inputs = codes.shape[1] // scales.shape[1]  # that share a scale: all or half of a group of activations
    for group in range(scales.shape[1]):
        part = slice(group * inputs, (group + 1) * inputs)
        dot = activations[:, part].astype(_F32) @ weights[:, part].T  # below 2^24: exact in any order
        scale = np.ldexp(factors[:, group][None], exponents[:, group * inputs // _GROUP][:, None])
        acc = (acc + dot.astype(np.float64) * scale).astype(_F32)
    return acc


def float_product(x: Array, weights: Array) -> Floats:
    """[T, K] times [N, K]: one fused multiply-add for each k, in order."""
    acc = np.zeros((len(x), len(weights)), _F32)
    wide_x, wide_w = x.astype(np.float64), weights.astype(np.float64)
    for k in range(wide_x.shape[1]):
        acc = (acc + wide_x[:, k, None] * wide_w[None, :, k]).astype(_F32)
    return acc


def sum_of_products(a: Floats, b: Floats) -> Floats:
    """Sum of a * b over the last axis: 16 partial sums by index mod 16, then a tree."""
    missing = -a.shape[-1] % _LANES
    a, b = (np.pad(part, [(0, 0)] * (part.ndim - 1) + [(0, missing)]) if missing else part for part in (a, b))
    products = a.astype(np.float64) * b.astype(np.float64)
    steps = products.reshape(*products.shape[:-1], -1, _LANES)
    partial = np.zeros((*steps.shape[:-2], _LANES), _F32)
    for step in range(steps.shape[-2]):
        partial = (partial + steps[..., step, :]).astype(_F32)
    for width in (8, 4, 2, 1):
        partial = partial[..., :width] + partial[..., width : 2 * width]
    return partial[..., 0]


def attend(q: Floats, keys: Floats, values: Floats) -> Floats:
    """One row: q [heads, D] over keys and values [rows, heads, D] -> [heads, D]."""
    best = np.full(len(q), -np.inf, _F32)
    total, out = np.zeros_like(best), np.zeros_like(q)
    for block in range(0, len(keys), _KEY_BLOCK):
        block_keys, block_values = keys[block : block + _KEY_BLOCK], values[block : block + _KEY_BLOCK]
        scores = sum_of_products(np.broadcast_to(q, block_keys.shape), block_keys)  # [rows, heads]
        peak = scores.max(axis=0)
        weights = np.exp(scores - peak)
        weight_sum = sum_of_products(weights.T, np.ones_like(weights.T))
        mixed = np.zeros_like(q)
        for row in range(len(weights)):
            mixed = (mixed + weights[row, :, None].astype(np.float64) * block_values[row]).astype(_F32)
        highest = np.maximum(best, peak)
        old, new = np.exp(best - highest), np.exp(peak - highest)
        total, out = total * old + weight_sum * new, out * old[:, None] + mixed * new[:, None]
        best = highest
    return out / total[:, None]
