"""What torch's exporters write out, by opset: the same network comes out of all."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs torch to build and export networks")
pytest.importorskip("onnxruntime", reason="needs onnxruntime")

import torch
from torch import nn
from zoo import NETWORKS, build, export

from tcim_lite import hmm
from tcim_lite.models.onnx import onnx_bytes

pytestmark = [pytest.mark.oracle, pytest.mark.filterwarnings("ignore")]


class RmsNorm(nn.Module):
    """As language models write it."""

    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(width) + 0.5)

    def forward(self, x):
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype)


class Attention(nn.Module):
    """torch's own function, whose scale its exporter puts on q and k as roots."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.qkv, self.out = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        n, tokens, width = x.shape
        q, k, v = (y.view(n, tokens, self.heads, -1).transpose(1, 2) for y in self.qkv(x).chunk(3, -1))
        mixed = nn.functional.scaled_dot_product_attention(q, k, v)
        return self.out(mixed.transpose(1, 2).reshape(n, tokens, width))


def ops_of(model, tmp_path):
    path = tmp_path / "net.hmm"
    path.write_bytes(onnx_bytes(model, "float32"))
    return Counter(op.kind for op in hmm.read(path).graphs[0].ops if op.kind != "Reshape")


@pytest.mark.parametrize("name", ["vit_b_16", "convnext_tiny"])
def test_opsets_without_layer_norm_give_the_same_ops(name, tmp_path):
    network = NETWORKS[name]
    module, x = build(network, network.small)
    with_norms = ops_of(export(module, x, 17), tmp_path)
    assert with_norms["Gelu"] >= 2
    assert with_norms["LayerNorm"] >= 5
    assert with_norms["Erf"] == with_norms["Mul"] == with_norms["Div"] == 0
    for opset in (13, 16):
        assert ops_of(export(module, x, opset), tmp_path) == with_norms


@pytest.mark.parametrize("opset", [14, 17])
@pytest.mark.parametrize(
    ("module", "op"),
    [
        (nn.GELU(), "Gelu"),
        (nn.GELU(approximate="tanh"), "GeluTanh"),
        (nn.SiLU(), "Silu"),
        (nn.Hardswish(), "HardSwish"),
        (nn.LayerNorm(48), "LayerNorm"),
        (RmsNorm(48), "RMSNorm"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_module_is_one_op(module, op, opset, tmp_path, run_here, run_there):
    x = np.random.default_rng(1).standard_normal((2, 7, 48)).astype(np.float32)
    model = export(module.eval(), x, opset)
    assert ops_of(model, tmp_path) == {op: 1}
    got, wanted = (next(iter(run(model, {"x": x}).values())) for run in (run_here, run_there))
    # Erf differs by 4e-7 for each unit of x on each side; the roundings of a norm over 48 are fewer.
    assert (np.abs(got - wanted) <= 16e-7 * np.maximum(1, np.abs(x))).all()


def test_torch_s_attention_needs_no_products_but_its_matmuls(tmp_path, run_here, run_there):
    torch.manual_seed(5)
    x = np.random.default_rng(1).standard_normal((1, 7, 64)).astype(np.float32)
    model = export(Attention(64, 2).eval(), x, 17)
    ops = ops_of(model, tmp_path)
    assert (ops["MatMul"], ops["Softmax"], ops["Mul"], ops["Div"], ops["Transpose"]) == (2, 1, 0, 0, 4)
    got, wanted = (next(iter(run(model, {"x": x}).values())) for run in (run_here, run_there))
    np.testing.assert_allclose(got, wanted, rtol=0, atol=2 * 4 * 8 * 2**-24 * np.abs(wanted).max())
