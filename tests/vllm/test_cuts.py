"""How vLLM's worker cuts the tokens of a sequence with states: as the sequence would be cut alone."""

import random

import pytest

from tcim_lite.vllm.cuts import held_at, runs_to


@pytest.mark.parametrize("seed", range(20))
def test_any_steps_give_the_runs_of_one_request(seed):
    rng = random.Random(seed)
    prompt, chunk, answer = rng.randrange(1, 50), rng.randrange(1, 17), rng.randrange(0, 9)
    alone = [(begin, min(begin + chunk, prompt)) for begin in range(0, prompt, chunk)]
    alone += [(place, place + 1) for place in range(prompt, prompt + answer)]
    held, computed, runs = 0, 0, []
    while computed < prompt + answer:
        assert held == held_at(computed, prompt, chunk)
        computed += rng.randrange(1, prompt + answer - computed + 1)
        for begin, end in runs_to(computed, held, prompt, chunk):
            runs.append((begin, end))
            held = end
    assert runs == alone
    assert held == computed  # the last token has run


def test_a_prompt_with_images_is_cut_where_they_allow_it_and_its_answer_runs_a_token_at_a_time():
    def cut(begin, most):
        return 5 if begin < 5 else begin + most  # an image of tokens 5 to 11 has to be in one run

    assert list(runs_to(14, 0, 12, 8, cut)) == [(0, 5), (5, 12), (12, 13), (13, 14)]
