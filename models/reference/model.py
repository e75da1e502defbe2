"""A plain numpy model of a compiled package: the oracle of the tests, written from docs/numerics.md alone.

It reads the packed weights and the config of a package and runs tokens through its blocks, without the graph and the
core. fp32 accumulations keep the order of the definition; a fused multiply-add is a float64 sum rounded to fp32, which
differs from the true one only in rare double roundings. `exp` is numpy's, not the project's polynomial. So results are
within a few units in the last place of the core's, not equal to them.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tcim_lite.hmm import read

from ..blocks import Attention, LayerScale, Mlp, MlpAndExperts, Moe, PerLayerInput
from ..blocks.mlp import XIELU
from ..families import read_config
from ..graphs.builder import Clamp, Gelu
from ..weights import roles
from ..weights.hidden_exponent import codes_of
from ..weights.roles import Role
from .arithmetic import (
    Array,
    Floats,
    attend,
    bent,
    float_product,
    quantize_activations,
    quantized_product,
    sum_of_products,
    unpacked,
)

_F32 = np.float32


@dataclass
class ReferenceCache:
    """Keys and values of one sequence: per layer [tokens, kv_heads, head_dim] in the tensor dtype."""

    keys: list[Array] = field(default_factory=list)
    values: list[Array] = field(default_factory=list)

    @property
    def length(self) -> int:
        """Tokens so far."""
        return len(self.keys[0]) if self.keys else 0


class Reference:
    """A package as numpy."""

    def __init__(self, package: Path) -> None:
        """Reads a package folder with one model, whose weights lie in a `.hmw`."""
        (decode,) = package.glob("*_decode.hmm")
        model = read(decode)
        message = json.loads(model.custom_msg)
        self.config = read_config(json.loads((package / "tokenizer/config.json").read_text()))
        self.dtype = np.dtype(message["embedding_dtype"])
        self._quantize = codes_of if message.get("activations") == "hidden_exponent" else quantize_activations
        self.embedding = np.fromfile(package / "hmquant/quant_embedding.bin", self.dtype).reshape(
            self.config.vocab_size, self.config.hidden_size
        )
        store = read(next(package.glob("*.hmw")))
        self._vectors: dict[str, Floats] = {}
        self._before: dict[int, tuple[Array, Array]] = {}  # what attention read, and that normalised
        self._linears: dict[str, tuple[Array, Array | None]] = {}
        for entry in store.weights:
            data = store.weight_bytes(entry)
            if entry.format == "dense":
                self._vectors[entry.name] = np.frombuffer(data, entry.dtype).reshape(entry.shape).astype(_F32)
            else:
                self._linears[entry.name] = unpacked(data, entry.format, entry.shape)

    def run(self, token_ids: list[int], cache: ReferenceCache) -> Floats:
        """Appends tokens to the cache and returns the logits [tokens, V] of every one of them."""
        config, start = self.config, cache.length
        x = self.embedding[token_ids]
        for layer in range(config.num_layers):
            for block in config.blocks(layer):
                if isinstance(block, LayerScale | MlpAndExperts | PerLayerInput):
                    raise NotImplementedError(f"the reference has no {type(block).__name__}")
                if isinstance(block, Attention):
                    x = self._attention(x, block, layer, start, cache)
                elif isinstance(block, Moe):
                    x = self._moe(x, block, layer)
                elif isinstance(block, Mlp):
                    x = self._mlp(x, block, layer)
        logits = self._linear(self._of_hidden(x, roles.FINAL_NORM), roles.HEAD, bias=roles.HEAD_BIAS)
        if self.config.logit_cap is not None:
            capped = self._round(np.tanh(logits.astype(_F32)))
            logits = self._round(capped.astype(_F32) * self._vectors[roles.LOGIT_CAP])
        return logits.astype(_F32)

    def _mlp(self, x: Array, block: Mlp, layer: int) -> Array:
        before, normed = self._before[layer] if block.beside else (x, x)
        if block.in_norm:
            normed = self._of_hidden(before, roles.MLP_NORM, layer)
        if block.alone is None:
            product = self._gated(self._linear(normed, roles.GATE_UP, layer, roles.GATE_UP_BIAS), block.gelu)
        else:
            up = self._linear(normed, roles.UP, layer, roles.UP_BIAS)
            xielu = block.alone == "xielu"
            factors = tuple(self._vectors[role.name_of(layer)] for role in XIELU) if xielu else ()
            product = self._round(bent(up.astype(_F32), block.alone, factors))
        out = self._linear(product, roles.DOWN, layer, roles.DOWN_BIAS)
        return self._add(x, self._rms_norm(out, roles.MLP_OUT_NORM, layer) if block.out_norm else out)

    def _gated(self, gate_up: Array, of_gate: Clamp | Gelu | None = None) -> Array:
        pairs = gate_up.reshape(len(gate_up), -1, 2, 16).astype(_F32)
        gate, up = pairs[:, :, 0].reshape(len(pairs), -1), pairs[:, :, 1].reshape(len(pairs), -1)
        if isinstance(of_gate, Clamp):
            limit, alpha = _F32(of_gate.limit), _F32(of_gate.alpha)
            gate, up = np.minimum(gate, limit), np.clip(up, -limit, limit)
            return self._round((up + _F32(1)) * (gate / (_F32(1) + np.exp(-(alpha * gate)))))
        if of_gate is not None:
            inner = _F32(0.79788456) * (_F32(0.044715) * gate * (gate * gate) + gate)
            return self._round(_F32(0.5) * gate * (_F32(1) + np.tanh(inner)) * up)
        with np.errstate(over="ignore"):
            return self._round((gate / (_F32(1) + np.exp(-gate)) * up).astype(_F32))

    def _moe(self, x: Array, block: Moe, layer: int) -> Array:
        normed = self._of_hidden(x, roles.MLP_NORM, layer)
        logits = self._linear(normed, roles.ROUTER, layer, roles.ROUTER_BIAS).astype(_F32)
        ids, shares = self._route(logits, block, self._vectors.get(roles.ROUTER_CHOICE.name_of(layer)))
        total = np.zeros(x.shape, _F32)
        for rank in range(ids.shape[1]):
            for row, expert in enumerate(ids[:, rank]):
                up = self._linear(normed[row : row + 1], roles.EXPERT_GATE_UP, layer, roles.EXPERT_GATE_UP_BIAS, expert)
                product = self._gated(up, block.clamp)
                out = self._linear(product, roles.EXPERT_DOWN, layer, roles.EXPERT_DOWN_BIAS, expert)[0]
                total[row] = (total[row] + shares[row, rank].astype(np.float64) * out).astype(_F32)
        out = self._round(total)
        if self.config.experts is not None and self.config.experts.shared is not None:
            product = self._gated(self._linear(normed, roles.SHARED_GATE_UP, layer))
            shared = self._linear(product, roles.SHARED_DOWN, layer)
            if block.shared_gate:
                gate = _F32(1) / (_F32(1) + np.exp(-self._linear(normed, roles.SHARED_GATE, layer).astype(_F32)))
                shared = self._round(shared.astype(_F32) * gate)
            out = self._add(out, shared)
        return self._add(x, out)

    def _route(self, logits: Floats, block: Moe, choice: Floats | None) -> tuple[NDArray[np.intp], Array]:
        assert self.config.experts is not None
        if block.order == "sigmoid":
            logits = (_F32(1) / (_F32(1) + np.exp(-logits))).astype(_F32)
        scores = logits if choice is None else logits + choice
        ids = np.argsort(-scores, axis=1, kind="stable")[:, : self.config.experts.chosen]
        chosen = np.take_along_axis(logits, ids, axis=1)
        exps = chosen if block.order == "sigmoid" else np.exp(chosen - chosen[:, :1])
        if block.order == "softmax_topk":
            every = np.exp(logits - chosen[:, :1])
            exps = exps / sum_of_products(every, np.ones_like(every))[:, None]
        if block.order == "topk_softmax" or block.normalise:
            total = np.zeros(len(ids), _F32)
            for rank in range(ids.shape[1]):
                total = total + exps[:, rank]
            exps = exps / total[:, None]
        return ids, self._round(exps)

    def _attention(self, x: Array, block: Attention, layer: int, start: int, cache: ReferenceCache) -> Array:
        config = self.config
        normed = self._of_hidden(x, roles.ATTENTION_NORM, layer) if block.in_norm else x
        self._before[layer] = x, normed
        flat = self._linear(normed, roles.QKV, layer, roles.QKV_BIAS)
        count = block.heads or config.num_heads
        ends = np.array([count, count + config.num_kv_heads]) * config.head_dim
        q, k, v = np.split(flat, ends, axis=1)
        if block.wide_norm:
            q, k = self._rms_norm(q, roles.Q_NORM, layer), self._rms_norm(k, roles.K_NORM, layer)
        q, k, v = (each.reshape(len(x), -1, config.head_dim) for each in (q, k, v))
        if block.late_norm:
            q, k = self._rope(q, start, block.tables("q")), self._rope(k, start, block.tables("k"))
        if block.qk_norm:
            q, k = self._rms_norm(q, roles.Q_NORM, layer), self._rms_norm(k, roles.K_NORM, layer)
        if block.rotated and not block.late_norm:
            q, k = self._rope(q, start, block.tables("q")), self._rope(k, start, block.tables("k"))
        if layer == len(cache.keys):
            cache.keys.append(k)
            cache.values.append(v)
        else:
            cache.keys[layer] = np.concatenate((cache.keys[layer], k))
            cache.values[layer] = np.concatenate((cache.values[layer], v))
        repeat = count // config.num_kv_heads
        keys = np.repeat(cache.keys[layer].astype(_F32), repeat, axis=1)
        values = np.repeat(cache.values[layer].astype(_F32), repeat, axis=1)
        scaled = q.astype(_F32) * _F32(block.scale or 1 / np.sqrt(config.head_dim))
        sinks = self._vectors[roles.SINKS.name_of(layer)] if block.sinks else None
        rows = [
            attend(row, keys[: start + index + 1], values[: start + index + 1], block.window, sinks)
            for index, row in enumerate(scaled)
        ]
        mixed = self._round(np.stack(rows)).reshape(len(x), -1)
        if block.out_gate is not None:
            gate = np.logaddexp(_F32(0), self._linear(normed, roles.OUT_GATE, layer).astype(_F32))
            gate = np.repeat(gate, mixed.shape[1] // gate.shape[1], axis=1)
            mixed = self._round(mixed.astype(_F32) * gate)
        out = self._linear(mixed, roles.ATTENTION_OUT, layer, roles.ATTENTION_OUT_BIAS)
        return self._add(x, self._rms_norm(out, roles.ATTENTION_OUT_NORM, layer) if block.out_norm else out)

    def _linear(
        self, x: Array, role: Role, layer: int | None = None, bias: Role | None = None, expert: int | None = None
    ) -> Array:
        """With the bias if the package has one."""
        codes, scales = self._linears[role.name_of(layer)]
        if expert is not None:
            codes, scales = codes[expert], None if scales is None else scales[expert]
        if scales is None:
            acc = float_product(x, codes)
        else:
            activations, exponents = self._quantize(x.astype(_F32))
            acc = quantized_product(activations, exponents, codes, scales)
        vector = None if bias is None else self._vectors.get(bias.name_of(layer))
        if vector is not None and expert is not None:
            vector = vector[expert]
        return self._round(acc if vector is None else acc + vector)

    def _of_hidden(self, x: Array, role: Role, layer: int | None = None) -> Array:
        if not self.config.centred:
            return self._rms_norm(x, role, layer, self.config.residual_scale**2)
        wide = x.astype(_F32) - x.astype(np.float64).mean(axis=-1, keepdims=True).astype(_F32)
        variance = sum_of_products(wide, wide) / _F32(wide.shape[-1])
        normed = wide / np.sqrt(variance + _F32(self.config.rms_norm_eps))[..., None]
        bias = self._vectors.get(roles.NORM_BIASES[role].name_of(layer), _F32(0))
        return self._round(normed * self._vectors[role.name_of(layer)] + bias)

    def _rms_norm(self, x: Array, role: Role, layer: int | None = None, of_epsilon: float = 1.0) -> Array:
        wide = x.astype(_F32)
        mean = sum_of_products(wide, wide) / _F32(wide.shape[-1])
        factor = _F32(1) / np.sqrt(mean + _F32(self.config.rms_norm_eps * of_epsilon))
        return self._round(wide * factor[..., None] * self._vectors[role.name_of(layer)])

    def _rope(self, x: Array, start: int, tables: tuple[str, str]) -> Array:
        cos, sin = (self._vectors[name][start : start + len(x), None] for name in tables)
        half = cos.shape[-1]
        first, second = x[..., :half].astype(_F32), x[..., half : 2 * half].astype(_F32)
        turned = self._round(np.concatenate((first * cos - second * sin, second * cos + first * sin), axis=-1))
        return np.concatenate((turned, x[..., 2 * half :]), axis=-1)

    def _add(self, a: Array, b: Array) -> Array:
        return self._round(a.astype(_F32) + b.astype(_F32))

    def _round(self, x: Floats) -> Array:
        return np.clip(x, -65504, 65504).astype(np.float16) if self.dtype == np.float16 else x
