"""What a folder is taken for, by the names of its files."""

from pathlib import Path

import pytest

from tcim_lite.bench import measure_package
from tcim_lite.errors import ArgumentError
from tcim_lite.llm import Package


@pytest.fixture
def folder(tmp_path):
    def make(*names: str) -> Path:
        for name in names:
            (tmp_path / name).touch()
        return tmp_path

    return make


@pytest.mark.parametrize("kind", ["hmm", "hmms"])
def test_a_package_is_a_prefill_and_a_decode_graph_for_one_device_or_several(folder, kind):
    assert Package.open(folder(f"m_prefill.{kind}", f"m_decode.{kind}", "other_prefill.hmm")).name == "m"


@pytest.mark.parametrize("draft", ["m_{}_draft.hmm", "m_draft_{}.hmm"], ids=["as the vendor", "of earlier versions"])
def test_the_draft_belongs_to_its_target(folder, draft):
    path = folder(*(name.format(stage) for name in ("m_{}.hmm", draft) for stage in ("prefill", "decode")))
    package = Package.open(path)
    assert (package.name, package.draft) == ("m", Package(path, "m_draft"))
    assert Package.open(path, "m_draft") == package.draft
    assert package.draft.prefill_path == path / draft.format("prefill")
    assert package.draft.decode_path == path / draft.format("decode")


def test_half_a_draft_is_none(folder):
    package = Package.open(folder("m_prefill.hmm", "m_decode.hmm", "m_prefill_draft.hmm"))
    with pytest.raises(FileNotFoundError, match=r"m_decode_draft\.hmm: .* --name m --draft"):
        _ = package.draft
    with pytest.raises(FileNotFoundError, match="no compiled package m_draft"):
        Package.open(package.folder, "m_draft")


def test_a_folder_of_other_graphs_is_told_what_it_holds(folder):
    with pytest.raises(FileNotFoundError, match=r"<name>_decode\.hmm, found detector\.hmm; make one"):
        Package.open(folder("detector.hmm"))
    with pytest.raises(FileNotFoundError, match=r"package b in .*, found a_decode\.hmm, a_prefill\.hmm"):
        Package.open(folder("a_prefill.hmm", "a_decode.hmm"), "b")
    with pytest.raises(FileNotFoundError, match=r"c_prefill alone is of a forced aligner or a robot, run it with"):
        Package.open(folder("c_encode.hmm", "c_prefill.hmm"), "c")


def test_one_of_several_packages_must_be_named(folder):
    path = folder(*(f"{name}_{stage}.hmm" for name in ("a", "b") for stage in ("prefill", "decode")))
    with pytest.raises(ValueError, match="several packages \\(a, b\\)"):
        Package.open(path)
    with pytest.raises(ArgumentError, match=r"say which with --name, in Python name=$"):
        measure_package(path)
    assert Package.open(path, "b").prefill_path == path / "b_prefill.hmm"


@pytest.mark.parametrize(
    ("kind", "option"),
    [
        ("verify.hmm", "--verify-length"),
        ("decode_draft.hmm", "--draft"),
        ("prefill_part0.hmm", "--pipeline"),
        ("decode.hmms", "--ndevice"),
    ],
)
def test_a_graph_that_is_missing_names_the_option_that_makes_it(folder, kind, option):
    package = Package.open(folder("m_prefill.hmm", "m_decode.hmm"))
    with pytest.raises(FileNotFoundError, match=f"m_{kind}: .*{option}"):
        package.graph(kind)


def test_stages_come_in_order_and_without_a_gap(folder):
    path = folder("m[1]_prefill.hmm", "m[1]_decode.hmm", *(f"m[1]_prefill_part{i}.hmm" for i in range(12)))
    package = Package.open(path)
    assert package.parts("prefill") == [path / f"m[1]_prefill_part{i}.hmm" for i in range(12)]
    (path / "m[1]_prefill_part3.hmm").unlink()
    with pytest.raises(FileNotFoundError, match="part3"):
        package.parts("prefill")
