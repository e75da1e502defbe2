"""`tcim-lite dump`: tensors of a run under the names of golden files."""

from __future__ import annotations

import json
import os
import re
import resource

import numpy as np
import pytest
from graph_maker import GraphMaker
from llm_packages import LoadedPackage

import tcim_lite.runtime as tcim
from tcim_lite import layers
from tcim_lite.cli import main
from tcim_lite.diff.folder import Dump, DumpWriter
from tcim_lite.errors import HmmFormatError

SIZES = {"prefill_length": 16, "context_length": 64}
TOKENS = list(range(5, 25))  # a chunk of 16 and one of 4


@pytest.fixture
def package(tiny_package):
    return tiny_package(quant="w4a8h0_ssfp", **SIZES)


def dump(package, folder, *options: str) -> Dump:
    tokens = ",".join(map(str, TOKENS))
    command = ["dump", str(package.folder), "-o", str(folder), "--tokens", tokens, "--steps", "2", *options]
    assert main(command) == 0
    return Dump.open(folder)


def test_a_dump_holds_what_the_run_computes(package, tmp_path):
    dumped = dump(package, tmp_path / "d")
    assert [(step.graph, step.valid, step.current) for step in dumped.steps] == [
        ("qwen3_prefill", 0, 16),
        ("qwen3_prefill", 16, 4),
        ("qwen3_decode", 20, 1),
        ("qwen3_decode", 21, 1),
    ]
    loaded = LoadedPackage(package)
    logits = [loaded.prefill(TOKENS)]
    for position, token in enumerate(dumped.source["answer"], 20):
        assert token == logits[-1].argmax()  # greedy
        logits.append(loaded.decode(token, position))
    for step, expected in zip((1, 2, 3), logits, strict=True):
        np.testing.assert_array_equal(dumped.array(step, "logits").reshape(-1), expected)
    keys = loaded.caches()[0]
    rows = np.concatenate([dumped.array(step, "layers.0.attn.k_cache") for step in range(4)], axis=2)
    np.testing.assert_array_equal(rows, keys[:, :, :22])


def test_files_have_golden_names(package, tmp_path):
    folder = tmp_path / "d"
    dump(package, folder, "--taps", "layers.1.*", "--only-step", "2")
    step = folder / "step_0"
    files = {str(path.relative_to(step)) for path in step.rglob("*.npy")}
    assert {"hmquant_qwen3_decode_input_1_input.npy", "hmquant_qwen3_decode_logits_output.npy"} < files
    assert "hmquant_qwen3_decode_with_act/layers.1.attn.q_norm.npy" in files
    assert not (folder / "step_1").exists()


def test_one_graph_runs_on_golden_files(package, tmp_path, capsys):
    dumped = dump(package, tmp_path / "d", "--taps", "*")
    command = ["dump", str(package.prefill_path), "-o", str(tmp_path / "again"), "--taps", "*"]
    assert main([*command, "--input", str(tmp_path / "d/step_0")]) == 0
    again = Dump.open(tmp_path / "again")
    assert list(again.steps[0].tensors) == list(dumped.steps[0].tensors)
    for name in again.steps[0].tensors:
        np.testing.assert_array_equal(again.array(0, name), dumped.array(0, name))
    capsys.readouterr()
    assert main([*command, "--input", f"input_1={tmp_path}/d/step_0/hmquant_qwen3_prefill_input_1_input.npy"]) == 2
    assert "no file for the inputs valid_length, current_length" in capsys.readouterr().err
    for given in ([], ["--input", str(tmp_path / "d/step_0")]):
        assert main([*command, *given, "--input", f"nothing={tmp_path}"]) == 2
        assert "no input is named nothing; `tcim-lite inspect" in capsys.readouterr().err
    for option in (["--tokens", "3"], ["--only-step", "0"], ["--steps", "2"], ["--answer", "3"], ["--prompt", "a"]):
        assert main([*command, "--input", str(tmp_path / "d/step_0"), *option]) == 2
        assert f"{option[0]} is for packages; a .hmm runs once" in capsys.readouterr().err
    os.mkfifo(tmp_path / "pipe.npy")
    assert main([*command, "--input", f"input_1={tmp_path}/pipe.npy"]) == 2
    assert "there is no such file, or it is no regular file" in capsys.readouterr().err


def test_a_dump_replaces_an_earlier_one_and_nothing_else(package, tmp_path, capsys):
    folder = tmp_path / "d"
    dump(package, folder, "--taps", "*")
    (folder / "notes.txt").write_text("mine")
    dumped = dump(package, folder, "--only-step", "0")
    listed = {file for step in dumped.steps for _, file in step.tensors.values()}
    assert {str(path.relative_to(folder)) for path in folder.rglob("*.npy")} == listed
    assert {path.name for path in folder.iterdir()} == {"dump.json", "notes.txt", "step_0"}
    again = ["dump", str(package.prefill_path), "-o", str(folder), "--input", str(folder / "step_0")]
    assert main(again) == 0  # what it reads is not gone before
    (folder / "dump.json").unlink()
    capsys.readouterr()
    assert main(again) == 2
    assert "step_0: is of no whole dump" in capsys.readouterr().err
    assert any((folder / "step_0").iterdir())


def test_tensors_of_one_golden_name_are_refused(tmp_path, capsys):
    maker, model = GraphMaker("g", "float32"), tmp_path / "g.hmm"
    y = maker.op("Add", [maker.input(name, (2,)) for name in ("x/1", "x:1")], "y", (2,))
    model.write_bytes(maker.file(y, maker.op("Relu", [y], "z", (2,))))
    np.save(tmp_path / "x.npy", np.ones(2, np.float32))
    given = [part for name in ("x/1", "x:1") for part in ("--input", f"{name}={tmp_path}/x.npy")]
    for command in (["dump", str(model), "-o", str(tmp_path / "d"), *given], ["golden", str(model), str(tmp_path)]):
        assert main(command) == 2
        assert "the tensors 'x/1' and 'x:1' have one golden name, 'x_1'" in capsys.readouterr().err


def test_a_dump_of_nothing_is_an_error(package, tmp_path, capsys):
    command = ["dump", str(package.folder), "-o", str(tmp_path / "d"), "--tokens", "3", "--steps", "2"]
    for number in ("3", "-1"):
        assert main([*command, "--only-step", number]) == 2
        assert f"--only-step {number}: there are 3 steps, the first is 0" in capsys.readouterr().err
    recording = tmp_path / "loads.tcimrec"
    layers.enable("record", file=recording)
    tcim.load(package.prefill_path)
    layers.disable("record")
    command = ["dump", str(package.folder), "-o", str(tmp_path / "d"), "--recording", str(recording)]
    assert main(command) == 2
    assert "no model of it runs" in capsys.readouterr().err


def test_a_dump_that_cannot_be_written_is_named_and_leaves_nothing(package, tmp_path, capsys):
    command = ["dump", str(package.folder), "--tokens", "3", "--steps", "2", "-o"]
    (tmp_path / "file").write_text("mine")
    assert main([*command, str(tmp_path / "file")]) == 2
    assert "file: there is a file or a broken link; give a folder" in capsys.readouterr().err
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1024, hard))
    try:
        assert main([*command, str(tmp_path / "d")]) == 2
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert re.search(r"error: \S+/d/step_0/hmquant_\S+.npy: ", capsys.readouterr().err)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_an_interrupted_dump_does_not_stand_in_the_way_of_the_next(package, tmp_path, monkeypatch):
    def interrupted(self: DumpWriter, **_: object) -> None:
        raise KeyboardInterrupt

    command = ["dump", str(package.folder), "--tokens", "3", "-o", str(tmp_path)]
    with monkeypatch.context() as patch:
        patch.setattr(DumpWriter, "close", interrupted)
        with pytest.raises(KeyboardInterrupt):
            main(command)
    assert main(command) == 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": 9}, "format 9, expected 1"),
        ({"steps": [{}]}, "is not a manifest"),
        ({"steps": 3}, "is not a manifest"),
        (
            {"steps": [dict(graph="g", file="f", valid=0, current=0, tensors={"x": ["value", "../../etc/passwd"]})]},
            "is not a manifest",
        ),
        ({"steps": [dict(graph="g", file="f", valid=0, current=0, tensors={}, altered=[1])]}, "is not a manifest"),
    ],
)
def test_a_manifest_is_not_trusted(package, tmp_path, change, message):
    dump(package, tmp_path, "--only-step", "3")
    manifest = tmp_path / "dump.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | change))
    with pytest.raises(HmmFormatError, match=message):
        Dump.open(tmp_path)


def test_what_cannot_be_dumped_says_why(package, tiny_package, tmp_path, capsys):
    assert main(["dump", str(package.folder), "-o", str(tmp_path / "d"), "--tokens", "a"]) == 2
    assert "--tokens 'a': expected token ids" in capsys.readouterr().err
    for options, words in (
        (["--tokens", "3,99999"], "token 99999 is outside the package's vocabulary of"),
        (["--tokens", "3", "--answer", "99999"], "token 99999 is outside"),
        (["--tokens", ",".join(["3"] * 63), "--steps", "2"], "63 tokens and 2 steps, the context holds 64"),
        (["--tokens", "3", "--steps", "-1"], "-1 decode steps; expected 0 or more"),
    ):
        assert main(["dump", str(package.folder), "-o", str(tmp_path / "d"), *options]) == 2
        assert words in capsys.readouterr().err
    batch = tiny_package(quant="w4a8h0_ssfp", batch=3, **SIZES)
    assert main(["dump", str(batch.folder), "-o", str(tmp_path / "d")]) == 2
    assert "compiled without --batch; or dump one .hmm with --input" in capsys.readouterr().err
    assert main(["dump", str(tmp_path), "-o", str(tmp_path / "d")]) == 2
    assert "no compiled package" in capsys.readouterr().err
    assert main(["dump", str(tmp_path / "none"), "-o", str(tmp_path / "d"), "--prompt", "a"]) == 2
    assert "none: there is no such file or folder; give the folder of a package, or a .hmm" in capsys.readouterr().err
    for graph in batch.folder.glob("*.hm[mw]"):
        (tmp_path / graph.name).write_bytes(graph.read_bytes()[:3000])
    assert main(["dump", str(tmp_path), "-o", str(tmp_path / "d")]) == 2
    assert capsys.readouterr().err.endswith("; copy it again\n")
    with pytest.raises(HmmFormatError, match=r"has no dump\.json"):
        Dump.open(tmp_path / "none")
