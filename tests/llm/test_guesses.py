"""Greedy guesses end where the model is unsure."""

import numpy as np
import pytest

from tcim_lite.llm.engine.guesses import greedy_guesses

LOGITS = np.array([[0.0, 3.0, 1.0], [5.0, 0.0, 4.5], [0.0, 0.0, 9.0], [7.0, 1.0, 0.0]])  # before each guess


@pytest.mark.parametrize(
    ("count", "margin", "guesses"),
    [(1, 0.0, [1]), (3, 0.25, [1, 0, 2]), (9, 1.0, [1, 0]), (9, 2.5, [1]), (4, 0.0, [1, 0, 2, 0])],
)
def test_a_guess_is_the_choice_after_those_before_it(count, margin, guesses):
    taken = []

    def after(token, made):
        taken.append(token)
        assert made == len(taken)
        return LOGITS[made]

    assert greedy_guesses(LOGITS[0], count, margin, after) == guesses
    assert taken == guesses[:-1]
