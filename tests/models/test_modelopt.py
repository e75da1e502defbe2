"""Checkpoints of ModelOpt compile to what the values do that their codes stand for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from coded_checkpoints import MODULE, Coded, compiled, edited, torch, weights_of, without, write

from tcim_lite.models.checkpoints.checkpoint import config_of
from tcim_lite.models.checkpoints.quantized.table import scheme_of
from tcim_lite.models.common.errors import CheckpointError, CompileError

pytestmark = pytest.mark.oracle


def modelopt(algorithm):
    def encode(weight):
        if algorithm == "FP8":
            scale = weight.abs().max() / 448
            codes = (weight / scale).to(torch.float8_e4m3fn)
            parts = {".weight": codes, ".weight_scale": scale, ".input_scale": torch.tensor(0.1)}
            return parts, codes.float() * scale
        sizes = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])
        codes = torch.randint(0, 16, weight.shape)
        scales = (torch.rand(weight.shape[0], weight.shape[1] // 16) * 400).to(torch.float8_e4m3fn)
        scales[0] = 0
        whole = torch.tensor(1 / 12345.0)
        parts = {
            ".weight": (codes[:, 0::2] | codes[:, 1::2] << 4).to(torch.uint8),
            ".weight_scale": scales,
            ".weight_scale_2": whole,
            ".input_scale": torch.tensor(0.1),
        }
        signed = torch.where(codes < 8, 1, -1) * sizes[codes % 8]
        return parts, signed * (scales.float() * whole).repeat_interleave(16, 1)

    return encode


@pytest.mark.parametrize("algorithm", ["FP8", "NVFP4"])
def test_modelopt(tmp_path: Path, algorithm: str) -> None:
    """As config.json has it, or `hf_quant_config.json` beside it."""
    torch.manual_seed(4)
    said = {"quant_algo": algorithm, "kv_cache_quant_algo": None, "group_size": 16, "exclude_modules": ["lm_head"]}
    scheme = {"quant_method": "modelopt", **said, "producer": {"name": "modelopt"}}
    coded = Coded("qwen3_moe", scheme, modelopt(algorithm))
    got, want = coded.both(tmp_path)
    assert got == want
    del coded.config["quantization_config"]
    folder = write(tmp_path / "beside", coded.config, coded.tensors)
    (folder / "hf_quant_config.json").write_text(json.dumps({"producer": {"name": "modelopt"}, "quantization": said}))
    assert weights_of(folder) == want


def test_modelopt_beside_another_producer(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "hf_quant_config.json").write_text(json.dumps({"quantization": {"quant_algo": "FP8"}}))
    with pytest.raises(CompileError, match=r"already quantised \('\?'\), which is not read here"):
        scheme_of(config_of(tmp_path))
    (tmp_path / "hf_quant_config.json").write_text("{}")
    with pytest.raises(CheckpointError, match=r"hf_quant_config.json has no object 'quantization'"):
        config_of(tmp_path)


@pytest.mark.filterwarnings("ignore:.*does not ask for")
@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (without("weight_scale"), rf"dtype F8_E4M3, but no '{MODULE}.weight_scale' is beside it"),
        (edited("weight_scale", lambda t: t * 0), "weight_scale' .* holds a scale of zero"),
        (edited("pre_quant_scale", lambda _: torch.ones(320)), "pre_quant_scale' .* is of AWQ, which is not supported"),
        (edited("weight", lambda t: t.view(torch.uint8)), "dtype U8 and .* expected a matrix of F8_E4M3, as .* FP8"),
    ],
)
def test_bad_tensors_of_modelopt_are_named(tmp_path: Path, edit: Any, message: str) -> None:
    scheme = {"quant_method": "modelopt", "quant_algo": "FP8"}
    coded = Coded("qwen3", scheme, modelopt("FP8"), hidden_size=192, intermediate_size=320)
    edit(coded.tensors)
    with pytest.raises(CheckpointError, match=message):
        compiled(write(tmp_path / "coded", coded.config, coded.tensors))


@pytest.mark.parametrize(
    ("scheme", "message"),
    [
        ({"quant_method": "modelopt"}, "modelopt has no quant_algo, expected FP8 or NVFP4"),
        ({"quant_method": "modelopt", "quant_algo": "W4A16_AWQ"}, "quant_algo='W4A16_AWQ' is not supported"),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 32}, "group_size=32 .* expected 16"),
    ],
)
def test_other_schemes_are_refused_by_key(scheme: dict[str, Any], message: str) -> None:
    with pytest.raises(CompileError, match=f"quantization_config: {message}"):
        scheme_of({"quantization_config": scheme})


def test_caches_in_fp8_change_no_weight() -> None:
    assert scheme_of({"quantization_config": {"quant_method": "modelopt", "kv_cache_quant_algo": "FP8"}}) is None
