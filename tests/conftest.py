"""Tiny hand-built models for the runtime tests."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tcim_lite import hmm

sys.path.insert(0, str(Path(__file__).parent))

from cpp_programs import sdk  # noqa: F401

HEADS, HEAD_DIM, CONTEXT = 2, 64, 32
HIDDEN = HEADS * HEAD_DIM


def add_graph(shape: tuple[int, ...] = (2, 3), dtype: str = "float16") -> hmm.Graph:
    """total = a + b. `image` and `length` are read by no op; they are there for their dtypes."""
    values = [
        hmm.Value("a", "input", dtype, shape),
        hmm.Value("b", "input", dtype, shape),
        hmm.Value("image", "input", "int8", (4,)),
        hmm.Value("length", "input", "int32", (1,)),
        hmm.Value("total", "intermediate", dtype, shape),
    ]
    return hmm.Graph("add", values, [hmm.Op("Add", [0, 1], [4])], inputs=[0, 1, 2, 3], outputs=[4])


def linear_graph(tokens: int, name: str = "linear") -> hmm.Graph:
    """y = x w, w [16, 8]."""
    values = [
        hmm.Value("x", "input", "float32", (1, tokens, 8)),
        hmm.Value("w", "weight", "float32", (16, 8), "linear_f32", weight=0),
        hmm.Value("y", "intermediate", "float32", (1, tokens, 16)),
    ]
    return hmm.Graph(name, values, [hmm.Op("Linear", [0, 1], [2])], inputs=[0], outputs=[2])


def linear_weight() -> np.ndarray:
    """[16, 8]"""
    return np.arange(128, dtype=np.float32).reshape(16, 8) / 16


def attention_graph(tokens: int) -> hmm.Graph:
    """Attention of the input with itself over K and V caches; queries, keys and values are all the input."""
    rows, heads = (1, tokens, HIDDEN), (1, tokens, HEADS, HEAD_DIM)
    cache = (1, HEADS, CONTEXT, HEAD_DIM)
    values = [
        hmm.Value("input_1", "input", "float16", rows),
        hmm.Value("valid_length", "input", "int32", (1,)),
        hmm.Value("current_length", "input", "int32", (1,)),
        hmm.Value("model_layers_0_self_attn_kcache_input", "state", "float16", cache),
        hmm.Value("model_layers_0_self_attn_vcache_input", "state", "float16", cache),
        hmm.Value("heads", "intermediate", "float16", heads),
        hmm.Value("keys", "intermediate", "float16", cache),
        hmm.Value("values", "intermediate", "float16", cache),
        hmm.Value("logits", "intermediate", "float16", rows),
    ]
    ops = [
        hmm.Op("Reshape", [0], [5]),
        hmm.Op("KVcache", [5, 3, 1, 2], [6]),
        hmm.Op("KVcache", [5, 4, 1, 2], [7]),
        hmm.Op("FlashAttention", [5, 6, 7, 1, 2], [8]),
    ]
    return hmm.Graph(f"attention_{tokens}", values, ops, inputs=[0, 1, 2, 3, 4], outputs=[8], live_rows=2)


@pytest.fixture
def add_model(tmp_path: Path) -> Path:
    hmm.write_model(tmp_path / "add.hmm", add_graph(), [], custom_msg='{"kind": "add"}', ncore=2)
    return tmp_path / "add.hmm"


@pytest.fixture
def write_add(tmp_path: Path) -> Callable[..., Path]:
    def write(shape: tuple[int, ...], dtype: str = "float32") -> Path:
        hmm.write_model(tmp_path / "add_shaped.hmm", add_graph(shape, dtype), [])
        return tmp_path / "add_shaped.hmm"

    return write


@pytest.fixture
def linear_pair(tmp_path: Path) -> tuple[Path, Path]:
    """Two graphs that share `linear.hmw`."""
    with hmm.WeightsWriter(tmp_path / "linear.hmw") as weights:
        entry = weights.add("w", "float32", "linear_f32", (16, 8), np.ascontiguousarray(linear_weight().T))
    sibling = hmm.Sibling("linear.hmw", weights.id)
    paths = tmp_path / "prefill.hmm", tmp_path / "decode.hmm"
    for path, tokens in zip(paths, (4, 1), strict=True):
        hmm.write_model(path, linear_graph(tokens, path.stem), [entry], sibling=sibling)
    return paths


@pytest.fixture
def linear_bytes() -> bytes:
    """A model that contains its weights."""
    data = np.ascontiguousarray(linear_weight().T)
    return hmm.model_bytes(linear_graph(4), [hmm.WeightData("w", "float32", "linear_f32", (16, 8), data)])


@pytest.fixture
def attention_pair(tmp_path: Path) -> tuple[Path, Path]:
    """Prefill of four tokens, and decode."""
    paths = tmp_path / "attention_prefill.hmm", tmp_path / "attention_decode.hmm"
    for path, tokens in zip(paths, (4, 1), strict=True):
        hmm.write_model(path, attention_graph(tokens), [])
    return paths


@pytest.fixture
def reference_weight() -> np.ndarray:
    return linear_weight()


@pytest.fixture
def run_script(tmp_path: Path) -> Callable[..., str]:
    """Runs Python text in a fresh process, away from the source folder, and returns what it printed."""

    def run(text: str, *arguments: str) -> str:
        script = tmp_path / "script.py"  # a file: child processes that do not fork read it again
        script.write_text(textwrap.dedent(text))
        command = [sys.executable, script, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=tmp_path, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    return run
