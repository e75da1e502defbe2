"""Ctrl-C in examples and commands: the line "interrupted", status 130, and an end within half a second."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import warm_python
from llm_packages import ROOT
from warm_python import ISOLATED

pytestmark = pytest.mark.slow

# A program, and what it prints before it is interrupted; None: it is given some seconds to get into its work.
EXAMPLES = {
    "qwen3_chat": ((), "loaded in"),
    "qwen3_multibatch": (("--batch", "2"), "requests"),
    "qwen3_prefix_cache": ((), "prefilled, first"),
    "qwen3_speculative": (("--draft-layers", "2"), ">"),
    "qwen3_tensor_parallel": (("--ndevice", "2"), "loaded in"),
    "qwen3_pipeline": (("--pipeline", "3"), "stage 2"),
}
QUESTIONS = ["--question", "Repeat after me: one two three four five six seven eight nine ten"] * 400
# All are encoded before the first is answered, so they are few, and each answer goes on until its context is full.
BATCH = ["--question", "Repeat after me: " + " ".join(["one"] * 20)] * 40


def interrupt(command, until, *, library="", after=0.3, **environment):
    """Starts a program, waits until it has a library and printed a text, then `after` seconds, and interrupts it.

    Returns its status, what it printed as errors, and the seconds that it still took.
    """
    environment = os.environ | {"TCIM_LITE_DEVICE_NUM": "3", "PYTHONUNBUFFERED": "1"} | environment
    process = warm_python.Popen(*command, env=environment, start_new_session=True)
    try:
        while process.poll() is None and library not in Path(f"/proc/{process.pid}/maps").read_text():
            time.sleep(0.01)
        if until is not None:
            for line in process.stdout:
                if until in line:
                    break
        time.sleep(after)
        assert process.poll() is None, process.communicate()
        start = time.monotonic()
        process.send_signal(signal.SIGINT)
        process.wait(30)
        seconds = time.monotonic() - start
        _, errors = process.communicate(timeout=30)
        return process.returncode, errors, seconds
    finally:
        # Of a session of its own: whatever a program started is in its group.
        left = subprocess.run(["pgrep", "-g", str(process.pid)], capture_output=True, text=True).stdout.split()
        for pid in left:
            os.kill(int(pid), signal.SIGKILL)
        process.close()


def check(*arguments, **keywords):
    """Three times: half a second is for the program, not for what else a machine does."""
    seconds = []
    for _ in range(3):
        status, errors, spent = interrupt(*arguments, **keywords)
        assert (status, errors) == (130, "interrupted\n")
        seconds.append(spent)
        if spent < 0.5:
            return
    pytest.fail(f"ended after {seconds} s")


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_that_works(compile_demo, example):
    options, until = EXAMPLES[example]
    folder = compile_demo(*options).folder
    questions = BATCH if example == "qwen3_multibatch" else QUESTIONS
    check([ROOT / "examples" / f"{example}.py", folder, *questions], until)


@pytest.mark.parametrize("example", ["qwen3_chat", "qwen3_tensor_parallel"])  # stages: test_pipeline.py
def test_an_example_that_waits_for_a_question(compile_demo, example):
    options, until = EXAMPLES[example]
    check([ROOT / "examples" / f"{example}.py", compile_demo(*options).folder], until, after=0.5)


@pytest.mark.parametrize("after", [0.4, 2.5])
def test_bench(compile_demo, after):
    """Rates of memory and of arithmetic are measured in calls of seconds, which listen to nothing."""
    # Before it is loaded Python itself reports interrupts.
    check(["-m", "tcim_lite", "bench", compile_demo().folder], None, library="/_core", after=after)


def test_conformance():
    check(["-m", "tcim_lite", "conformance"], "cases", after=1.0)


def test_compile(tmp_path):
    checkpoint = json.loads((ROOT / "examples" / "demo_checkpoint" / "config.json").read_text())
    checkpoint |= {"hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 24, "vocab_size": 50000}
    checkpoint["layer_types"] = ["full_attention"] * 24
    (tmp_path / "in").mkdir()
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(ROOT / "examples" / "demo_checkpoint" / name, tmp_path / "in")
    (tmp_path / "in" / "config.json").write_text(json.dumps(checkpoint))
    command = ["-m", "tcim_lite", "compile", tmp_path / "in", "-o", tmp_path / "out", "--random-weights", "-q"]
    for _ in range(3):  # a machine that does other work may need longer than the grace to remove them
        shutil.rmtree(tmp_path / "out", ignore_errors=True)
        check(command, None, after=1.5)
        left = [path for path in (tmp_path / "out").rglob("*") if path.is_file()]
        if not left:
            return
    pytest.fail(f"temporary files were left each time, at last {left}")


def test_a_program_that_ignores_interrupts_goes_on(compile_demo):
    """As a shell starts jobs in the background."""
    with subprocess.Popen(
        [sys.executable, ISOLATED, ROOT / "examples/qwen3_chat.py", compile_demo().folder],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
    ) as process:
        assert "loaded in" in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert "42" in process.communicate("What is 12 + 30?\n", timeout=60)[0]
    assert process.returncode == 0
