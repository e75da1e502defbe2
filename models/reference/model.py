"""A numpy model of a compiled package, written from docs/numerics.md alone: what the numbers of a whole model are.

The kernels of `csrc/backends/cpu/reference` define each op, and this model checks them, and how a package puts them
together, from outside: it reads the packed weights and the config, and runs tokens through the blocks of a Qwen3 or
Llama, without the graph and the core. Blocks of other families are compared with transformers instead.

fp32 accumulations keep the order of the definition; a fused multiply-add is a float64 sum rounded to fp32, which
differs from the true one only in rare double roundings. `exp` is numpy's, not the project's polynomial. So results are
within a few units in the last place of the core's, not equal to them.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from tcim_lite.hmm import read

from ..blocks import Attention, Mlp
from ..families import read_config
from ..weights import roles
from ..weights.hidden_exponent import codes_of
from ..weights.packing import unpack
from ..weights.roles import Role
from .arithmetic import (
    Array,
    Floats,
    attend,
    float_product,
    quantize_activations,
    quantized_product,
    sum_of_products,
)

_F32 = np.float32
_BLOCKS = (Mlp(), *(Attention(qk_norm=norm, qkv_bias=b, out_bias=b) for norm in (True, False) for b in (True, False)))


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
        """Reads a package folder with one model, whose weights lie in a `.hmw`.

        Raises:
            NotImplementedError: Its blocks are not those of a Qwen3 or Llama.
        """
        (decode,) = package.glob("*_decode.hmm")
        model = read(decode)
        message = json.loads(model.custom_msg)
        self.config = config = read_config(json.loads((package / "tokenizer/config.json").read_text()))
        blocks = (block for layer in range(config.num_layers) for block in config.blocks(layer))
        if config.residual_scale != 1 or not all(block in _BLOCKS for block in blocks):
            raise NotImplementedError(f"the reference has the blocks of a Qwen3 or Llama, not of {config.family.title}")
        self.dtype = np.dtype(message["embedding_dtype"])
        self._quantize = codes_of if message.get("activations") == "hidden_exponent" else quantize_activations
        self.embedding = np.fromfile(package / "hmquant/quant_embedding.bin", self.dtype).reshape(
            config.vocab_size, config.hidden_size
        )
        store = read(next(package.glob("*.hmw")))
        self._vectors: dict[str, Floats] = {}
        self._linears: dict[str, tuple[Array, Array | None]] = {}
        for entry in store.weights:
            data = store.weight_bytes(entry)
            if entry.format == "dense":
                self._vectors[entry.name] = np.frombuffer(data, entry.dtype).reshape(entry.shape).astype(_F32)
            else:
                self._linears[entry.name] = unpack(data, entry.format, *entry.shape)

    def run(self, token_ids: list[int], cache: ReferenceCache) -> Floats:
        """Appends tokens to the cache and returns the logits [tokens, V] of every one of them."""
        start = cache.length
        x = self.embedding[token_ids]
        for layer in range(self.config.num_layers):
            attention, _ = self.config.blocks(layer)
            assert isinstance(attention, Attention)
            x = self._attention(x, attention, layer, start, cache)
            gate_up = self._linear(self._rms_norm(x, roles.MLP_NORM, layer), roles.GATE_UP, layer)
            x = self._add(x, self._linear(self._gated(gate_up), roles.DOWN, layer))
        return self._linear(self._rms_norm(x, roles.FINAL_NORM), roles.HEAD).astype(_F32)

    def _gated(self, gate_up: Array) -> Array:
        pairs = gate_up.reshape(len(gate_up), -1, 2, 16).astype(_F32)
        gate, up = pairs[:, :, 0].reshape(len(pairs), -1), pairs[:, :, 1].reshape(len(pairs), -1)
        with np.errstate(over="ignore"):
            return self._round((gate / (_F32(1) + np.exp(-gate)) * up).astype(_F32))

    def _attention(self, x: Array, block: Attention, layer: int, start: int, cache: ReferenceCache) -> Array:
        config = self.config
        flat = self._linear(self._rms_norm(x, roles.ATTENTION_NORM, layer), roles.QKV, layer, roles.QKV_BIAS)
        heads = flat.reshape(len(x), -1, config.head_dim)
        q, k, v = np.split(heads, np.array([config.num_heads, config.num_heads + config.num_kv_heads]), axis=1)
        if block.qk_norm:
            q, k = self._rms_norm(q, roles.Q_NORM, layer), self._rms_norm(k, roles.K_NORM, layer)
        q, k = self._rope(q, start), self._rope(k, start)
        if layer == len(cache.keys):
            cache.keys.append(k)
            cache.values.append(v)
        else:
            cache.keys[layer] = np.concatenate((cache.keys[layer], k))
            cache.values[layer] = np.concatenate((cache.values[layer], v))
        repeat = config.num_heads // config.num_kv_heads
        keys = np.repeat(cache.keys[layer].astype(_F32), repeat, axis=1)
        values = np.repeat(cache.values[layer].astype(_F32), repeat, axis=1)
        scaled = q.astype(_F32) * _F32(1 / np.sqrt(config.head_dim))
        rows = [attend(row, keys[: start + i + 1], values[: start + i + 1]) for i, row in enumerate(scaled)]
        mixed = self._round(np.stack(rows)).reshape(len(x), -1)
        return self._add(x, self._linear(mixed, roles.ATTENTION_OUT, layer, roles.ATTENTION_OUT_BIAS))

    def _linear(self, x: Array, role: Role, layer: int | None = None, bias: Role | None = None) -> Array:
        """With the bias if the package has one."""
        codes, scales = self._linears[role.name_of(layer)]
        if scales is None:
            acc = float_product(x, codes)
        else:
            activations, exponents = self._quantize(x.astype(_F32))
            acc = quantized_product(activations, exponents, codes, scales)
        vector = None if bias is None else self._vectors.get(bias.name_of(layer))
        return self._round(acc if vector is None else acc + vector)

    def _rms_norm(self, x: Array, role: Role, layer: int | None = None) -> Array:
        wide = x.astype(_F32)
        mean = sum_of_products(wide, wide) / _F32(wide.shape[-1])
        factor = _F32(1) / np.sqrt(mean + _F32(self.config.rms_norm_eps))
        return self._round(wide * factor[..., None] * self._vectors[role.name_of(layer)])

    def _rope(self, x: Array, start: int) -> Array:
        cos, sin = (self._vectors[name][start : start + len(x), None] for name in (roles.ROPE_COS, roles.ROPE_SIN))
        half = cos.shape[-1]
        first, second = x[..., :half].astype(_F32), x[..., half:].astype(_F32)
        return self._round(np.concatenate((first * cos - second * sin, second * cos + first * sin), axis=-1))

    def _add(self, a: Array, b: Array) -> Array:
        return self._round(a.astype(_F32) + b.astype(_F32))

    def _round(self, x: Floats) -> Array:
        return np.clip(x, -65504, 65504).astype(np.float16) if self.dtype == np.float16 else x
