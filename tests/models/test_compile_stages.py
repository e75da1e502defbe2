"""Packages in pipeline stages: which inputs, outputs and weights each has."""

from __future__ import annotations

import itertools
import json
import re

import pytest
from package_contents import Make, inputs_of

from tcim_lite.hmm import read
from tcim_lite.models.common.errors import CompileError


@pytest.mark.parametrize(("layers", "stages", "cut"), [(4, 2, (0, 2, 4)), (5, 3, (0, 2, 4, 5)), (3, 3, (0, 1, 2, 3))])
def test_pipeline_stages(
    make_checkpoint: Make, make_package: Make, layers: int, stages: int, cut: tuple[int, ...]
) -> None:
    package = make_package(make_checkpoint(num_hidden_layers=layers), pipeline=stages, batch=2)
    shared = read(package / "qwen3.hmw")
    for stage, (first, stop) in enumerate(itertools.pairwise(cut)):
        for kind, batch, tokens, suffixes in (("prefill", 1, 8, [""]), ("decode", 2, 1, ["", "_batch_1"])):
            path = package / f"qwen3_{kind}_part{stage}.hmm"
            name = f"add_{2 * first - 1}" if stage else "input_1"
            assert inputs_of(path) == [
                (name, "input", "float16", (batch, tokens, 64)),
                *(
                    slot_input
                    for suffix in suffixes
                    for slot_input in (
                        (f"valid_length{suffix}", "input", "int32", (1,)),
                        (f"current_length{suffix}", "input", "int32", (1,)),
                        *(
                            (f"model_layers_{i}_self_attn_{kv}cache_input{suffix}", "state", "float16", (1, 2, 64, 32))
                            for i in range(first, stop)
                            for kv in "kv"
                        ),
                    )
                ),
            ]
            model = read(path)
            model.verify(shared)
            (output,) = (model.graph.values[id_] for id_ in model.graph.outputs)
            last = stop == layers
            assert output.name == ("logits" if last else f"add_{2 * stop - 1}")
            assert tuple(output.shape) == ((batch, 1, 83) if last else (batch, tokens, 64))
            blocks = {re.match(r"layers\.(\d+)\.", entry.name) for entry in model.weights} - {None}
            assert {int(match[1]) for match in blocks} == set(range(first, stop))
            message = json.loads(model.custom_msg)
            assert (message["pipeline"], message["first_block"], message["blocks"]) == (stages, first, stop - first)
    assert {path.name for path in package.glob("qwen3_*")} == {
        f"qwen3_{kind}{part}.hmm"
        for kind in ("prefill", "decode")
        for part in ("", *(f"_part{stage}" for stage in range(stages)))
    }


def test_self_contained_pipeline_stages_hold_their_own_weights_only(make_checkpoint: Make, make_package: Make) -> None:
    package = make_package(make_checkpoint(), pipeline=2, self_contained=True)
    names = [{entry.name for entry in read(package / f"qwen3_prefill_part{stage}.hmm").weights} for stage in range(2)]
    assert names[0] & names[1] == {"rope.cos", "rope.sin"}
    whole = read(package / "qwen3_prefill.hmm")
    assert names[0] | names[1] == {entry.name for entry in whole.weights}


def test_more_pipeline_stages_than_blocks(make_checkpoint: Make, make_package: Make) -> None:
    with pytest.raises(CompileError, match="--pipeline 3 is more stages than the model's 2 blocks"):
        make_package(make_checkpoint(), pipeline=3)
