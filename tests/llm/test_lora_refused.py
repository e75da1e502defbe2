"""Adapters and options with which no graphs take a LoRA as inputs."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
from llm_packages import compile_package

pytestmark = pytest.mark.oracle
pytest.importorskip("safetensors.numpy", reason="writes checkpoints")
pytest.importorskip("torch", reason="makes checkpoints")
pytest.importorskip("transformers", reason="makes checkpoints")
from hybrid_models import random_model
from lora_adapters import ATTENTION, RANK
from safetensors.numpy import load_file, save_file
from test_lora import checkpoint_of, write_adapter

from tcim_lite.models.common.errors import CompileError


def tensors_in(folder):
    return load_file(folder / "adapter_model.safetensors")


def changed_tensors(edit):
    def apply(folder):
        tensors = tensors_in(folder)
        edit(tensors)
        save_file(tensors, folder / "adapter_model.safetensors")

    return apply


def changed_config(**values):
    def apply(folder):
        path = folder / "adapter_config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | values))

    return apply


STEM = "base_model.model.model.layers.0.self_attn.q_proj"
FLAWS = {
    "peft_type 'IA3', expected 'LORA'": changed_config(peft_type="IA3"),
    "sets rank_pattern, use_dora; only plain LoRA": changed_config(use_dora=True, rank_pattern={"q_proj": 8}),
    "sets alora_invocation_tokens; only plain LoRA": changed_config(alora_invocation_tokens=[7, 8]),
    "has init_lora_weights 'pissa_niter_4', with which PEFT changes": changed_config(init_lora_weights="pissa_niter_4"),
    "has init_lora_weights 'OLoRA', with which PEFT changes": changed_config(init_lora_weights="OLoRA"),
    "bias 'all', expected 'none'": changed_config(bias="all"),
    "r True, expected a whole number": changed_config(r=True),
    "lora_alpha '8', expected a number": changed_config(lora_alpha="8"),
    "r 1000000": changed_config(r=10**400),
    "lora_alpha 1000000": changed_config(lora_alpha=10**400),
    "expected [4, inputs] and [outputs, 4]": changed_config(r=4),
    "has only one of lora_A and lora_B": changed_tensors(lambda tensors: tensors.pop(f"{STEM}.lora_B.weight")),
    "has a tensor 'lm_head.weight'": changed_tensors(
        lambda tensors: tensors.update({"lm_head.weight": np.zeros((2, 2), np.float32)})
    ),
    "of shape [8, 5], that of the checkpoint has": changed_tensors(
        lambda tensors: tensors.update(
            {
                f"{STEM}.lora_A.weight": np.zeros((RANK, 5), np.float32),
                f"{STEM}.lora_B.weight": np.zeros((8, RANK), np.float32),
            }
        )
    ),
    "no Linear of a layer called 'model.layers.9.self_attn.q_proj'": changed_tensors(
        lambda tensors: tensors.update(
            {name.replace("layers.0", "layers.9"): tensors.pop(name) for name in list(tensors) if name.startswith(STEM)}
        )
    ),
    "no Linear of a layer called 'lm_head'": changed_tensors(
        lambda tensors: tensors.update(
            {f"base_model.model.lm_head.lora_{side}.weight": np.zeros((RANK, RANK), np.float32) for side in "AB"}
        )
    ),
    "beyond the fp16 range": changed_tensors(lambda tensors: tensors[f"{STEM}.lora_B.weight"].fill(1e5)),
    "has no adapter_model.safetensors": lambda folder: (folder / "adapter_model.safetensors").unlink(),
    "has no adapter_config.json; expected the folder of a PEFT adapter": lambda folder: (
        folder / "adapter_config.json"
    ).unlink(),
    "is no folder": shutil.rmtree,
}


@pytest.fixture(scope="module")
def plain_adapter(tmp_path_factory):
    folder = tmp_path_factory.mktemp("flaws")
    model = checkpoint_of(folder / "hf", "qwen3")
    write_adapter(folder / "tuned", model, ATTENTION)
    return folder


@pytest.mark.parametrize("message", FLAWS)
def test_adapters_that_are_not_plain_are_refused(plain_adapter, tmp_path, message):
    shutil.copytree(plain_adapter / "tuned", tmp_path / "tuned")
    FLAWS[message](tmp_path / "tuned")
    with pytest.raises(CompileError) as error:
        compile_package(plain_adapter / "hf", tmp_path / "out", quant="float16", lora=tmp_path / "tuned")
    assert message in str(error.value)
    assert not (tmp_path / "out").exists()


def test_experts_are_refused(tmp_path):
    model = random_model(tmp_path / "hf", {}, "qwen3_5_moe")
    write_adapter(tmp_path / "tuned", model, ("o_proj",))
    tensors = {
        f"base_model.model.model.layers.0.mlp.experts.3.up_proj.lora_{side}.weight": np.zeros((RANK, RANK), np.float32)
        for side in "AB"
    }
    save_file(tensors_in(tmp_path / "tuned") | tensors, tmp_path / "tuned/adapter_model.safetensors")
    with pytest.raises(CompileError, match="or it is one of an expert or a tower"):
        compile_package(tmp_path / "hf", tmp_path / "out", quant="float16", lora=tmp_path / "tuned")
