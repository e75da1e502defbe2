"""`tcim-lite bench`: what it prints and refuses. How fast anything is depends on the machine and is no test."""

import json
import math
from pathlib import Path

import pytest

from tcim_lite.cli import main

DEMO = Path(__file__).parent.parent / "examples" / "demo_checkpoint"


@pytest.fixture(scope="module")
def compile_demo(tmp_path_factory):
    """compile_demo("--batch", "2") -> the folder of the demo checkpoint compiled like this."""

    def compile_(*options):
        folder = tmp_path_factory.mktemp("bench")
        lengths = ("--prefill-length", "16", "--context-length", "64")
        assert main(["compile", str(DEMO), "-o", str(folder), *lengths, *options]) == 0
        return folder

    return compile_


@pytest.fixture(scope="module")
def package(compile_demo):
    return compile_demo("--verify-length", "3")


@pytest.fixture
def bench(capsys):
    """bench(folder, ...) -> exit status, standard output, standard error of the quick run."""

    def run(folder, *options):
        capsys.readouterr()
        status = main(["bench", str(folder), "--quick", *options])
        return status, *capsys.readouterr()

    return run


def test_json_has_every_graph_with_its_limit_and_the_limits_themselves(bench, package):
    status, output, _ = bench(package, "--json")
    content = json.loads(output)
    assert status == 0
    assert (content["quant"], content["context_length"], content["batch"]) == ("w4a8h0_ssfp", 64, 1)
    timings = {(timing["graph"], timing["depth"]): timing for timing in content["timings"]}
    assert set(timings) == {("prefill", 0), ("verify", 0), ("decode", 0), ("decode", 32)}
    assert [timings[key]["tokens"] for key in timings] == [16, 3, 1, 1]
    for timing in timings.values():
        assert 0 < timing["fastest"] <= timing["seconds"] <= timing["slowest"]
        assert timing["runs"] >= 5
        assert math.isclose(timing["tokens_per_s"], timing["tokens"] / timing["seconds"])
        assert timing["limited_by"] in ("read", "int8")
        assert timing["share"] > 0
    for moment in ("before", "after"):
        limits = content[moment]
        assert limits["threads"] >= 1
        assert min(limits["read"], limits["read_one"], limits["read_model"]) > 0
    assert content["load_first_s"] > 0
    assert content["load_second_s"] > 0
    assert content["machine"]


def test_weight_bytes_are_those_a_token_needs(bench, package):
    """The packed bytes of every weight but the RoPE tables, from the container itself."""
    from tcim_lite.hmm import read

    content = json.loads(bench(package, "--json")[1])
    weights = {entry.name: entry.nbytes for entry in read(package / "qwen3_decode.hmm").weights}
    assert content["weight_bytes"] == sum(weights.values()) - weights["rope.cos"] - weights["rope.sin"]


def test_the_screen_has_a_line_for_each_graph_and_fits(bench, package):
    status, output, _ = bench(package)
    lines = output.splitlines()
    assert status == 0
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 200
    starts = [line[:22].strip() for line in lines]
    for what in ("prefill 16", "verify 3", "decode at 0", "decode at 32", "load, first module", "resident memory"):
        assert what in starts


def test_a_batch_counts_the_tokens_of_all_its_slots(bench, compile_demo):
    content = json.loads(bench(compile_demo("--batch", "3"), "--json", "--depth", "20")[1])
    assert content["batch"] == 3
    assert [(t["graph"], t["depth"], t["tokens"]) for t in content["timings"]] == [
        ("prefill", 0, 16),
        ("decode", 0, 3),
        ("decode", 20, 3),
    ]


def test_a_float_package_is_held_against_fp32(bench, compile_demo):
    content = json.loads(bench(compile_demo("--quant", "float16"), "--json", "--depth", "0")[1])
    assert content["quant"] == "float16"
    assert [timing["limited_by"] for timing in content["timings"]][1:] in (["read"], ["fp32"])


def test_a_folder_without_a_package_is_refused(bench, tmp_path):
    status, output, error = bench(tmp_path)
    assert (status, output) == (2, "")
    assert f"no compiled package in {tmp_path}" in error
    assert "tcim-lite compile" in error


def test_several_packages_need_a_name(bench, package, tmp_path):
    for name in ("first", "second"):
        for stage in ("prefill", "decode"):
            (tmp_path / f"{name}_{stage}.hmm").write_bytes((package / f"qwen3_{stage}.hmm").read_bytes())
    (tmp_path / "qwen3.hmw").write_bytes((package / "qwen3.hmw").read_bytes())
    status, _, error = bench(tmp_path)
    assert status == 2
    assert "first, second" in error
    assert "--name" in error
    assert bench(tmp_path, "--name", "second", "--depth", "0")[0] == 0


@pytest.mark.parametrize("depth", ["-1", "64"])
def test_a_depth_that_leaves_no_room_is_refused(bench, package, depth):
    status, _, error = bench(package, "--depth", depth)
    assert status == 2
    assert f"--depth {depth}: expected 0 to 63" in error


def test_graphs_for_several_devices_only_are_refused(bench, compile_demo):
    status, _, error = bench(compile_demo("--ndevice", "2", "--no-single-device"))
    assert status == 2
    assert "--no-single-device" in error


def test_a_broken_file_is_refused(bench, package, tmp_path):
    for path in package.glob("qwen3*.hm*"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / "qwen3_decode.hmm").write_bytes(b"not a model")
    status, output, error = bench(tmp_path)
    assert (status, output) == (2, "")
    assert "qwen3_decode.hmm" in error
