"""`tcim-lite bench`: what it prints and refuses. How fast anything is depends on the machine and is no test."""

import contextlib
import io
import json
import math
import os
import re
from pathlib import Path

import pytest
import warm_python
from isas import cpu_has

from tcim_lite import _core, hmm
from tcim_lite.bench.device_time import device_seconds
from tcim_lite.cli import main

pytestmark = pytest.mark.slow  # whole programs

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


@pytest.fixture(scope="module")
def limits():
    """What the machine can do, for a model that reads 1 MiB; measured once, as it takes seconds on all processors."""
    return _core.machine_limits(1 << 20)


@pytest.fixture
def bench(capsys, monkeypatch, limits):
    """bench(folder, ...) -> exit status, standard output, standard error of the quick run, but for the limits."""
    monkeypatch.setattr(_core, "machine_limits", lambda _: limits)

    def run(folder, *options):
        capsys.readouterr()
        status = main(["bench", str(folder), "--quick", *options])
        return status, *capsys.readouterr()

    return run


@pytest.fixture(scope="module")
def content(package):
    """What `--json` prints."""
    with contextlib.redirect_stdout(io.StringIO()) as output:
        assert main(["bench", str(package), "--quick", "--json"]) == 0
    return json.loads(output.getvalue())


def test_json_has_every_graph_with_its_limit_and_the_limits_themselves(content):
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


OWN_INSTRUCTION = {
    "avx2": "VPMADDUBSW ymm",
    "avxvnni": "VPDPBUSD ymm",
    "avx512": "VPMADDUBSW zmm",
    "avx512vnni": "VPDPBUSD zmm",
}


@pytest.mark.parametrize("isa", OWN_INSTRUCTION)
def test_forced_kernels_are_held_against_their_own_instructions(isa):
    if not cpu_has(isa):
        pytest.skip(f"this CPU has no {isa}")
    program = "import json; from tcim_lite import _core; print(json.dumps(_core.machine_limits(0)))"
    done = warm_python.run("-c", program, env={**os.environ, "TCIM_LITE_ISA": isa})
    assert done.returncode == 0, done.stderr
    limits = json.loads(done.stdout)
    assert (limits["int8_instruction"], limits["int8_tile"]) == (OWN_INSTRUCTION[isa], 0)
    assert limits["int8"] > 0


def test_weight_bytes_are_those_a_token_needs(content, package):
    """The packed bytes of every weight but the RoPE tables, from the container itself."""
    from tcim_lite.hmm import read

    weights = {entry.name: entry.nbytes for entry in read(package / "qwen3_decode.hmm").weights}
    assert content["weight_bytes"] == sum(weights.values()) - weights["rope.cos"] - weights["rope.sin"]


def test_the_screen_has_a_line_for_each_graph_and_fits(bench, package):
    status, output, _ = bench(package)
    lines = output.splitlines()
    assert status == 0
    assert len(lines) <= 28
    assert max(map(len, lines)) <= 200
    starts = [line[:22].strip() for line in lines]
    for what in ("prefill 16", "verify 3", "decode at 0", "decode at 32", "load, first module", "resident memory"):
        assert what in starts


def test_the_steps_of_every_graph_are_timed_and_fit_into_its_runs(content):
    timings = content["timings"]
    for timing in timings:
        ops = [step["op"] for step in timing["steps"]]
        assert {"Linear", "Attention"} <= set(ops)
        assert all(step["seconds"] > 0 for step in timing["steps"])
        assert all(step["form"].split()[-1] in ("linear_w4", "linear_w8") for step in timing["steps"] if step["form"])
        assert 0 <= timing["weights_s"] <= timing["share"] * timing["seconds"] * (1 + 1e-9)
    forms = [{step["form"] for step in timing["steps"]} for timing in timings]
    assert forms[0] == forms[1] == forms[2] == forms[3]


def test_the_profile_has_a_row_for_each_kind_of_step_and_a_column_for_each_graph(bench, package):
    status, output, _ = bench(package, "--profile")
    lines = output.splitlines()
    head = next(index for index, line in enumerate(lines) if line.startswith("ms a run"))
    assert status == 0
    assert lines[head].split()[3:] == ["prefill", "16", "verify", "3", *("decode", "at", "0"), *("decode", "at", "32")]
    rows = {line.split("  ")[0]: line for line in lines[head + 1 :] if line}
    assert {"Attention", "outside of the steps"} <= set(rows)
    assert "Linear 1536 x 256 linear_w8" in rows  # the head
    assert max(map(len, lines)) <= 200


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


@pytest.fixture(scope="module")
def network(tmp_path_factory):
    """The demo classifier, w8a8h1_sefp, two images a run."""
    pytest.importorskip("onnx", reason="needs onnx")
    folder = tmp_path_factory.mktemp("network")
    model = DEMO.parent / "demo_networks" / "shapes_classifier.onnx"
    assert main(["compile", str(model), "-o", str(folder), "--batch", "2", "-q"]) == 0
    return folder


def test_a_network_is_measured_by_its_runs(bench, network):
    status, output, _ = bench(network, "--json")
    content = json.loads(output)
    assert status == 0
    assert (content["name"], content["quant"], content["batch"]) == ("shapes_classifier", "w8a8h1_sefp", 2)
    (timing,) = content["timings"]
    assert 0 < timing["fastest"] <= timing["seconds"] <= timing["slowest"]
    assert math.isclose(timing["tokens_per_s"], 2 / timing["seconds"])
    assert timing["limited_by"] in ("read", "both")
    assert timing["share"] > 0
    assert {"Conv", "Linear"} <= {step["op"] for step in timing["steps"]}
    assert content["load_s"] > 0


def test_the_screen_of_a_network_counts_inputs_and_shows_its_steps(bench, network):
    status, output, _ = bench(network / "shapes_classifier.hmm", "--profile")
    lines = output.splitlines()
    assert status == 0
    assert "inputs/s" in output
    assert "tokens/s" not in output
    assert any(line.startswith("batch 2 ") for line in lines)
    assert any(line.startswith("Conv 96 x 576 linear_w8") for line in lines)
    assert max(map(len, lines)) <= 200


def test_the_chips_time_of_a_network_is_modelled(bench, network):
    file = network / "shapes_classifier.hmm"
    (seconds,) = device_seconds([hmm.read(file)], 0)
    for path in (network, file):
        status, output, _ = bench(path, "--device-time", "--json")
        assert status == 0
        assert json.loads(output)["timings"] == [
            {"title": "batch 2", "depth": 0, "tokens": 2, "seconds": seconds, "tokens_per_s": 2 / seconds}
        ]
    status, output, _ = bench(network, "--device-time")
    assert status == 0
    assert re.search(r"^modelled +inputs/s +ms a run\nbatch 2 +[\d.]+ +[\d.]+$", output, re.M)


@pytest.mark.parametrize("quant", ["float16", "float32"])
def test_a_network_of_floats_is_named_by_its_format(bench, network, tmp_path, quant):
    model = DEMO.parent / "demo_networks" / "shapes_classifier.onnx"
    assert main(["compile", str(model), "-o", str(tmp_path), "--quant", quant, "-q"]) == 0
    assert json.loads(bench(tmp_path, "--quick", "--json")[1])["quant"] == quant


def test_what_cannot_be_measured_as_a_network_is_refused(bench, network, package, tmp_path):
    for how in ([], ["--device-time"]):
        status, _, errors = bench(network, "--depth", "3", *how)
        assert status == 2
        assert "--depth is for language models" in errors
        status, _, errors = bench(package / "qwen3_decode.hmm", *how)
        assert status == 2
        assert f"give its folder, {package}" in errors
    for name in ("a", "b"):
        (tmp_path / f"{name}.hmm").write_bytes((network / "shapes_classifier.hmm").read_bytes())
    status, _, errors = bench(tmp_path)
    assert status == 2
    assert "several networks (a, b); say which with --name" in errors
    assert bench(tmp_path, "--name", "b")[0] == 0
