"""image_streams and the pools of examples/cpp, and the two ways in which CMake finds the SDK for them."""

from __future__ import annotations

import re
import shutil
import subprocess

import numpy as np
import pytest
from cpp_programs import ROOT, UNOPTIMISED, build, facade_programs, run

import tcim_lite.runtime as tcim

pytestmark = pytest.mark.build

STRICT = {"TCIM_LITE_STRICT": "error"}  # which must find nothing


def test_the_pools_keep_their_promises(sdk, add_model):
    program = facade_programs(sdk, "pools_test") / "pools_test"
    assert run(program, add_model, env=STRICT) == "0 failures\n"


def test_the_vendors_variable_finds_an_sdk_that_was_moved(sdk, add_model, tmp_path):
    moved = tmp_path / "sdk"
    for part in ("include", "lib"):
        shutil.copytree(sdk / part, moved / part, ignore=shutil.ignore_patterns("cmake"))
    variable = {"TCIM_RUNTIME_PATH": str(moved)}
    folder = build(ROOT / "examples/cpp", tmp_path / "build", UNOPTIMISED, env=variable, targets=("image_streams",))
    assert str(moved / "lib") in run("readelf", "--dynamic", folder / "image_streams")
    assert "2 streams, 4 runs in " in run(folder / "image_streams", add_model, "2", "2", env=STRICT)


def test_many_tasks_take_few_modules_and_buffers(cpp_examples, add_model):
    printed = run(cpp_examples / "pools", add_model, "50", "2", "3", env=STRICT)
    assert printed.startswith("50 tasks on 2 modules and 3 workers gave ")
    module = tcim.load(add_model)
    output_bytes = 50 * module.get_output(module.get_output_name(0)).numpy().nbytes
    assert f" gave {output_bytes} bytes" in printed
    assert int(re.search(r"took (\d+) buffers", printed).group(1)) <= 8 * module.get_num_inputs()


def test_streams_run_at_once_and_agree_with_python(cpp_examples, add_model, tmp_path):
    module = tcim.load(add_model)
    name = module.get_input_name(0)
    info = module.get_input_info(name)
    values = np.arange(np.prod(info.shape), 0, -1).reshape(info.shape).astype(info.dtype)
    values.reshape(-1)[3] = 99
    (tmp_path / "input.bin").write_bytes(values.tobytes())
    printed = run(cpp_examples / "image_streams", add_model, "3", "20", tmp_path / "input.bin", env=STRICT)
    assert "output 0 is largest at 3, in all runs" in printed
    assert re.search(r"^3 streams, 60 runs in [\d.]+ s: [\d.]+ runs/s$", printed, re.MULTILINE)
    latencies = re.search(r"p50 ([\d.]+), p90 ([\d.]+), p99 ([\d.]+), max ([\d.]+)", printed)
    assert sorted(map(float, latencies.groups())) == [float(value) for value in latencies.groups()]


def test_streams_say_what_is_wrong(cpp_examples, add_model, tmp_path):
    (tmp_path / "short.bin").write_bytes(b"12")
    for arguments, text in (
        ([tmp_path / "none.hmm", "2", "1"], "error: stream 0: loading"),
        ([add_model, "2", "1", tmp_path / "short.bin"], "the input file has 2 bytes, expected"),
        ([add_model, "2", "1", tmp_path / "none.bin"], "cannot read"),
        ([add_model, "0"], "usage: "),
    ):
        done = subprocess.run([cpp_examples / "image_streams", *arguments], capture_output=True, text=True, timeout=60)
        assert done.returncode in (1, 2)
        assert text in done.stderr
