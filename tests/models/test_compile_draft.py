"""Speculative pairs: a draft model beside the target."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tcim_lite.hmm import read
from tcim_lite.models.common.errors import CompileError
from tcim_lite.models.compiler import CompileOptions, compile_checkpoint

Make = Callable[..., Path]


def files_of(folder: Path) -> set[str]:
    found = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    return {file for file in found if not file.endswith((".pt", ".json"))}


PAIR = {
    *(f"qwen3_{graph}.hmm" for graph in ("prefill", "decode", "verify", "prefill_draft", "decode_draft")),
    *("qwen3.hmw", "qwen3_draft.hmw"),
    *(f"hmquant/quant_embedding{role}.bin" for role in ("", "_draft", "_target")),
    *(f"{role}/hmquant/quant_embedding.bin" for role in ("draft", "target")),
}


def test_draft_of_another_checkpoint(make_checkpoint: Make, make_package: Make) -> None:
    draft = make_checkpoint(hidden_size=128, num_hidden_layers=1)
    package = make_package(make_checkpoint(), draft=draft, draft_quant="w8a8h1_sefp", verify_length=4, batch=2)
    assert files_of(package) == PAIR
    shared = read(package / "qwen3_draft.hmw")
    for stage, tokens in (("prefill", 8), ("decode", 1)):
        model = read(package / f"qwen3_{stage}_draft.hmm")
        model.verify(shared)
        values = [model.graph.values[id_] for id_ in model.graph.inputs]
        assert [(value.name, tuple(value.shape)) for value in values] == [
            ("input_1", (1, tokens, 128)),
            *(("valid_length", (1,)), ("current_length", (1,))),
            *((f"model_layers_0_self_attn_{which}cache_input", (1, 2, 64, 32)) for which in "kv"),
        ]
        message = json.loads(model.custom_msg)
        assert (message["quant"], message["hidden_size"], message["batch"]) == ("w8a8h1_sefp", 128, 1)
    tables = {
        role: np.fromfile(package / f"hmquant/quant_embedding{role}.bin", np.float16)
        for role in ("", "_draft", "_target")
    }
    assert tables[""].tobytes() == tables["_target"].tobytes()
    assert (tables[""].size, tables["_draft"].size) == (83 * 64, 83 * 128)
    for role in ("draft", "target"):  # the defaults of the vendor's demo
        assert np.fromfile(package / role / "hmquant/quant_embedding.bin", np.float16).tobytes() == (
            tables[f"_{role}"].tobytes()
        )


def test_the_first_blocks_of_the_target_are_a_draft(make_checkpoint: Make, make_package: Make) -> None:
    package = make_package(make_checkpoint(), draft_layers=1)
    assert files_of(package) == PAIR
    target, draft = read(package / "qwen3.hmw"), read(package / "qwen3_draft.hmw")
    assert {entry.hash for entry in draft.weights} < {entry.hash for entry in target.weights}
    names = {entry.name for entry in target.weights} - {entry.name for entry in draft.weights}
    assert names == {entry.name for entry in target.weights if entry.name.startswith("layers.1.")}
    verify = read(package / "qwen3_verify.hmm").graph
    assert tuple(verify.values[verify.outputs[0]].shape) == (1, 5, 83)
    tables = [(package / f"hmquant/quant_embedding{role}.bin").read_bytes() for role in ("", "_draft", "_target")]
    assert len(set(tables)) == 1


def test_draft_in_another_precision(make_checkpoint: Make, make_package: Make) -> None:
    package = make_package(make_checkpoint(), quant="float32", draft_quant="w4a8h0_ssfp", verify_length=3)
    formats = {entry.format for entry in read(package / "qwen3_draft.hmw").weights}
    assert formats == {"dense", "linear_w4", "linear_w8"}
    sizes = [(package / f"hmquant/quant_embedding{role}.bin").stat().st_size for role in ("", "_draft")]
    assert sizes == [83 * 64 * 4, 83 * 64 * 2]


def test_a_pair_for_several_devices(make_checkpoint: Make, make_package: Make) -> None:
    package = make_package(make_checkpoint(), draft_layers=1, ndevice=2)
    several = {f"qwen3_{graph}.hmms" for graph in ("prefill", "decode", "verify", "prefill_draft", "decode_draft")}
    assert files_of(package) == PAIR | several
    for stage in ("prefill", "decode"):
        model = read(package / f"qwen3_{stage}_draft.hmms")
        model.verify(read(package / "qwen3_draft.hmw"))
        assert (len(model.graphs), json.loads(model.custom_msg)["ndevice"]) == (2, 2)


def test_a_draft_that_cannot_be_cut_is_named(make_checkpoint: Make, make_package: Make) -> None:
    draft = make_checkpoint(num_key_value_heads=1)
    with pytest.raises(CompileError, match=f"{re.escape(str(draft))}: --ndevice 2 does not divide the model's 1 KV"):
        make_package(make_checkpoint(), draft=draft, ndevice=2)


@pytest.mark.oracle
def test_embeddings_of_a_pair_load_with_torch(make_checkpoint: Make, make_package: Make) -> None:
    torch = pytest.importorskip("torch", reason="it is what reads the .pt files")
    package = make_package(make_checkpoint(), draft=make_checkpoint(hidden_size=128))
    shapes = {
        file: tuple(torch.load(package / file, map_location="cpu")["weight"].shape)
        for role in ("draft", "target")
        for file in (f"hmquant/quant_embedding_{role}.pt", f"{role}/hmquant/quant_embedding.pt")
    }
    assert list(shapes.values()) == [(83, 128)] * 2 + [(83, 64)] * 2


def test_compiling_again_without_a_draft_takes_it_away(make_checkpoint: Make, tmp_path: Path) -> None:
    options = {"checkpoint": make_checkpoint(), "output": tmp_path / "out", "context_length": 256}
    compile_checkpoint(CompileOptions(**options, draft_layers=2, ndevice=2))
    for stage in ("prefill", "decode"):  # as earlier versions named them
        shutil.copy(tmp_path / f"out/qwen3_{stage}_draft.hmm", tmp_path / f"out/qwen3_draft_{stage}.hmm")
    compile_checkpoint(CompileOptions(**options))
    kept = {"qwen3_prefill.hmm", "qwen3_decode.hmm", "qwen3.hmw", "hmquant/quant_embedding.bin"}
    assert files_of(tmp_path / "out") == kept


def test_an_embedding_of_the_vendor_is_kept_where_there_is_no_pair(make_checkpoint: Make, tmp_path: Path) -> None:
    theirs = tmp_path / "out/draft/hmquant/quant_embedding.pt"
    theirs.parent.mkdir(parents=True)
    theirs.touch()
    compile_checkpoint(CompileOptions(checkpoint=make_checkpoint(), output=tmp_path / "out", context_length=256))
    assert theirs.exists()


def test_a_file_in_the_place_of_a_folder_is_refused_before_anything_moves(
    make_checkpoint: Make, tmp_path: Path
) -> None:
    options = {"checkpoint": make_checkpoint(), "output": tmp_path / "out", "context_length": 256}
    (tmp_path / "out").mkdir()
    (tmp_path / "out/draft").touch()
    with pytest.raises(CompileError, match=r"cannot write into .*out/draft: it is no folder"):
        compile_checkpoint(CompileOptions(**options, draft_layers=1))
    assert files_of(tmp_path / "out") == {"draft"}
    compile_checkpoint(CompileOptions(**options))


def test_a_draft_with_another_vocabulary_is_refused(make_checkpoint: Make, make_package: Make) -> None:
    with pytest.raises(CompileError, match=r"has vocab_size=97, the target .* 83"):
        make_package(make_checkpoint(), draft=make_checkpoint(vocab_size=97))
