"""`tcim-lite diff -o` replaces what an earlier diff wrote, and never what it reads or what somebody else made."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tcim_lite.cli import main
from tcim_lite.diff.output import MARK, clear_output
from tcim_lite.errors import ArgumentError


@pytest.fixture
def package(tiny_package) -> Path:
    return tiny_package(quant="float32", prefill_length=16, context_length=64).folder


def test_packages_named_like_the_folders_of_a_diff_stay(package, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name in "ab":
        shutil.copytree(package, name)
    assert main(["diff", "a", "b", "-o", ".", "--tokens", "3"]) == 2
    assert "a lies in" in (said := capsys.readouterr().err)
    assert "which this diff replaces; give another folder with -o" in said
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == sorted(path.name for path in package.iterdir())


def test_the_cut_of_a_diff_may_not_be_replaced_by_one_of_it(tmp_path, package, capsys):
    (tmp_path / MARK).touch()
    cut = tmp_path / "cut"
    cut.mkdir()
    shutil.copy(package / "qwen3_prefill.hmm", cut / "cut.hmm")
    elsewhere = str(package / "qwen3_prefill.hmm")
    for given in ([str(cut / "cut.hmm")] * 2, [elsewhere, elsewhere]):
        assert main(["diff", *given, "-o", str(tmp_path), "--input", str(cut)]) == 2
        assert f"lies in {cut}" in capsys.readouterr().err
    assert (cut / "cut.hmm").is_file()


@pytest.mark.parametrize("name", ["a", "cut", "index.html"])
def test_what_no_diff_wrote_stays(tmp_path, name):
    (tmp_path / name).mkdir()
    with pytest.raises(ArgumentError, match=f"has {name}, which no diff wrote"):
        clear_output(tmp_path, [])
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_an_earlier_diff_is_replaced(tmp_path):
    out = tmp_path / "new" / "out"
    clear_output(out, [])
    for name in ("a", "kept"):
        (out / name / "run").mkdir(parents=True)
    clear_output(out, [tmp_path / "elsewhere"])
    assert sorted(path.name for path in out.iterdir()) == ["kept", MARK]


def test_graphs_take_no_options_of_packages(package, tmp_path, capsys):
    graph = str(package / "qwen3_prefill.hmm")
    assert main(["diff", graph, graph, "-o", str(tmp_path / "d"), "--input", str(tmp_path), "--tokens", "3"]) == 2
    assert "--tokens is for packages; a .hmm runs once" in capsys.readouterr().err
    assert not (tmp_path / "d").exists()
