"""Stages in processes: the answers of one device, and an end without hangs or orphans whatever happens."""

import os
import re
import select
import signal
from pathlib import Path

import pytest
import warm_python
from llm_packages import ROOT

pytestmark = pytest.mark.slow

OPTIONS = ("--pipeline", "3", "--prefill-length", "16", "--context-length", "128")
DEVICES = {"TCIM_LITE_DEVICE_NUM": "3"}
QUESTIONS = ["What is 12 + 30?", "Repeat after me: the quick brown fox jumps over the lazy dog"]
LONG = "Repeat after me: " + "one two three four five six seven eight nine ten " * 2


class Chat:
    """The example, waiting for questions on standard input."""

    def __init__(self, folder: Path):
        program = ROOT / "examples" / "qwen3_pipeline.py"
        self.process = warm_python.Popen(program, folder, env=os.environ | DEVICES)
        started = [self.process.stdout.readline() for _ in range(3)]
        self.stages = [int(re.fullmatch(r"stage \d: device \d, pid (\d+)\n", line).group(1)) for line in started]

    def finish(self, text: str = "") -> tuple[str, str]:
        """Asks `text`, closes the input and returns what was printed on both streams."""
        return self.process.communicate(text, timeout=120)

    def __enter__(self) -> "Chat":
        return self

    def __exit__(self, *_) -> None:
        self.process.kill()
        self.process.close()
        for pid in self.stages:
            if is_running(pid):
                os.kill(pid, signal.SIGKILL)


def is_running(pid: int) -> bool:
    """Whether the process exists and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def wait_until_gone(pids: list[int]) -> None:
    for pid in pids:
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        with os.fdopen(descriptor):
            assert select.select([descriptor], [], [], 60)[0], f"process {pid} is still there"


def test_a_limit_and_other_devices_are_obeyed(compile_demo, run_example, plain_tokens, shown_tokens):
    """The second prompt takes several chunks, which are in the pipeline at once."""
    asked = [argument for question in QUESTIONS for argument in ("--question", question)]
    arguments = [*asked, "--max-new-tokens", "4", "--show-tokens", "--devices", "2,0,1"]
    done = run_example("qwen3_pipeline.py", compile_demo(*OPTIONS).folder, *arguments, **DEVICES)
    assert done.returncode == 0, done.stderr
    assert shown_tokens(done.stdout) == [plain_tokens(question, 4) for question in QUESTIONS]
    stages = re.findall(r"stage (\d): device (\d), pid (\d+)", done.stdout)
    assert [stage[:2] for stage in stages] == [("0", "2"), ("1", "0"), ("2", "1")]
    assert not any(is_running(int(pid)) for _, _, pid in stages)


@pytest.mark.parametrize("stage", [0, 2])
def test_the_death_of_a_stage_is_reported_and_ends_everything(compile_demo, stage):
    with Chat(compile_demo(*OPTIONS).folder) as chat:
        os.kill(chat.stages[stage], signal.SIGKILL)
        _, errors = chat.finish(f"{QUESTIONS[0]}\n")
        assert chat.process.returncode == 1
        assert f"error: stage {stage} (device {stage}, pid {chat.stages[stage]}) died: killed by SIGKILL" in errors
        assert "Traceback" not in errors
        wait_until_gone(chat.stages)


def test_death_in_the_middle_of_an_answer_is_reported_too(compile_demo):
    with Chat(compile_demo(*OPTIONS).folder) as chat:
        chat.process.stdin.write(f"{LONG}\n")
        chat.process.stdin.flush()
        assert chat.process.stdout.readline() == f"> {LONG.strip()}\n"
        assert chat.process.stdout.read(1)
        os.kill(chat.stages[1], signal.SIGKILL)
        _, errors = chat.finish(f"{QUESTIONS[0]}\n")  # in case the answer was complete by then
        assert chat.process.returncode == 1
        assert "stage 1" in errors
        wait_until_gone(chat.stages)


def test_stages_end_with_a_parent_that_is_killed(compile_demo):
    with Chat(compile_demo(*OPTIONS).folder) as chat:
        chat.process.kill()
        chat.process.wait()
        wait_until_gone(chat.stages)


def test_an_interrupt_ends_parent_and_stages(compile_demo):
    with Chat(compile_demo(*OPTIONS).folder) as chat:
        chat.process.send_signal(signal.SIGINT)
        _, errors = chat.finish()
        assert chat.process.returncode == 130
        assert errors == "interrupted\n"
        wait_until_gone(chat.stages)


def test_a_device_that_is_not_there_is_one_sentence(compile_demo, run_example):
    done = run_example("qwen3_pipeline.py", compile_demo(*OPTIONS).folder, "--question", "hi", TCIM_LITE_DEVICE_NUM="2")
    assert done.returncode == 1
    assert re.match(r"error: stage 2 \(device 2, pid \d+\) failed: .*device 2 does not exist", done.stderr)
    assert "TCIM_LITE_DEVICE_NUM" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_package_without_stages_names_the_compile_option(compile_demo, run_example):
    done = run_example("qwen3_pipeline.py", compile_demo().folder, "--question", "hi")
    assert done.returncode == 1
    assert re.search("tcim-lite compile CHECKPOINT .* --pipeline", done.stderr)
    assert "Traceback" not in done.stderr


def test_devices_that_do_not_fit_the_stages_are_refused(compile_demo, run_example):
    done = run_example("qwen3_pipeline.py", compile_demo(*OPTIONS).folder, "--question", "hi", "--devices", "0,1")
    assert done.returncode == 1
    assert "3 stages, --devices names 2" in done.stderr
