"""What a newcomer sees: the demo checkpoint answers, through the example as it stands."""

import subprocess

import pytest
import warm_python
from llm_packages import ROOT, LoadedPackage, encoded_prompts

from tcim_lite.llm import Package, load_tokenizer

EXAMPLE = ROOT / "examples" / "qwen3_chat.py"


def run_example(*arguments: str, text: str | None = None) -> subprocess.CompletedProcess:
    return warm_python.run(EXAMPLE, *arguments, input=text)


def test_the_example_answers_and_reports_what_it_cost(demo_package):
    folder = str(demo_package("w4a8h0_ssfp").folder)
    done = run_example(folder, "--question", "What is 12 + 30?", "--question", "Reverse: 1 2 3")
    assert done.returncode == 0, done.stderr
    assert "42" in done.stdout
    assert "3 2 1" in done.stdout
    for figure in ("TTFT", "prefill", "decode", "tok/s", "new"):
        assert figure in done.stdout


def test_the_example_remembers_earlier_turns_from_standard_input(demo_package):
    folder = str(demo_package("w4a8h0_ssfp").folder)
    done = run_example(folder, text="My name is Anna.\nWhat is my name?\n")
    assert done.returncode == 0, done.stderr
    assert "Anna" in done.stdout.splitlines()[-2]


def test_the_example_explains_a_missing_package(tmp_path):
    done = run_example(str(tmp_path))
    assert done.returncode != 0
    assert "tcim-lite compile" in done.stderr
    assert "Traceback" not in done.stderr


def accuracy(package: Package, prompts: list[dict], encoded: list[list[int]]) -> dict[str, list[bool]]:
    """Whether each greedy answer is the expected one, by task."""
    tokenizer = load_tokenizer(package.tokenizer_folder)
    loaded = LoadedPackage(package)
    right: dict[str, list[bool]] = {}
    for entry, prompt in zip(prompts, encoded, strict=True):
        reply = list(loaded.generate(prompt, max_new_tokens=128, stop_tokens={tokenizer.eos_token_id}))
        text = tokenizer.decode(reply, skip_special_tokens=True)
        right.setdefault(entry["task"], []).append(text.strip() == entry["answer"].strip())
    return right


def share(right: dict[str, list[bool]]) -> float:
    answers = [answer for task in right.values() for answer in task]
    return sum(answers) / len(answers)


@pytest.mark.slow
def test_the_demo_checkpoint_answers_correctly_and_survives_quantisation(demo_package, demo_prompts):
    some = demo_prompts[1::2]  # of every task; the oracle has the others
    encoded = encoded_prompts(load_tokenizer(demo_package("float16").tokenizer_folder), some)
    by_task = accuracy(demo_package("float16"), some, encoded)
    assert len(by_task) == 7
    for task, answers in by_task.items():
        assert sum(answers) / len(answers) >= 0.95, task
    assert share(accuracy(demo_package("w8a8h1_sefp"), some, encoded)) >= share(by_task) - 0.01
    assert share(accuracy(demo_package("w4a8h0_ssfp"), some, encoded)) >= share(by_task) - 0.05
