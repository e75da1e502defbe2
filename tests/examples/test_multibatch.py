"""Continuous batching: what a slot answers does not depend on what its neighbours do."""

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


def test_a_slot_is_refilled_while_another_goes_on(compile_demo, run_example, plain_tokens):
    long, short = (
        "Repeat after me: one two three four five six seven eight nine ten",
        ["What is 1 + 1?", "Reverse: 1 2"],
    )
    assert len(plain_tokens(long)) > sum(len(plain_tokens(question)) + 1 for question in short)
    done = run_example("qwen3_multibatch.py", compile_demo("--batch", "2").folder, *asked([long, *short]))
    assert done.returncode == 0, done.stderr
    got = answers(done.stdout)
    assert list(got) == [*short, long]  # as they end
    assert [got[question][0] for question in [long, *short]] == [0, 1, 1]
    assert 50 < int(re.search(r"slots busy (\d+)%", done.stdout).group(1)) < 100
    assert re.search(r"decode \d+ tok/s", done.stdout)


def test_more_slots_than_requests_leave_slots_idle(compile_demo, run_example):
    done = run_example("qwen3_multibatch.py", compile_demo("--batch", "3").folder, *asked(QUESTIONS[:1]))
    assert done.returncode == 0, done.stderr
    assert "42" in answers(done.stdout)[QUESTIONS[0]][1]
    assert "slots busy 33%" in done.stdout


def test_a_full_context_ends_an_answer_and_spares_the_neighbours(compile_demo, run_example, plain_tokens):
    """The first question fills a context of 40 in mid-answer; the second does not."""
    long = "Repeat after me: the quick brown fox jumps over the lazy dog"
    package = compile_demo("--batch", "2", "--context-length", "40", "--prefill-length", "16")
    done = run_example("qwen3_multibatch.py", package.folder, *asked([long, QUESTIONS[0]]), "--show-tokens")
    assert done.returncode == 0, done.stderr
    got = {question: json.loads(answer) for question, (_, answer) in answers(done.stdout).items()}
    whole = plain_tokens(long)
    assert 0 < len(got[long]) < len(whole)
    assert got[long] == whole[: len(got[long])]
    assert got[QUESTIONS[0]] == plain_tokens(QUESTIONS[0])


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


def test_a_seed_decides_every_answer(compile_demo, run_example):
    options = ["--temperature", "2", "--seed", "3", "--max-new-tokens", "8", "--show-tokens"]
    found = [
        run_example("qwen3_multibatch.py", compile_demo("--batch", batch).folder, *asked(QUESTIONS), *options)
        for batch in ("2", "3")
    ]
    first, second = ({q: text for q, (_, text) in answers(done.stdout).items()} for done in found)
    assert first == second
    assert len(set(first.values())) == len(QUESTIONS)
