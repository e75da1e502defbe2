"""Attention with a mask that is an input, as gpt-oss has it: the mask alone says what a row sees."""

import numpy as np

from .. import under_test as rt
from ..checks import emulator_only
from ..registry import each

TIER = "full"
ROWS, WINDOW, HIDDEN = 16, 5, -65504.0
ROLES = ["attention_mask", "attention_mask_decode", "attention_mask_window", "attention_mask_window_decode"]


def first_row(role, valid):
    """The row of the cache that the mask's first column is about."""
    return max(valid - (WINDOW - 1), 0) if "window" in role else 0


def mask_of(kind, role, shape, valid):
    """What the rows after `valid` others see; `shape` is that of the mask."""
    random = np.random.default_rng(valid)
    tokens, columns = shape[2:]
    query = valid + np.arange(tokens)[:, None]
    row = first_row(role, valid) + np.arange(columns)
    seen = (row <= query) & (row > query - (WINDOW if "window" in role else 32))
    own = row == query
    if kind == "holes":
        seen &= own | (random.random(seen.shape) < 0.6)
    elif kind == "later":
        seen |= row < valid + tokens
    elif kind == "alone":  # what the vendor's demo gives rows beyond the window in the first chunk
        seen = own
    mask = np.where(seen, 0.0, HIDDEN)
    if kind == "weights":
        mask = np.where(seen, random.choice([0.0, -1.5, 2.25], seen.shape), HIDDEN)
    return mask.astype(np.float16).reshape(shape)


def exact(x, role, mask, valid):
    """Of rows [16, 2, 64], those that the mask is for, in float64."""
    tokens = mask.shape[2]
    keys = x[: valid + tokens]
    first = first_row(role, valid)
    added = np.full((tokens, len(keys)), -np.inf)
    count = min(mask.shape[3], len(keys) - first)
    added[:, first : first + count] = np.where(mask[0, 0, :, :count] <= HIDDEN, -np.inf, mask[0, 0, :, :count])
    scores = np.einsum("qhd,khd->hqk", x[valid : valid + tokens], keys) / 8 + added
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return np.einsum("hqk,khd->qhd", weights / weights.sum(-1, keepdims=True), keys).reshape(tokens, 128)


@each("kind", ["lengths", "holes", "later", "alone", "weights"])
@each("role", ROLES)
def test_a_mask_is_honoured_as_given(kit, role, kind):
    """Sixteen rows in chunks against float64; the lengths hide nothing."""
    module = rt.load(kit.model(role))
    name = module.get_input_name(3)
    shape = tuple(module.get_input_info(name).shape)
    rows = kit.rows(ROWS).astype(np.float16)
    x = rows[0].astype(np.float64).reshape(ROWS, 2, 64)
    error = 0.0
    for valid in range(0, ROWS, shape[2]):
        mask = mask_of(kind, role, shape, valid)
        module.set_input(name, mask)
        found = kit.step(module, rows[:, valid : valid + shape[2]], valid)
        error = max(error, np.abs(found - exact(x, role, mask, valid)).max() / np.abs(x).max())
    # As numbers::test_attention_float16_is_near_the_exact_one.
    kit.measure(f"{role} float16, {kind}: error over max |v|", error, 8 * 2.0**-11)


@each("role", ROLES)
def test_a_row_that_sees_nothing_is_zeros(kit, role):
    emulator_only("a row whose mask hides everything")
    module = rt.load(kit.model(role))
    name = module.get_input_name(3)
    mask = np.full(module.get_input_info(name).shape, HIDDEN, np.float16)
    mask[0, 0, 1:, 0] = 0  # the first row is the one
    module.set_input(name, mask)
    found = kit.step(module, kit.rows(mask.shape[2]), 0)
    assert not found[0].any()
    assert found[1:].any(axis=1).all()


@each("role", ["attention_mask", "attention_mask_window"])
def test_rows_that_a_mask_hides_may_hold_anything(kit, role):
    results = []
    for junk in (0.0, np.nan, np.inf):
        module = rt.load(kit.model(role))
        for name in kit.caches:
            cache = np.full((1, 2, 32, 64), junk, np.float16)
            cache[:, :, 3:5] = kit.rows(5)[0, 3:].reshape(2, 2, 64).transpose(1, 0, 2)
            module.set_input(name, cache)
        name = module.get_input_name(3)
        shape = tuple(module.get_input_info(name).shape)
        mask = mask_of("lengths", role, shape, 5)
        mask[..., : 3 - first_row(role, 5)] = HIDDEN
        module.set_input(name, mask)
        results.append(kit.step(module, kit.rows(9)[:, 5:], 5))
    for result in results[1:]:
        np.testing.assert_array_equal(result, results[0])
