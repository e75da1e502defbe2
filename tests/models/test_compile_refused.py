"""What the compiler refuses, by name and before the work, and that a failure leaves the output as it was."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from package_contents import Make, files_of

from tcim_lite.models.common.errors import CheckpointError, CompileError, CompileWarning
from tcim_lite.models.compiler import CompileOptions, compile_checkpoint


@pytest.mark.parametrize(
    ("changes", "tensor"),
    [
        ({"hidden_size": 72}, r"layers\.0\.self_attn\.q_proj.*72 inputs"),
        ({"head_dim": 24}, r"layers\.0\.self_attn\.o_proj.*144 inputs"),
        ({"intermediate_size": 100}, r"layers\.0\.mlp\.down_proj.*100 inputs"),
    ],
)
def test_group_size_that_does_not_divide(
    make_checkpoint: Make, make_package: Make, changes: dict[str, int], tensor: str
) -> None:
    checkpoint = make_checkpoint(**changes)
    with pytest.raises(CompileError, match=f"{tensor}, not a multiple of the quantisation group of 64"):
        make_package(checkpoint)
    make_package(checkpoint, quant="float16")


def test_failure_leaves_the_output_as_it_was(make_checkpoint: Make, tmp_path: Path) -> None:
    def edit(tensors: dict[str, np.ndarray]) -> None:
        tensors["model.embed_tokens.weight"][5, 5] = np.nan  # found last

    good, bad, output = make_checkpoint(), make_checkpoint(edit=edit), tmp_path / "out"
    with pytest.raises(CheckpointError, match="NaN or infinity"):
        compile_checkpoint(CompileOptions(checkpoint=bad, output=output, context_length=256))
    assert not output.exists()
    compile_checkpoint(CompileOptions(checkpoint=good, output=output, context_length=512))
    (output / "notes.txt").write_text("mine")
    before = files_of(output)
    with pytest.raises(CheckpointError, match="NaN or infinity"):
        compile_checkpoint(CompileOptions(checkpoint=bad, output=output, context_length=256))
    assert files_of(output) == before
    compile_checkpoint(CompileOptions(checkpoint=good, output=output, context_length=256))
    assert (output / "notes.txt").read_text() == "mine"
    assert not list(output.glob(".tcim-compile-*"))


def test_tensor_problems_are_found_before_the_work(make_checkpoint: Make, make_package: Make) -> None:
    missing = make_checkpoint(edit=lambda tensors: tensors.pop("model.norm.weight"))
    with pytest.raises(CheckpointError, match=r"no tensor 'model\.norm\.weight'"):
        make_package(missing)
    untied = make_checkpoint(edit=lambda tensors: tensors.pop("lm_head.weight"))
    with pytest.raises(CheckpointError, match=r"no tensor 'lm_head\.weight'"):
        make_package(untied)
    other_shape = make_checkpoint(
        edit=lambda t: t.update({"model.layers.0.self_attn.k_norm.weight": t["model.norm.weight"]})
    )
    with pytest.raises(CheckpointError, match=r"k_norm.*\[64\], expected \[32\]"):
        make_package(other_shape)


def test_tensors_without_a_place_are_named(make_checkpoint: Make, make_package: Make) -> None:
    def edit(tensors: dict[str, np.ndarray]) -> None:
        tensors["model.layers.0.self_attn.q_proj.bias"] = np.ones(192, np.float32)
        tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = np.zeros(16, np.float32)

    with pytest.warns(CompileWarning, match=r"1 tensors .*'model\.layers\.0\.self_attn\.q_proj\.bias'"):
        make_package(make_checkpoint(edit=edit))
