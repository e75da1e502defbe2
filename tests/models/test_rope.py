"""RoPE tables against transformers' `Qwen3RotaryEmbedding`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tcim_lite.models.common.errors import CompileError
from tcim_lite.models.common.rope import Rope

CONTEXT = 1024
SCALINGS: dict[str, dict[str, Any]] = {
    "default": {"rope_type": "default"},
    "linear": {"rope_type": "linear", "factor": 2.5},
    "dynamic": {"rope_type": "dynamic", "factor": 2.0},
    "yarn": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 256},
    "yarn with mscale": {
        "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 256,
        "mscale": 0.8, "mscale_all_dim": 0.5, "beta_fast": 16, "beta_slow": 2, "truncate": False,
    },
    "yarn with factor": {
        "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 256, "attention_factor": 1.25,
    },
    "llama3": {
        "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 256,
    },
    "longrope": {
        "rope_type": "longrope", "factor": 4.0, "original_max_position_embeddings": 256,
        "short_factor": [1.0 + 0.01 * i for i in range(64)], "long_factor": [1.5 + 0.05 * i for i in range(64)],
    },
}  # fmt: skip


def ulps(a: np.ndarray, b: np.ndarray) -> int:
    """Largest distance in units in the last place of fp32."""
    ordered = [
        np.where(bits < 0, -(bits & 0x7FFFFFFF), bits) for bits in (x.view(np.int32).astype(np.int64) for x in (a, b))
    ]
    return int(np.abs(ordered[0] - ordered[1]).max())


@pytest.mark.oracle
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("theta", [10000.0, 1000000.0])
@pytest.mark.parametrize("case", SCALINGS)
def test_table_is_that_of_transformers(case: str, theta: float) -> None:
    torch = pytest.importorskip("torch", reason="oracle")
    pytest.importorskip("transformers", reason="oracle")
    from transformers import Qwen3Config
    from transformers.models.qwen3.modeling_qwen3 import Qwen3RotaryEmbedding

    # Beyond its max_position_embeddings `dynamic` adapts to the length, `longrope` to the original length.
    max_positions = 512 if case in ("dynamic", "default") else 1024
    scaling = SCALINGS[case]
    config = Qwen3Config(
        head_dim=128, max_position_embeddings=max_positions, rope_parameters={**scaling, "rope_theta": theta}
    )
    rope = Rope(head_dim=128, theta=theta, scaling=scaling, max_position_embeddings=max_positions)
    oracle = Qwen3RotaryEmbedding(config)
    cos, sin = (part[0, :, :64].numpy() for part in oracle(torch.zeros(1), torch.arange(CONTEXT)[None]))

    # torch's vectorised pow is not correctly rounded; ours is. Every other step rounds alike.
    inv_freq, _ = rope.inverse_frequencies(CONTEXT)
    assert ulps(inv_freq, oracle.inv_freq.numpy()) <= 1
    # With equal frequencies the cosines differ by torch's last place only; an angle moves by position * ulp otherwise.
    table = rope.table(CONTEXT)
    same = inv_freq == oracle.inv_freq.numpy()
    assert (~same).sum() <= 2
    unit = 2.0**-23 * max(1.0, float(oracle.attention_scaling))
    for got, want in ((table.cos, cos), (table.sin, sin)):
        np.testing.assert_allclose(got[:, same], want[:, same], rtol=0, atol=unit)
        np.testing.assert_allclose(got, want, rtol=0, atol=unit * (1 + CONTEXT))
        assert (got.astype(np.float16) != want.astype(np.float16)).mean() < 1e-3


def test_first_row_is_the_identity() -> None:
    table = Rope(head_dim=8, theta=1e4).table(5)
    assert table.cos.shape == table.sin.shape == (5, 4)
    assert table.cos.dtype == table.sin.dtype == np.float32
    assert (table.cos[0] == 1).all()
    assert (table.sin[0] == 0).all()
    assert table.sin[1, 0] == np.float32(np.sin(1.0))


@pytest.mark.parametrize(
    ("scaling", "message"),
    [
        ({"rope_type": "spiral"}, "'spiral' is not supported; supported are default"),
        ({"rope_type": "linear"}, "needs a positive 'factor', got None"),
        ({"rope_type": "llama3", "factor": 8.0, "high_freq_factor": 4}, "'low_freq_factor'"),
        ({"rope_type": "longrope", "short_factor": [1.0]}, "'short_factor' with 4 numbers, got 1"),
        ({"rope_type": "longrope", "short_factor": ["a"] * 4}, "needs numbers in 'short_factor'"),
        ({"rope_type": "longrope", "short_factor": [1.0, 0, 1, 1]}, "positive numbers in 'short_factor'"),
        ({"rope_type": "yarn", "factor": float("nan")}, "positive 'factor', got nan"),
        ({"rope_type": "yarn", "factor": -4}, "positive 'factor', got -4"),
        ({"rope_type": "yarn", "factor": 4, "beta_fast": "x"}, "positive 'beta_fast', got 'x'"),
        ({"rope_type": "yarn", "factor": 4, "attention_factor": 0}, "positive 'attention_factor', got 0"),
        ({"rope_type": "yarn", "factor": 4, "original_max_position_embeddings": "x"}, "'original_max_position"),
        # What divides by zero, or has no finite angles.
        ({"rope_type": "yarn", "original_max_position_embeddings": 0.5}, "no angles for 5 positions and 8 elements"),
        (
            {"rope_type": "longrope", "short_factor": [1] * 4, "long_factor": [1] * 4, "factor": 2}
            | {"original_max_position_embeddings": 1},
            "check these numbers",
        ),
        ({"rope_type": "linear", "factor": 1e-300}, "no angles .*'factor': 1e-300"),
        ({"rope_type": "llama3", "factor": 1e-300, "low_freq_factor": 1, "high_freq_factor": 4}, "no angles"),
    ],
)
@pytest.mark.filterwarnings("error")
def test_refusals(scaling: dict[str, Any], message: str) -> None:
    with pytest.raises(CompileError, match=message):
        Rope(head_dim=8, theta=1e4, scaling=scaling, max_position_embeddings=64).table(5)


def test_two_elements_that_turn_have_no_dynamic_frequencies() -> None:
    """The exponent divides by two less."""
    scaling = {"rope_type": "dynamic", "factor": 2.0}
    with pytest.raises(CompileError, match="no angles for 5 positions and 2 elements"):
        Rope(head_dim=2, theta=1e4, scaling=scaling, max_position_embeddings=64).table(5)
