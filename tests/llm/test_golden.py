"""`tcim-lite golden` on a language model: steps of two graphs that share their caches."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

from tcim_lite.cli import main
from tcim_lite.diff.golden import check

TOKENS = ",".join(map(str, range(5, 25)))  # a chunk of 16 and one of 4


@pytest.fixture
def package(tiny_package):
    return tiny_package(quant="float32", prefill_length=16, context_length=64).folder


@pytest.fixture
def dumped(package, tmp_path):
    assert main(["dump", str(package), "-o", str(tmp_path / "d"), "--tokens", TOKENS, "--steps", "2"]) == 0
    return tmp_path / "d"


def test_a_dump_is_golden_for_its_own_package(package, dumped, capsys):
    assert main(["golden", str(package), str(dumped), "--cosine", "1"]) == 0
    assert "4 pass, 0 fail" in capsys.readouterr().out
    verdicts = check(package, dumped, 1)
    assert [(verdict.graph, verdict.reason) for verdict in verdicts] == [
        ("qwen3_prefill", "equal"), ("qwen3_prefill", "equal"), ("qwen3_decode", "equal"), ("qwen3_decode", "equal")
    ]  # fmt: skip


def test_caches_of_a_first_step_behind_other_tokens_must_be_there(package, dumped, tmp_path):
    (tmp_path / "later").mkdir()
    (dumped / "step_2").rename(tmp_path / "later" / "step_0")
    failed = [verdict.reason for verdict in check(package, tmp_path / "later", graphs=["qwen3_decode"])]
    assert sum("cache" in reason and reason.endswith("_input.npy is missing") for reason in failed) >= 4
    assert failed[-1] == "was not computed"


def test_a_graph_alone_does_not_go_on_from_steps_of_another(package, dumped):
    """The dump has no caches of its decode steps, which follow two of prefill."""
    for which, graphs in ((package, ["qwen3_decode"]), (package / "qwen3_decode.hmm", [])):
        verdicts = check(which, dumped, graphs=graphs)
        assert {verdict.step for verdict in verdicts} == {"step_2", "step_3"}
        assert not any(verdict.passed for verdict in verdicts)
        assert {verdict.reason for verdict in verdicts if verdict.tensor == "logits"} == {"was not computed"}
    assert [verdict.reason for verdict in check(package, dumped, graphs=["qwen3_prefill"])] == ["equal"] * 2


def test_a_graph_whose_name_begins_another_has_its_own_files_alone(package, dumped, tmp_path):
    copied = tmp_path / "copied"
    shutil.copytree(package, copied)
    shutil.copy(copied / "qwen3_prefill.hmm", copied / "qwen3.hmm")
    assert [verdict.reason[:19] for verdict in check(copied / "qwen3.hmm", dumped)] == ["has no golden files"]
    (dumped / "step_0" / "hmquant_qwen3_other_input.npy").touch()
    reasons = [verdict.reason for verdict in check(copied / "qwen3.hmm", dumped)]
    assert reasons[0] == "is of no tensor of the package"


def test_a_step_that_could_not_be_run_is_no_past(package, dumped):
    (dumped / "step_1" / "hmquant_qwen3_prefill_input_1_input.npy").unlink()
    verdicts = check(package, dumped)
    assert [verdict.passed for verdict in verdicts if verdict.step == "step_0"] == [True]
    assert not any(verdict.passed for verdict in verdicts if verdict.step != "step_0")


def test_another_token_fails(package, dumped):
    file = dumped / "step_2" / "hmquant_qwen3_decode_logits_output.npy"
    np.save(file, np.load(file)[..., ::-1])
    assert [verdict.passed for verdict in check(package, dumped)] == [True, True, False, True]


def test_graphs_that_cannot_share_caches_are_checked_one_at_a_time(tiny_package, package, dumped, capsys):
    batch = tiny_package(quant="float32", prefill_length=16, context_length=64, batch=3).folder
    assert main(["golden", str(batch), str(dumped)]) == 2
    assert "cannot share KV caches: one module has" in (said := capsys.readouterr().err)
    assert "or check one graph with --graph qwen3_prefill" in said
    assert main(["golden", str(batch), str(dumped), "--graph", "qwen3_prefill"]) == 0
