"""Continuous batching, the program: what a slot answers. The engine behind it: tests/llm/test_engine*.py."""

import json
import re

import pytest

pytestmark = pytest.mark.slow

QUESTIONS = [
    "What is 12 + 30?",
    "Repeat after me: the quick brown fox jumps over the lazy dog",
    "Hello, who are you?",
    "Reverse: 1 2 3 4 5",
    "7加5等于多少？",
]


def asked(questions: list[str]) -> list[str]:
    return [argument for question in questions for argument in ("--question", question)]


def answers(output: str) -> dict[str, tuple[int, str]]:
    """question -> (slot, answer)"""
    found = re.findall(r"^\[slot (\d+)\] (.*)\n  (.*)$", output, re.MULTILINE)
    return {question: (int(slot), answer) for slot, question, answer in found}


def test_every_answer_equals_that_of_a_single_slot_token_for_token(compile_demo, run_example, plain_tokens):
    done = run_example("qwen3_multibatch.py", compile_demo("--batch", "3").folder, *asked(QUESTIONS), "--show-tokens")
    assert done.returncode == 0, done.stderr
    got = answers(done.stdout)
    assert list(map(plain_tokens, QUESTIONS)) == [json.loads(got[question][1]) for question in QUESTIONS]


def test_more_slots_than_requests_leave_slots_idle(compile_demo, run_example):
    done = run_example("qwen3_multibatch.py", compile_demo("--batch", "3").folder, *asked(QUESTIONS[:1]))
    assert done.returncode == 0, done.stderr
    assert "42" in answers(done.stdout)[QUESTIONS[0]][1]
    assert "slots busy 33%" in done.stdout


def test_a_prompt_longer_than_the_context_is_refused_before_any_work(compile_demo, run_example):
    package = compile_demo("--batch", "2", "--context-length", "40", "--prefill-length", "16")
    done = run_example("qwen3_multibatch.py", package.folder, *asked([QUESTIONS[0], "one two " * 40]))
    assert done.returncode != 0
    assert "--context-length" in done.stderr
    assert not answers(done.stdout)
    assert "Traceback" not in done.stderr


def test_a_package_of_one_slot_works_and_is_told_how_to_get_more(compile_demo, run_example):
    done = run_example("qwen3_multibatch.py", compile_demo().folder, *asked(QUESTIONS[:2]))
    assert done.returncode == 0, done.stderr
    assert "--batch 4" in done.stdout
    assert len(answers(done.stdout)) == 2


def test_static_batching_gives_the_same_answers_in_more_steps(compile_demo, run_example):
    folder = compile_demo("--batch", "2").folder
    continuous = run_example("qwen3_multibatch.py", folder, *asked(QUESTIONS))
    static = run_example("qwen3_multibatch.py", folder, *asked(QUESTIONS), "--static")
    assert continuous.returncode == static.returncode == 0, continuous.stderr + static.stderr
    texts = [{question: text for question, (_, text) in answers(done.stdout).items()} for done in (continuous, static)]
    assert texts[0] == texts[1]
    steps = [int(re.search(r"(\d+) decode steps", done.stdout).group(1)) for done in (continuous, static)]
    assert steps[0] < steps[1]
