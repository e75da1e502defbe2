"""Choosing tokens: the fast greedy choice, bias, penalties, what truncation keeps."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from tcim_lite.llm import Sampler
from tcim_lite.llm.sampling import greedy_token, log_probabilities

HALVES = arrays.arrays(np.uint16, st.integers(1, 40), elements=st.integers(0, 0xFFFF)).map(lambda a: a.view(np.float16))


@given(HALVES)
def test_greedy_is_argmax_over_every_float16(logits):
    if np.isnan(logits).any():
        with pytest.raises(ValueError, match="is NaN"):
            greedy_token(logits)
    else:
        assert greedy_token(logits) == logits.argmax()


@given(HALVES.filter(lambda logits: np.isfinite(logits).all()), st.integers(1, 40))
def test_top_k_keeps_what_a_whole_sort_would(logits, count):
    kept = np.argsort(-logits.astype(np.float64), kind="stable")[:count]  # the lowest id among equals, 0 and -0 too
    found = Sampler(1e9, top_k=count).probabilities(logits)  # so hot that no probability is 0
    assert set(np.flatnonzero(found)) == set(kept)
    logprobs = log_probabilities(logits, 0, count)[1]
    assert [token for token, _ in logprobs] == kept.tolist()


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
@pytest.mark.parametrize("count", [1, 20, 1024])
@pytest.mark.parametrize("digits", [0, 3])  # many equals, few
def test_top_k_of_a_large_vocabulary_keeps_what_a_whole_sort_would(dtype, count, digits):
    logits = np.random.default_rng(count).normal(0, 3, 20011).round(digits).astype(dtype)
    kept = np.argsort(-logits.astype(np.float64), kind="stable")[:count]
    assert [token for token, _ in log_probabilities(logits, 0, count)[1]] == kept.tolist()


@pytest.mark.parametrize("values", [[-1, -2, -1], [-0.0, 0.0, -3], [0.0, -0.0], [5, 7, 7], [-math.inf, 4, math.inf]])
def test_greedy_takes_the_lowest_id_among_equals(values):
    for dtype in (np.float16, np.float32):
        assert greedy_token(np.array(values, dtype)) == int(np.array(values).argmax())
    padded = np.array([values, values], np.float16).T[:, 0]  # not contiguous
    assert greedy_token(padded) == int(np.array(values).argmax())


LOGITS = np.array([1.0, 3.0, -1.0, 2.5, 0.5], np.float16)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"logit_bias": {0: 2.0, 3: -math.inf}}, [3.0, 3.0, -1.0, -math.inf, 0.5]),
        ({"repetition_penalty": 2.0}, [0.5, 1.5, -2.0, 2.5, 0.5]),  # 0, 1 and 2 are in the text
        ({"presence_penalty": 1.0}, [1.0, 2.0, -2.0, 2.5, 0.5]),  # 1 and 2 are in the answer, 1 twice
        ({"frequency_penalty": 0.5}, [1.0, 2.0, -1.5, 2.5, 0.5]),
        (
            {"logit_bias": {1: 1.0}, "repetition_penalty": 2.0, "presence_penalty": 1.0, "frequency_penalty": 0.5},
            [0.5, 0.0, -3.5, 2.5, 0.5],
        ),
    ],
)
def test_bias_and_penalties_change_logits_as_documented(options, expected):
    text = [0, 0, 1, 2, 1]  # of which two are the prompt
    weights = np.exp(np.array(expected) - max(expected))
    found = Sampler(1.0, **options).probabilities(LOGITS, text, 2)
    np.testing.assert_allclose(found, weights / weights.sum(), atol=1e-6)
    assert Sampler(**options)(LOGITS, text, 2) == int(np.argmax(expected))


def test_a_grammar_and_a_bias_can_forbid_tokens_but_not_all():
    allowed = np.array([True, False, True, False, False])
    assert Sampler()(LOGITS, allowed=allowed) == 0
    assert set(np.flatnonzero(Sampler(1.0).probabilities(LOGITS, allowed=allowed))) == {0, 2}
    with pytest.raises(ValueError, match="no token is allowed"):
        Sampler(logit_bias={0: -math.inf, 2: -math.inf})(LOGITS, allowed=allowed)


@given(st.integers(0, 2**32), st.sampled_from([30, 3000, 40000]), st.sampled_from([0.05, 0.5, 0.97, 0.9999]))
@settings(max_examples=20)
def test_top_p_keeps_what_a_whole_sort_would(seed, size, top_p):
    logits = np.random.default_rng(seed).normal(0, 3, size).astype(np.float16)
    weights = np.exp(logits.astype(np.float64) - logits.max())
    order = np.argsort(-weights, kind="stable")
    kept = order[: np.searchsorted(np.cumsum(weights[order]) / weights.sum(), top_p) + 1]
    found = Sampler(1.0, top_p=top_p).probabilities(logits)
    wrong = set(np.flatnonzero(found)) ^ set(kept)
    assert len(wrong) <= 1  # the last one, where sums are rounded differently
    np.testing.assert_allclose(found.sum(), 1)


def test_log_probabilities_are_of_the_whole_vocabulary():
    expected = LOGITS.astype(np.float64) - np.log(np.exp(LOGITS.astype(np.float64)).sum())
    logprob, top = log_probabilities(LOGITS, 4, 3)
    assert logprob == pytest.approx(expected[4])
    assert [token for token, _ in top] == [1, 3, 0]
    np.testing.assert_allclose([value for _, value in top], expected[[1, 3, 0]])
    assert log_probabilities(LOGITS, 4, 0)[1] == []


def test_an_infinite_logit_is_chosen():
    logits = np.array([1, np.inf, 3, -np.inf], np.float16)
    for options in ({}, {"top_k": 2}, {"top_p": 0.5}, {"min_p": 0.5}):
        assert [Sampler(1.0, seed=seed, **options)(logits) for seed in range(5)] == [1] * 5


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("temperature", math.inf),
        ("presence_penalty", math.nan),
        ("frequency_penalty", math.inf),
        ("logit_bias", {-1: 0.0}),
        ("logit_bias", {1: math.nan}),
        ("seed", -1),
    ],
)
def test_values_out_of_range_are_refused(option, value):
    with pytest.raises(ValueError, match=option):
        Sampler(**{option: value})
    with pytest.raises(ValueError, match=r"logit_bias\[9\]: the vocabulary has 5"):
        Sampler(logit_bias={9: 1.0})(LOGITS)
