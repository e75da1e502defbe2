"""`tcim-lite diff` names the op that is wrong. The whole table of planted errors: tests/faults/located.py."""

from __future__ import annotations

import re
import shutil
import subprocess
import types
from pathlib import Path

import numpy as np
import pytest
import warm_python
from llm_packages import DEMO_CHECKPOINT, LoadedPackage, compile_package
from planted import move_position, plant, wrong_weight

from tcim_lite import layers
from tcim_lite.cli import main
from tcim_lite.diff.folder import Dump
from tcim_lite.hmm import read
from tcim_lite.llm import Package
from tcim_lite.models.families import FAMILIES
from tcim_lite.own_process import module_command

SIZES = {"prefill_length": 16, "context_length": 64}
TOKENS = ["--tokens", ",".join(map(str, range(5, 26))), "--steps", "2"]  # a chunk of 16, one of 5


@pytest.fixture
def package(tiny_package) -> Path:
    return tiny_package(quant="w4a8h0_ssfp", **SIZES).folder


@pytest.fixture
def diff(tmp_path, capsys, monkeypatch):
    """Runs the command; returns its exit status and what it printed."""

    def run_warm(command: list[str], *, env: dict[str, str], **_: object) -> subprocess.CompletedProcess[str]:
        start = module_command("tcim_lite")
        assert command[: len(start)] == start
        return warm_python.run("-m", "tcim_lite", *command[len(start) :], env=env)

    monkeypatch.setattr("tcim_lite.diff.side.subprocess", types.SimpleNamespace(run=run_warm))

    def run(right: Path | str, other: Path, *options: str, calls: list[str] = TOKENS) -> tuple[int, str]:
        capsys.readouterr()
        status = main(["diff", str(right), str(other), "-o", str(tmp_path / "diff"), *calls, *options])
        printed = capsys.readouterr()
        return status, printed.out + printed.err

    return run


def assert_the_cut_shows_it(folder: Path, name: str, *, bound: float = 0.0) -> None:
    """The small model runs by itself, is small, and gives another result than the right one."""
    assert main(["dump", str(folder / "cut.hmm"), "--input", str(folder / "inputs"), "-o", str(folder / "out")]) == 0
    made, expected = Dump.open(folder / "out").array(0, name), np.load(folder / "expected.npy")
    error = np.linalg.norm(np.float64(made) - expected) / np.linalg.norm(np.float64(expected))
    assert error > bound
    assert len(read(folder / "cut.hmm").graph.ops) <= 8


def test_a_package_does_not_differ_from_itself(package, diff, tmp_path):
    status, printed = diff(package, package)
    assert (status, printed.splitlines()[0]) == (0, "bound: exact")
    assert "no op leaves its bound" in printed
    assert printed.count("tensors equal\n") == 4
    page = (tmp_path / "diff/index.html").read_text()
    assert "No op leaves its bound" in page
    assert "http" not in page


def test_one_wrong_weight_is_located(package, diff, tmp_path):
    status, printed = diff(package, plant(package, tmp_path / "bad", {"layers.0.mlp.down_proj.weight": wrong_weight}))
    assert status == 1
    assert "first beyond its bound: the op Linear that makes layers.0.mlp.out, step 0 (qwen3_prefill)" in printed
    assert_the_cut_shows_it(tmp_path / "diff/cut", "layers.0.mlp.out")
    page = (tmp_path / "diff/index.html").read_text()
    assert "the op Linear that makes" in page
    assert page.count("<svg") == 4


def test_one_wrong_position_is_located(package, diff, tmp_path):
    status, printed = diff(package, move_position(package, tmp_path / "bad", "layers.0.attn.q"))
    assert (status, "the op Rope that makes layers.0.attn.q, step 0" in printed) == (1, True), printed
    assert_the_cut_shows_it(tmp_path / "diff/cut", "layers.0.attn.q")


@pytest.mark.slow
def test_of_several_wrong_ops_the_first_is_named(package, diff, tmp_path):
    weights = [entry.name for path in package.glob("*decode.hmm") for entry in read(path).weights]
    swap = {name: name.replace("layers.0.", "layers.9.").replace("layers.1.", "layers.0.") for name in weights}
    swap = {name: other.replace("layers.9.", "layers.1.") for name, other in swap.items() if other != name}
    status, printed = diff(package, plant(package, tmp_path / "bad", {}, swap))
    assert (status, "the op Linear that makes layers.0.attn.qkv, step 0" in printed) == (1, True), printed


@pytest.mark.slow
def test_two_quantisations_are_within_their_bounds_and_an_error_is_not(demo_package, diff, tmp_path):
    eight, four = (demo_package(quant).folder for quant in ("w8a8h1_sefp", "w4a8h0_ssfp"))
    status, printed = diff(eight, four)
    assert (status, printed.splitlines()[0]) == (0, "bound: formats"), printed
    assert "nearest to its bound" in printed
    names = [f"layers.{layer}.self_attn.o_proj.weight" for layer in (1, 2)]
    swapped = plant(four, tmp_path / "bad", {}, dict(zip(names, reversed(names), strict=True)))
    status, printed = diff(eight, swapped)
    assert (status, "the op Linear that makes layers.1.attn.out, step 0" in printed) == (1, True), printed
    assert_the_cut_shows_it(tmp_path / "diff/cut", "layers.1.attn.out", bound=0.5)


@pytest.mark.oracle
def test_a_package_against_transformers(demo_package, diff, tmp_path):
    pytest.importorskip("torch", reason="the oracle needs torch: pip install 'tcim-lite[test]'")
    pytest.importorskip("transformers", reason="the oracle needs transformers")
    for quant in ("float32", "w4a8h0_ssfp"):
        status, printed = diff(f"hf:{DEMO_CHECKPOINT}", demo_package(quant).folder)
        assert (status, printed.splitlines()[0]) == (0, "bound: formats"), printed
    wrong = move_position(demo_package("w4a8h0_ssfp").folder, tmp_path / "bad", "layers.2.attn.q")
    status, printed = diff(f"hf:{DEMO_CHECKPOINT}", wrong)
    assert (status, "the op Rope that makes layers.2.attn.q, step 0" in printed) == (1, True), printed


@pytest.mark.parametrize("family", ["granite", "gpt_oss"])
def test_factors_and_windows_of_transformers_are_those_of_packages(diff, tmp_path, family):
    """Factors that packages have in other numbers; a window of 10 tokens, whose caches transformers would cut."""
    pytest.importorskip("torch", reason="the oracle needs torch: pip install 'tcim-lite[test]'")
    pytest.importorskip("transformers", reason="the oracle needs transformers")
    from oracle import random_model

    random_model({**FAMILIES[family].tiny}, family).save_pretrained(tmp_path / "hf")
    package = compile_package(tmp_path / "hf", tmp_path / "out", quant="float32", **SIZES)
    status, printed = diff(f"hf:{tmp_path / 'hf'}", package.folder)
    assert (status, "no op leaves its bound" in printed) == (0, True), printed


@pytest.mark.oracle
def test_weights_that_transformers_would_draw_are_refused(demo_package, tmp_path, capsys):
    pytest.importorskip("torch", reason="the oracle needs torch: pip install 'tcim-lite[test]'")
    pytest.importorskip("transformers", reason="the oracle needs transformers")
    from safetensors.torch import load_file, save_file

    shutil.copyfile(DEMO_CHECKPOINT / "config.json", tmp_path / "config.json")
    tensors = load_file(DEMO_CHECKPOINT / "model.safetensors")
    tensors["model.layers.1.mlp.other.weight"] = tensors.pop("model.layers.1.mlp.up_proj.weight")
    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    folder = demo_package("float32").folder
    assert main(["diff", f"hf:{tmp_path}", str(folder), "-o", str(tmp_path / "d"), "--tokens", "3,4,5"]) == 2
    message = "transformers finds no model.layers.1.mlp.up_proj.weight in it (1 such tensors)"
    assert message in capsys.readouterr().err


@pytest.mark.oracle
def test_without_a_class_in_transformers_another_oracle_is_named(demo_package, tmp_path, capsys):
    pytest.importorskip("transformers", reason="the oracle needs transformers")
    (tmp_path / "config.json").write_text('{"model_type": "bailing_moe_v2"}')
    folder = demo_package("float32").folder
    assert main(["diff", f"hf:{tmp_path}", str(folder), "-o", str(tmp_path / "d"), "--tokens", "3,4,5"]) == 2
    assert re.search("bailing_moe_v2.*compare with a package of --quant float32 instead", capsys.readouterr().err)


@pytest.mark.oracle
@pytest.mark.parametrize("family", ["qwen3_vl", "qwen2_5_vl"])
def test_text_of_a_vision_language_model_against_transformers(diff, tmp_path, family):
    pytest.importorskip("torch", reason="the oracle needs torch: pip install 'tcim-lite[test]'")
    pytest.importorskip("transformers", reason="the oracle needs transformers")
    from vision_language import random_model

    random_model(family).save_pretrained(tmp_path / "hf")
    package = compile_package(tmp_path / "hf", tmp_path / "out", quant="w4a8h0_ssfp", **SIZES)
    status, printed = diff(f"hf:{tmp_path / 'hf'}", package.folder)
    assert (status, "no op leaves its bound" in printed) == (0, True), printed
    moved = {"rope.cos": lambda entry, data: np.roll(data.reshape(entry.shape[0], -1), -1, axis=0)}  # by one position
    wrong = plant(package.folder, tmp_path / "bad", moved)
    status, printed = diff(f"hf:{tmp_path / 'hf'}", wrong)
    found = re.search(r"Rope, between which A shows no values, that makes layers\.0\.attn\.[qk], step 0", printed)
    assert (status, bool(found)) == (1, True), printed


@pytest.mark.slow
def test_sides_may_differ_in_their_environment(package, diff):
    status, printed = diff(package, package, "--env-b", "TCIM_LITE_ISA=ref", "--env-b", "TCIM_LITE_THREADS=1")
    assert status == 0, printed
    status, printed = diff(package, package, "--env-b", "TCIM_LITE_NUMERICS=hidden_exponent")
    assert (status, "the op Linear that makes layers.0.attn.qkv" in printed) == (1, True), printed


@pytest.mark.slow
def test_calls_that_differ_are_told_from_ops(package, diff, tmp_path):
    other = tmp_path / "other"
    shutil.copytree(package, other)
    (table,) = (other / "hmquant").glob("*.bin")
    data = np.fromfile(table, np.float16)
    data.reshape(331, -1)[12] *= 2
    data.tofile(table)
    (other / "hmquant/quant_embedding.pt").unlink(missing_ok=True)
    status, printed = diff(package, other)
    assert status == 0
    assert "the calls differ, not the ops: step 0 input_1" in printed
    assert "no op leaves its bound" in printed


@pytest.mark.slow
def test_two_graphs_are_compared_on_given_inputs(package, diff, tmp_path):
    wrong = plant(package, tmp_path / "bad", {"layers.1.mlp.gate_up.weight": wrong_weight})
    dumped = ["dump", str(package), "-o", str(tmp_path / "d"), *TOKENS, "--taps", "none"]
    assert main(dumped) == 0
    graphs = [Package.open(folder).prefill_path for folder in (package, wrong)]
    status, printed = diff(*graphs, calls=["--input", str(tmp_path / "d/step_0")])
    assert (status, "the op Linear that makes layers.1.mlp.gate_up, step 0" in printed) == (1, True), printed


@pytest.mark.slow
def test_the_calls_may_be_those_of_a_recording(package, diff, tmp_path):
    """A program that decodes two sequences in one cache, one after the other: the caches before each run count."""
    recording = tmp_path / "run.tcimrec"
    layers.enable("record", file=recording, data="inputs")
    try:
        loaded = LoadedPackage(Package.open(package))
        for tokens in (range(5, 26), range(40, 47)):
            loaded.prefill(list(tokens))
            loaded.decode(3, len(tokens))
        del loaded
    finally:
        layers.disable("record")
    calls = ["--recording", str(recording)]
    status, printed = diff(package, package, calls=calls)
    assert (status, printed.count("tensors equal\n")) == (0, 5), printed
    wrong = plant(package, tmp_path / "bad", {"layers.1.self_attn.k_norm.weight": wrong_weight})
    status, printed = diff(package, wrong, calls=calls)
    assert (status, "the op RMSNorm that makes layers.1.attn.k_norm, step 0" in printed) == (1, True), printed
    assert_the_cut_shows_it(tmp_path / "diff/cut", "layers.1.attn.k_norm")
    status, printed = diff(package, package, calls=["--recording", str(package / "qwen3.hmw")])
    assert (status, "recording" in printed) == (2, True), printed


def test_runs_of_different_steps_are_refused(tiny_package, package, diff):
    other = tiny_package(quant="w4a8h0_ssfp", prefill_length=32, context_length=64).folder
    status, printed = diff(package, other)
    assert status == 2
    assert "the runs have different steps: in step 0 A runs qwen3_prefill on 16 tokens after 0, B runs" in printed
    assert "on 21 tokens after 0; compare packages with the same --prefill-length" in printed
    status, printed = diff(package, other, calls=["--tokens", "5,6,7", "--steps", "1"])  # one chunk for both
    assert "different steps" not in printed


def test_what_cannot_be_compared_says_why(package, diff, tmp_path):
    graph = Package.open(package).prefill_path
    for right, other, calls in ((package, graph, TOKENS), (graph, graph, []), (package, package, ["--input", "x"])):
        status, printed = diff(right, other, calls=calls)
        assert (status, "give two packages and --prompt or --tokens, or two .hmm files" in printed) == (2, True)
    status, printed = diff(package, package, "--env-b", "nothing")
    assert (status, "--env-b 'nothing': expected NAME=VALUE" in printed) == (2, True)
    status, printed = diff(package, package, "--env-b", "TCIM_LITE_ISA=none")
    assert (status, "TCIM_LITE_ISA=none tcim-lite dump" in printed) == (2, True), printed
    status, printed = diff(tmp_path, package)
    assert (status, "no compiled package" in printed) == (2, True)
