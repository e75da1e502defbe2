"""Speculative decoding: exactly the target's tokens, or exactly its distribution."""

import re

import numpy as np
import pytest
from imported import imported
from llm_packages import DEMO_CHECKPOINT, ROOT

pytestmark = pytest.mark.slow

QUESTIONS = ["What is 12 + 30?", "Repeat after me: the quick brown fox jumps over the lazy dog", "7加5等于多少？"]
ASKED = [argument for question in QUESTIONS for argument in ("--question", question)]
WEAK = ("--draft-layers", "3")  # the target without its last block: often wrong
TWIN = ("--draft", str(DEMO_CHECKPOINT))


def figures(output: str) -> tuple[int, int, int, int]:
    """tokens, target runs, accepted, proposed"""
    return tuple(map(int, re.search(r"(\d+) tokens in (\d+) runs .*\| (\d+) of (\d+) proposals", output).groups()))


@pytest.mark.parametrize("options", [[], ["--margin", "0"], ["--max-new-tokens", "5"]], ids=str)
def test_greedy_acceptance_gives_the_targets_tokens(compile_demo, run_example, plain_tokens, shown_tokens, options):
    done = run_example("qwen3_speculative.py", compile_demo(*WEAK).folder, *ASKED, "--show-tokens", *options)
    assert done.returncode == 0, done.stderr
    limit = 5 if "--max-new-tokens" in options else None
    assert shown_tokens(done.stdout) == [plain_tokens(question, limit) for question in QUESTIONS]
    tokens, runs, accepted, proposed = figures(done.stdout)
    assert 0 < accepted < proposed
    assert tokens == sum(len(plain_tokens(question, limit)) for question in QUESTIONS)
    assert runs < tokens  # what it is for


def test_a_draft_that_is_the_target_is_always_right(compile_demo, run_example, plain_tokens, shown_tokens):
    """For sampling too: verify and decode give the same bits, so wanted / drafted is exactly 1."""
    folder = compile_demo(*TWIN, "--verify-length", "4").folder
    fast = run_example("qwen3_speculative.py", folder, *ASKED, "--show-tokens", "--margin", "0")
    classic = run_example("qwen3_speculative.py", folder, *ASKED, "--accept", "classic", "--seed", "1")
    for done in (fast, classic):
        assert done.returncode == 0, done.stderr
        _, _, accepted, proposed = figures(done.stdout)
        assert accepted == proposed > 0
        assert "(100.0%)" in done.stdout
    assert shown_tokens(fast.stdout) == [plain_tokens(question) for question in QUESTIONS]


def test_sampling_at_temperature_zero_is_greedy(compile_demo, run_example, plain_tokens, shown_tokens):
    options = ["--accept", "classic", "--temperature", "0", "--show-tokens"]
    done = run_example("qwen3_speculative.py", compile_demo(*WEAK).folder, *ASKED, *options)
    assert done.returncode == 0, done.stderr
    assert shown_tokens(done.stdout) == [plain_tokens(question) for question in QUESTIONS]


def test_a_context_that_fills_up_ends_the_answer_where_decode_would_end_it(
    compile_demo, run_example, plain_tokens, shown_tokens
):
    question = QUESTIONS[1]
    package = compile_demo(*TWIN, "--context-length", "40", "--prefill-length", "16")
    arguments = ["--question", question, "--show-tokens", "--margin", "0"]
    done = run_example("qwen3_speculative.py", package.folder, *arguments)
    assert done.returncode == 0, done.stderr
    chat = run_example("qwen3_chat.py", package.folder, "--question", question)
    count = int(re.search(r"(\d+) new .* stopped by context", chat.stdout).group(1))
    assert shown_tokens(done.stdout) == [plain_tokens(question)[:count]]


@pytest.mark.parametrize("seed", [0, 1])
def test_accepted_and_corrected_tokens_follow_the_targets_distribution(seed):
    """Two proposals drawn from a draft that disagrees; the first token of the outcome must follow the target."""
    accept = imported(ROOT / "examples/qwen3_speculative.py").accept_classic
    rng = np.random.default_rng(seed)
    drafted = np.array([[0.7, 0.2, 0.1, 0.0], [0.25, 0.25, 0.25, 0.25]])
    wanted = np.array([[0.1, 0.3, 0.2, 0.4], [0.0, 0.5, 0.5, 0.0], [1.0, 0.0, 0.0, 0.0]])
    first, second, third = np.zeros(4), np.zeros(4), np.zeros(4)
    for _ in range(20000):
        proposed = [int(rng.choice(4, p=q)) for q in drafted]
        accepted, token = accept(proposed, drafted, wanted, rng)
        outcome = [*proposed[:accepted], token]
        for counts, chosen in zip((first, second, third), outcome, strict=False):
            counts[chosen] += 1
    # Four standard deviations of a frequency of 0.5.
    np.testing.assert_allclose(first / first.sum(), wanted[0], atol=4 * 0.5 / 20000**0.5)
    np.testing.assert_allclose(second / second.sum(), wanted[1], atol=4 * 0.5 / second.sum() ** 0.5)
    assert third[0] == third.sum() > 0


@pytest.mark.parametrize("options", [(), ("--verify-length", "3")])
def test_a_package_without_the_graphs_names_the_option_that_makes_both(compile_demo, run_example, options):
    done = run_example("qwen3_speculative.py", compile_demo(*options).folder, "--question", "hi")
    assert done.returncode == 1
    assert re.search("tcim-lite compile CHECKPOINT .* --draft ", done.stderr)
    assert "Traceback" not in done.stderr
