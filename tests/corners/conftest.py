"""The corners of the API contract (spec tcim-api section 18), each as tests named by its number.

They use the public API alone: tcim_lite.runtime and numpy. The models come from tests/conftest.py.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import tcim_lite.runtime as rt

sys.path.insert(0, str(Path(__file__).parent.parent / "llm"))

from llm_packages import tiny_package  # noqa: F401

CACHES = ["model_layers_0_self_attn_kcache_input", "model_layers_0_self_attn_vcache_input"]
_unused_devices = itertools.count(100)


@pytest.fixture
def caches() -> list[str]:
    """The names of the cache inputs of `pair`."""
    return CACHES


@pytest.fixture
def add(add_model) -> rt.Module:
    """total = a + b, float16 [2, 3]; `image` int8 [4] and `length` int32 [1] are there for their dtypes."""
    return rt.load(add_model)


@pytest.fixture
def slow(write_add) -> rt.Module:
    """total = a + b, float32 [1, 256, 4096]: a run takes milliseconds."""
    return rt.load(write_add((1, 256, 4096)))


@pytest.fixture
def pair(attention_pair) -> tuple[rt.Module, rt.Module]:
    """Prefill of four tokens, and decode whose caches are dummies."""
    manager = rt.WeightManager(0)
    prefill = rt.load(attention_pair[0], option=rt.Option(manager))
    decode = rt.load(attention_pair[1], option=rt.Option(manager).set_dummy_tensors(CACHES))
    return prefill, decode


@pytest.fixture
def rows() -> Callable[[int], np.ndarray]:
    """Embeddings of so many tokens, [1, tokens, 128] float32; the first ones are always the same."""
    return lambda tokens: np.random.default_rng(0).standard_normal((1, 4, 128)).astype(np.float32)[:, :tokens]


@pytest.fixture
def step() -> Callable[[rt.Module, np.ndarray, int], np.ndarray]:
    """Runs one call of a module of `pair` on `x`, `valid` tokens being cached; returns the output's rows."""

    def call(module: rt.Module, x: np.ndarray, valid: int) -> np.ndarray:
        padded = np.zeros(module.get_input_info("input_1").shape, np.float32)
        padded[:, : x.shape[1]] = x
        module.set_input("input_1", padded)
        module.set_input("valid_length", np.array(valid).astype("int32"))
        module.set_input("current_length", np.array(x.shape[1]).astype("int32"))
        module.run()
        module.sync()
        return module.get_output("logits").numpy()[0, : x.shape[1]]

    return call


@pytest.fixture
def device_with_memory(tmp_path, monkeypatch) -> Callable[[int], int]:
    """Declares a device with so many bytes of memory and returns its id."""

    def declare(nbytes: int) -> int:
        number = next(_unused_devices)
        profile = tmp_path / f"device_{number}.ini"
        profile.write_text("[device]\n" * number + f"[device]\nmemory = {nbytes}\n")
        monkeypatch.setenv("TCIM_LITE_DEVICES", str(profile))
        return number

    return declare


@pytest.fixture
def bytes_needed(device_with_memory) -> Callable[[Callable[[int], object]], int]:
    """The least device memory with which `load(device_id)` succeeds, to 64 bytes: what it takes, seen from outside."""

    def measure(load: Callable[[int], object]) -> int:
        too_small, enough = 0, 1 << 18
        while enough - too_small > 1:
            blocks = (too_small + enough) // 2
            try:
                load(device_with_memory(64 * blocks))
                enough = blocks
            except rt.DeviceError:
                too_small = blocks
        assert enough < 1 << 18
        return 64 * enough

    return measure
