"""Prefix caching: the same answers for less prefill."""

import re

import pytest

pytestmark = pytest.mark.slow


def answers(output: str) -> list[str]:
    return re.findall(r"^\[document \d\] .*\n  (.*)$", output, re.MULTILINE)


def prefilled(output: str) -> list[int]:
    """Tokens that went through the prefill graph, by question."""
    return [int(count) for count in re.findall(r"(\d+) prefilled, first .*\]$", output, re.MULTILINE)]


@pytest.fixture(scope="module")
def plain(compile_demo, run_example):
    """The default questions without a cache."""
    return run_example("qwen3_prefix_cache.py", compile_demo().folder, "--no-cache")


def test_answers_are_the_same_and_prefill_is_shorter(compile_demo, run_example, plain):
    folder = compile_demo().folder
    cached, plain = (
        run_example("qwen3_prefix_cache.py", folder),
        run_example("qwen3_prefix_cache.py", folder, "--no-cache"),
    )
    assert cached.returncode == plain.returncode == 0, cached.stderr + plain.stderr
    assert len(answers(plain.stdout)) == 6
    assert answers(cached.stdout) == answers(plain.stdout)
    assert answers(plain.stdout)[:2] == ["Bob: 5558", "Bob: 2208"]
    # Each book is prefilled once; afterwards only the question is.
    for number, (with_cache, without) in enumerate(zip(prefilled(cached.stdout), prefilled(plain.stdout), strict=True)):
        assert with_cache == without if number == 0 else with_cache < without
        assert number < 2 or with_cache < 20
    assert re.search(r"saved \d\d% of the prefill", cached.stdout)
    assert "saved" not in plain.stdout


@pytest.mark.parametrize(("capacity", "forgets"), [(0.5, False), (0.05, True)])
def test_a_cache_without_room_forgets_and_still_answers(compile_demo, run_example, plain, capacity, forgets):
    """One book is in the slot, the other on the host, if it fits there."""
    tight = run_example("qwen3_prefix_cache.py", compile_demo().folder, "--capacity-mb", str(capacity))
    assert tight.returncode == 0, tight.stderr
    assert answers(tight.stdout) == answers(plain.stdout)
    assert (min(prefilled(tight.stdout)) > 100) == forgets
    used = float(re.search(r"host cache ([\d.]+) MB", tight.stdout).group(1))
    assert used <= capacity
    assert (used == 0) == forgets


def test_a_document_that_is_not_there_is_one_sentence(compile_demo, run_example):
    done = run_example("qwen3_prefix_cache.py", compile_demo().folder, "--document", "/nowhere.txt")
    assert done.returncode != 0
    assert "/nowhere.txt" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_document_that_might_not_end_is_refused(compile_demo, run_example):
    done = run_example("qwen3_prefix_cache.py", compile_demo().folder, "--document", "/dev/zero")
    assert done.returncode != 0
    assert done.stderr == "error: --document /dev/zero: expected a text file of at most 16 MiB\n"
