"""Choosing the next token."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from .option_types import check_numbers, check_whole

_COLUMNS = 1024  # as many maxima at least; fewer leave more values above the least of them
_SORTED_FIRST = (1024, 16384)  # tokens that top-p sorts; the first is nearly always enough, the whole takes 15 ms


class NoTokenError(ValueError):
    """Nothing can follow: the bias and the grammar of a request forbid all tokens."""


class Sampler:
    """Greedy by default; otherwise temperature, top-k, top-p, then min-p, as Hugging Face orders them.

    Before all of these, greedy included, come the bias, then the penalties.

    Args:
        temperature: 0 is greedy. Above 0, logits are divided by it.
        top_k: Keep the k most likely tokens; 0 keeps all.
        top_p: Keep the smallest set of tokens whose probabilities reach p; 1 keeps all.
        min_p: Keep the tokens at least this times as likely as the likeliest; 0 keeps all.
        repetition_penalty: Logits of tokens that are in the text already are divided by it where they are positive and
            multiplied where they are negative; 1 changes nothing.
        presence_penalty: Subtracted from the logits of tokens that are in the answer already.
        frequency_penalty: The same, once for each time.
        logit_bias: Added to the logits of these tokens; minus infinity forbids one.
        seed: Equal seeds give equal choices; None draws a fresh one.

    Attributes:
        takes_largest: Whether it is greedy, and nothing but a grammar changes the logits before.

    Raises:
        ValueError: A value out of its range.
        TypeError: What has to be a number is none.
    """

    def __init__(
        self,
        temperature: float = 0.0,
        top_k: int = 0,
        top_p: float = 1.0,
        seed: int | None = None,
        *,
        min_p: float = 0.0,
        repetition_penalty: float = 1.0,
        presence_penalty: float = 0.0,
        frequency_penalty: float = 0.0,
        logit_bias: Mapping[int, float] | None = None,
    ):
        check_numbers(temperature=temperature, top_p=top_p, min_p=min_p, repetition_penalty=repetition_penalty)
        check_numbers(presence_penalty=presence_penalty, frequency_penalty=frequency_penalty)
        check_whole(top_k=top_k, seed=seed or 0)
        if not 0 <= temperature < math.inf:
            raise ValueError(f"temperature={temperature}: expected 0 (greedy) or more, and finite")
        if top_k < 0:
            raise ValueError(f"top_k={top_k}: expected 0 (all tokens) or more")
        if not 0 < top_p <= 1:
            raise ValueError(f"top_p={top_p}: expected more than 0 and at most 1")
        if not 0 <= min_p <= 1:
            raise ValueError(f"min_p={min_p}: expected 0 to 1")
        if not 0 < repetition_penalty < math.inf:
            raise ValueError(f"repetition_penalty={repetition_penalty}: expected more than 0; 1 changes nothing")
        for name, value in (("presence_penalty", presence_penalty), ("frequency_penalty", frequency_penalty)):
            if not math.isfinite(value):
                raise ValueError(f"{name}={value}: expected a finite number; 0 changes nothing")
        if not isinstance(logit_bias, Mapping | None):
            raise TypeError(f"logit_bias={logit_bias!r:.80}: expected a mapping from token ids to numbers")
        bias = dict(logit_bias or {})
        for token, value in bias.items():
            check_whole(**{"a token of logit_bias": token})
            check_numbers(**{f"logit_bias[{token}]": value})
        bad = next((token for token, value in bias.items() if token < 0 or not value < math.inf), None)
        if bad is not None:
            raise ValueError(f"logit_bias[{bad}]={bias[bad]}: expected a token id and a finite number, or -inf")
        if seed is not None and seed < 0:
            raise ValueError(f"seed={seed}: expected 0 or more, or None for a fresh one")
        self.temperature, self.top_k, self.top_p = temperature, top_k, top_p
        self.min_p, self.repetition_penalty = min_p, repetition_penalty
        self.presence_penalty, self.frequency_penalty, self.logit_bias = presence_penalty, frequency_penalty, bias
        self._bias = np.fromiter(bias, np.intp, len(bias)), np.fromiter(bias.values(), np.float32, len(bias))
        self._rng = np.random.default_rng(seed)
        penalties = presence_penalty, frequency_penalty, repetition_penalty
        self.takes_largest = temperature == 0 and penalties == (0, 0, 1) and not bias

    def __call__(
        self,
        logits: np.ndarray,
        text: Sequence[int] = (),
        prompt_length: int = 0,
        allowed: np.ndarray | None = None,
    ) -> int:
        """The chosen token id for logits [vocab]; among equal logits greedy takes the lowest id.

        Args:
            logits: Of one token, [vocab].
            text: The tokens so far, prompt and answer, for the penalties.
            prompt_length: How many of them are the prompt.
            allowed: [vocab] bool, from a grammar; None allows all.

        Raises:
            ValueError: A logit is NaN.
            NoTokenError: Bias and grammar forbid all tokens.
        """
        logits = np.asarray(logits).reshape(-1)
        if self.takes_largest and allowed is None:
            return greedy_token(logits)
        logits = self._changed(logits, text, prompt_length, allowed)
        if self.temperature == 0:
            return greedy_token(logits)
        ids, weights = self._candidates(logits)
        # As Generator.choice(ids, p=weights), without its checks.
        sums = weights.cumsum()
        return int(ids[np.searchsorted(sums / sums[-1], self._rng.random(), side="right")])

    def probabilities(
        self,
        logits: np.ndarray,
        text: Sequence[int] = (),
        prompt_length: int = 0,
        allowed: np.ndarray | None = None,
    ) -> np.ndarray:
        """How likely each token is to be chosen, [vocab] float64, sum 1; arguments and errors as in the call."""
        logits = self._changed(np.asarray(logits).reshape(-1), text, prompt_length, allowed)
        ids, weights = self._candidates(logits)
        spread = np.zeros(logits.size)
        spread[ids] = weights
        return spread

    def _changed(
        self, logits: np.ndarray, text: Sequence[int], prompt_length: int, allowed: np.ndarray | None
    ) -> np.ndarray:
        """The logits after bias, penalties and grammar; the same array where nothing changes."""
        answer = text[prompt_length:] if self.presence_penalty or self.frequency_penalty else ()
        repeats = self.repetition_penalty != 1 and len(text) > 0
        if not (repeats or len(answer) or self.logit_bias or allowed is not None):
            return logits
        changed = logits.astype(np.float32)
        if self.logit_bias:
            ids, bias = self._bias
            if ids.max() >= changed.size:
                raise ValueError(f"logit_bias[{ids.max()}]: the vocabulary has {changed.size} tokens")
            changed[ids] += bias
        if repeats:
            seen = np.unique(np.asarray(text))
            values = changed[seen]
            changed[seen] = np.where(values < 0, values * self.repetition_penalty, values / self.repetition_penalty)
        if len(answer):
            seen, counts = np.unique(np.asarray(answer), return_counts=True)
            changed[seen] -= (self.presence_penalty + self.frequency_penalty * counts).astype(np.float32)
        if allowed is not None:
            changed[~allowed] = -np.inf
        if changed.max() == -np.inf:
            raise NoTokenError("no token is allowed: logit_bias or the grammar forbids all")
        return changed

    def _candidates(self, logits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The ids that may be chosen, and their probabilities."""
        best = greedy_token(logits)
        if self.temperature == 0:
            return np.array([best]), np.ones(1)
        if 0 < self.top_k < logits.size:
            ids = _likeliest(logits, self.top_k)
            logits, best = logits[ids], 0
        else:
            ids = np.arange(logits.size)
        # Subtracted first: divided by a tiny temperature every logit would be infinite.
        with np.errstate(over="ignore", invalid="ignore"):
            weights = np.exp((logits.astype(np.float64) - float(logits[best])) / self.temperature)
        if logits[best] == np.inf:  # float16 beyond its range; infinity less infinity is no number
            weights = (logits == np.inf).astype(np.float64)
        weights /= weights.sum()
        if self.top_p < 1:
            for count in (*_SORTED_FIRST, weights.size):
                order = _likeliest(logits, count)
                if weights[order].sum() >= self.top_p:
                    break
            kept = int(np.searchsorted(np.cumsum(weights[order]), self.top_p)) + 1
            ids, weights = ids[order[:kept]], weights[order[:kept]]
            weights /= weights.sum()
        if self.min_p > 0:
            kept_ids = weights >= self.min_p * weights.max()
            ids, weights = ids[kept_ids], weights[kept_ids]
            weights /= weights.sum()
        return ids, weights


def greedy_token(logits: np.ndarray) -> int:
    """The id of the largest of logits [vocab], the lowest among equals.

    Raises:
        ValueError: A logit is NaN.
    """
    best = largest(logits)
    check_logit(best, logits[best])
    return best


def is_sure(logits: np.ndarray, margin: float) -> bool:
    """Whether the best of logits [vocab] is at least `margin` above the second."""
    if margin <= 0:
        return True
    first, second = np.partition(logits.astype(np.float32), (-2, -1))[[-1, -2]]
    return bool(first - second >= margin)


def largest(logits: np.ndarray) -> int:
    """As `argmax`: the first NaN, or the first of the largest.

    float16 is compared as integers, 300 times as fast as numpy does it: bits of positive numbers are ordered as the
    numbers are, and the largest logit is nearly always positive.
    """
    if logits.dtype == np.float16 and logits.flags.c_contiguous:
        bits = logits.view(np.int16)
        best = int(bits.argmax())
        # Above zero and at most infinity. What follows minus infinity, read without sign, is a negative NaN.
        if 0 < bits[best] <= 0x7C00 and np.maximum.reduce(logits.view(np.uint16)) <= 0xFC00:
            return best
    return int(logits.argmax())


def check_logit(token: int, logit: np.floating) -> None:
    """Says whether a token may be chosen for its logit.

    Raises:
        ValueError: The logit is NaN.
    """
    if logit != logit:
        raise ValueError(f"logit {token} is NaN; run with TCIM_LITE_STRICT=error to see where it comes from")


def log_probabilities(
    logits: np.ndarray, token: int, count: int, others: Sequence[int] = ()
) -> tuple[float, list[tuple[int, float]]]:
    """The natural logarithm of a token's probability, and those of the likeliest, (id, logarithm), likeliest first.

    Args:
        logits: [vocab], as the graph gives them.
        token: Id.
        count: How many of the likeliest.
        others: Ids of tokens that follow these.
    """
    logits = np.asarray(logits).reshape(-1)
    # Exponentials of float32 take a tenth of the time; float16 is much coarser than both.
    exact = np.float32 if logits.dtype == np.float16 else np.float64
    most = logits[largest(logits)].astype(exact)
    shift = float(most) + float(np.log(np.exp(logits.astype(exact) - most).sum(dtype=np.float64)))
    likeliest = _likeliest(logits, count) if count else np.empty(0, np.intp)
    return float(logits[token]) - shift, [(int(i), float(logits[i]) - shift) for i in (*likeliest, *others)]


def _likeliest(values: np.ndarray, count: int) -> np.ndarray:
    """Indices of the `count` largest, largest first, the lowest index among equals."""
    if values.dtype == np.float16:
        # Integers in the same order, 0 and -0 equal: numpy handles them many times as fast.
        bits = np.ascontiguousarray(values).view(np.int16)
        sign = bits >> 15
        values = (bits ^ (sign & 0x7FFF)) - sign
    if count < values.size:
        at = _at_least_nth(values, count)
        found = values if at.size == values.size else values[at]
        # Among equals of the smallest kept, argpartition keeps any.
        smallest = np.partition(found, -count)[-count]
        above, equal = np.flatnonzero(found > smallest), np.flatnonzero(found == smallest)
        chosen = at[np.sort(np.concatenate([above, equal[: count - above.size]]))]
    else:
        chosen = np.arange(values.size)
    return chosen[np.argsort(-values[chosen].astype(np.float64), kind="stable")]


def _at_least_nth(values: np.ndarray, count: int) -> np.ndarray:
    """Indices, ascending, of some more than the `count` largest, equals of the smallest included.

    Each column's maximum is a value, so `count` values reach the `count`-th largest maximum. Finding it takes a tenth
    of the time of `partition` of all values.
    """
    columns = max(_COLUMNS, 4 * count)
    rows = values.size // columns
    if rows < 4:
        return np.arange(values.size)
    tops = values[: rows * columns].reshape(rows, columns).max(axis=0)
    return np.flatnonzero(~(values < np.partition(tops, -count)[-count]))  # NaN stays in
