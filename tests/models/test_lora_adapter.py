"""Adapters of PEFT as they are read: names of tensors, scales, and the modules that are changed."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from package_contents import Make
from safetensors.numpy import save_file

from tcim_lite.hmm import read
from tcim_lite.models.checkpoints.lora import LoraAdapter
from tcim_lite.models.common.errors import CompileError
from tcim_lite.models.compiler import cache
from tcim_lite.models.compiler.options import CompileOptions

RANK, INPUTS, OUTPUTS = 2, 64, 192  # of q_proj in the tiny checkpoint
Q_PROJ = "model.layers.0.self_attn.q_proj"
DOWN, UP = (np.random.default_rng(1).normal(size=shape).astype(np.float32) for shape in ((RANK, 64), (192, RANK)))


def write_adapter(folder: Path, stem: str, ending: str = "weight", **config: object) -> Path:
    folder.mkdir()
    save_file({f"{stem}.lora_A.{ending}": DOWN, f"{stem}.lora_B.{ending}": UP}, folder / "adapter_model.safetensors")
    written = {"peft_type": "LORA", "r": RANK, "lora_alpha": 6, **config}
    (folder / "adapter_config.json").write_text(json.dumps(written))
    return folder


@pytest.mark.parametrize("stem", [Q_PROJ, f"base_model.model.{Q_PROJ}"])
@pytest.mark.parametrize("ending", ["weight", "default.weight"])
def test_tensors_are_known_by_each_form_of_their_names(tmp_path: Path, stem: str, ending: str) -> None:
    ((module, change),) = LoraAdapter(write_adapter(tmp_path / "a", stem, ending)).changes.items()
    assert (module, change.rank, change.shape) == (Q_PROJ, RANK, (OUTPUTS, INPUTS))
    np.testing.assert_array_equal(change.down, DOWN)


@pytest.mark.parametrize(
    ("config", "scale"),
    [({}, 6 / RANK), ({"use_rslora": True}, 6 / RANK**0.5), ({"fan_in_fan_out": True}, 6 / RANK)],  # the last: of GPT-2
)
def test_the_scale_is_in_up(tmp_path: Path, config: dict[str, bool], scale: float) -> None:
    (change,) = LoraAdapter(write_adapter(tmp_path / "a", Q_PROJ, **config)).changes.values()
    np.testing.assert_array_equal(change.up, UP * np.float32(scale))


def test_the_layers_of_a_language_model_inside_another_are_found(
    make_checkpoint: Make, make_package: Make, tmp_path: Path
) -> None:
    adapter = write_adapter(tmp_path / "a", "base_model.model.model.language_model.layers.1.self_attn.q_proj")
    package = make_package(make_checkpoint(), lora=adapter)
    graph = read(package / "qwen3_prefill.hmm").graph
    names = [graph.values[index].name for index in graph.inputs[-2:]]
    assert names == [f"lora_bundle_pipelined_te_layers_1_self_attn_qkv_{side}" for side in ("down", "up")]


@pytest.mark.parametrize("part", ["visual", "audio_tower", "mtp"])
def test_layers_of_other_parts_are_refused(
    make_checkpoint: Make, make_package: Make, tmp_path: Path, part: str
) -> None:
    """They are called and shaped as those of the language model may be."""
    adapter = write_adapter(tmp_path / "a", f"base_model.model.model.{part}.layers.0.self_attn.q_proj")
    with pytest.raises(CompileError, match=f"no Linear of a layer called 'model.{part}.layers.0.self_attn.q_proj'"):
        make_package(make_checkpoint(), lora=adapter)


def test_another_adapter_makes_another_cached_package(make_checkpoint: Make, tmp_path: Path) -> None:
    adapter = write_adapter(tmp_path / "a", Q_PROJ)
    options = CompileOptions(checkpoint=make_checkpoint(), output=tmp_path / "out", lora=adapter)
    before = cache._state(options)
    assert cache._state(options) == before
    (adapter / "adapter_config.json").write_text("{}")
    assert cache._state(options) != before
