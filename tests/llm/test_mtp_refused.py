"""Multi-token prediction: what does not go with it is refused, and a package without it has none of its graphs."""

from __future__ import annotations

import json
import warnings

import pytest
from llm_packages import compile_package

pytestmark = pytest.mark.oracle
safetensors = pytest.importorskip("safetensors.torch", reason="writes checkpoints")
torch = pytest.importorskip("torch", reason="the oracle")
pytest.importorskip("transformers", reason="the oracle")
from hybrid_models import random_model
from mtp_checkpoints import SIZES, checkpoint

from tcim_lite.llm import Package
from tcim_lite.models.common.errors import CompileError
from tcim_lite.models.compiler import CompileOptions, compile_checkpoint
from tcim_lite.models.families import FAMILIES


def test_a_checkpoint_without_the_layer_is_refused(tmp_path):
    random_model(tmp_path / "hf", {})
    with pytest.raises(CompileError, match="mtp"):
        compile_package(tmp_path / "hf", tmp_path / "out", mtp=True)


def test_the_layer_is_no_tensor_without_a_place(tmp_path):
    """Without --mtp as well. A second layer is refused: guesses would be those of the first alone."""
    checkpoint(tmp_path)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*no tokenizer files")
        warnings.simplefilter("error", append=True)
        for mtp in (False, True):
            options = CompileOptions(checkpoint=tmp_path / "hf", output=tmp_path / "out", mtp=mtp, **SIZES)
            compile_checkpoint(options)
    path = tmp_path / "hf/model.safetensors"
    tensors = safetensors.load_file(path)
    safetensors.save_file({**tensors, "mtp.layers.1.input_layernorm.weight": torch.zeros(192)}, path)
    with pytest.raises(CompileError, match="has several MTP layers"):
        compile_package(tmp_path / "hf", tmp_path / "out", mtp=True)


def test_compiling_without_the_layer_removes_its_graphs(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(FAMILIES["qwen3_5"].tiny_config))
    compile_package(tmp_path, tmp_path / "out", random_weights=True, mtp=True, verify_length=3, **SIZES)
    assert Package.open(tmp_path / "out").has("decode_mtp.hmm")
    compile_package(tmp_path, tmp_path / "out", random_weights=True, **SIZES)
    assert not Package.open(tmp_path / "out").has("decode_mtp.hmm")
