"""Tiny GPTQ and AWQ checkpoints: codes, scales and offsets as their writers pack them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from family_checkpoints import Tensors, family_config, family_tensors
from safetensors.numpy import save_file

SIZES: dict[str, Any] = {"prefill_length": 8, "context_length": 64}
# Groups of 128 need inputs in multiples of it.
WIDTHS = {"hidden_size": 256, "intermediate_size": 384, "num_attention_heads": 4, "head_dim": 64}
GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 64, "sym": True, "desc_act": False}
AWQ = {"quant_method": "awq", "bits": 4, "group_size": 64, "zero_point": False, "version": "gemm"}
AUTO_ROUND = {"quant_method": "auto-round", "bits": 4, "group_size": 64, "sym": True, "data_type": "int"}


def packed_words(nibbles: np.ndarray) -> np.ndarray:
    """[.., 8] -> int32, the lowest first."""
    return sum(nibbles[..., i].astype(np.uint32) << np.uint32(4 * i) for i in range(8)).view(np.int32)


def by_outputs(values: np.ndarray, order: list[int]) -> np.ndarray:
    """[rows, N] -> [rows, N / 8]; nibble i holds output order[i] of eight."""
    return packed_words(values.reshape(len(values), -1, 8)[:, :, order])


def stored(stem: str, codes: np.ndarray, zeros: np.ndarray, scales: np.ndarray, scheme: dict[str, Any]) -> Tensors:
    """The tensors of a Linear as their programs write them: codes [K, N], zeros and scales [groups, N]."""
    packing = scheme.get("packing_format", scheme["quant_method"])
    if packing.endswith("awq"):
        order = [0, 2, 4, 6, 1, 3, 5, 7]
        parts = {"qweight": by_outputs(codes, order), "qzeros": by_outputs(zeros, order)}
    else:
        older = scheme.get("checkpoint_format", packing).endswith("gptq")
        by_inputs = codes.reshape(-1, 8, codes.shape[1]).transpose(0, 2, 1)
        parts = {"qweight": packed_words(by_inputs), "qzeros": by_outputs((zeros - older) & 15, list(range(8)))}
    return {f"{stem}.{part}": words for part, words in {**parts, "scales": scales.astype(np.float16)}.items()}


class Made:
    """A random checkpoint whose projections are 4-bit codes."""

    def __init__(self, folder: Path, scheme: dict[str, Any], *, symmetric: bool = True, family: str = "qwen3") -> None:
        self.folder = folder
        self.config = {**family_config(family, **WIDTHS), "quantization_config": scheme}
        plain = {key: value for key, value in self.config.items() if key != "quantization_config"}
        self.floats = family_tensors(plain)
        self.tensors: Tensors = {}
        self.codes: dict[str, np.ndarray] = {}  # [N, K], -8..7
        self.scales: dict[str, np.ndarray] = {}  # [N, groups]
        rng = np.random.default_rng(6)
        for name, tensor in self.floats.items():
            if "_proj.weight" not in name and ".experts." not in name:
                self.tensors[name] = tensor
                continue
            outputs, inputs = tensor.shape
            groups = 1 if scheme["group_size"] == -1 else inputs // scheme["group_size"]
            codes = rng.integers(0, 16, (inputs, outputs), np.int32)
            zeros = np.full((groups, outputs), 8) if symmetric else rng.integers(1, 16, (groups, outputs))
            scales = rng.uniform(0.001, 0.02, (groups, outputs)).astype(np.float16)
            self.tensors |= stored(name.removesuffix(".weight"), codes, zeros, scales, scheme)
            each = inputs // groups
            self.codes[name], self.scales[name] = (codes - 8).T.astype(np.int8), scales.T
            values = (codes - np.repeat(zeros, each, axis=0)) * np.repeat(scales.astype(np.float32), each, axis=0)
            self.floats[name] = values.T.astype(np.float32)

    def write(self) -> Path:
        self.folder.mkdir()
        (self.folder / "config.json").write_text(json.dumps(self.config))
        save_file({k: np.ascontiguousarray(v) for k, v in self.tensors.items()}, self.folder / "model.safetensors")
        return self.folder

    def write_floats(self) -> Path:
        """The same values, not quantised."""
        folder = self.folder.with_name("floats")
        folder.mkdir()
        config = {key: value for key, value in self.config.items() if key != "quantization_config"}
        (folder / "config.json").write_text(json.dumps(config))
        floats = {name: np.ascontiguousarray(tensor, np.float32) for name, tensor in self.floats.items()}
        save_file(floats, folder / "model.safetensors")
        return folder
