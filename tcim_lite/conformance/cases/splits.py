"""Prefill and decode agree, however a sequence is cut: on a CPU bit for bit."""

import contextlib
import itertools

import numpy as np

from .. import under_test as rt
from ..checks import emulator_only, same_rows
from ..registry import each

TIER = "full"
CONTEXT = 32


def cuts(total, largest):
    """All ways to write `total` as a sum of parts up to `largest`, in order."""
    if total == 0:
        return [()]
    return [(part, *rest) for part in range(1, min(largest, total) + 1) for rest in cuts(total - part, largest)]


def one_by_one(kit, x):
    decode = rt.load(kit.model("attention_decode"))
    return np.stack([kit.step(decode, x[:, i : i + 1], i)[0] for i in range(x.shape[1])])


@each("total", [1, 2, 3, 4, 5, 6, 7])
def test_every_cut_of_a_short_sequence_gives_the_same(kit, total):
    x = kit.rows(total)
    expected = one_by_one(kit, x)
    prefill = rt.load(kit.model("attention_prefill"))
    for parts in cuts(total, 4):
        for at, count in zip(itertools.accumulate((0, *parts)), parts, strict=False):
            same_rows(kit.step(prefill, x[:, at : at + count], at), expected[at : at + count])


@each("chunk", [1, 2, 3, 4])
def test_every_switch_from_prefill_to_decode_gives_the_same(kit, chunk):
    x = kit.rows(CONTEXT)
    expected = one_by_one(kit, x)
    for prompt in range(1, CONTEXT + 1):
        prefill, decode = rt.load(kit.model("attention_prefill")), rt.load(kit.model("attention_decode"))
        kit.bind_caches(decode, prefill)
        for at in range(0, prompt, chunk):
            rows = x[:, at : min(at + chunk, prompt)]
            same_rows(kit.step(prefill, rows, at), expected[at : at + rows.shape[1]])
        for at in range(prompt, min(prompt + 2, CONTEXT)):
            same_rows(kit.step(decode, x[:, at : at + 1], at)[0], expected[at])


@each("valid", [0, 1, 3, 4, 5, 15, 16, 17, 27, 28])
def test_a_chunk_anywhere_in_the_context_gives_the_same(kit, valid):
    x = kit.rows(CONTEXT)
    expected = one_by_one(kit, x)
    prefill = rt.load(kit.model("attention_prefill"))
    for at in range(valid):
        kit.step(prefill, x[:, at : at + 1], at)
    for count in range(1, 5):
        same_rows(kit.step(prefill, x[:, valid : valid + count], valid), expected[valid : valid + count])


def test_the_context_may_be_filled_and_what_goes_beyond_harms_no_row(kit):
    x = kit.rows(CONTEXT)
    prefill = rt.load(kit.model("attention_prefill"))
    for at in range(0, CONTEXT, 4):
        kit.step(prefill, x[:, at : at + 4], at)
    full = prefill.get_dev_input(kit.caches[0]).numpy()
    assert full.any(axis=(0, 1, 3)).all()
    for count in (1, 4):
        with contextlib.suppress(RuntimeError):  # tolerated or refused, the contract does not say
            kit.step(prefill, x[:, :count], CONTEXT)
    np.testing.assert_array_equal(prefill.get_dev_input(kit.caches[0]).numpy(), full)


def test_of_a_chunk_across_the_end_of_the_context_the_rows_within_are_kept(kit):
    emulator_only("a chunk across the end of the context")
    x = kit.rows(CONTEXT)
    across, within = (rt.load(kit.model("attention_prefill")) for _ in range(2))
    for module, count in ((across, 4), (within, 2)):
        for at in range(0, CONTEXT - 2, 2):
            kit.step(module, x[:, at : at + 2], at)
        rows = np.concatenate([x[:, CONTEXT - 2 :], x[:, : count - 2]], axis=1)
        assert np.isfinite(kit.step(module, rows, CONTEXT - 2)).all()
    for name in kit.caches:
        np.testing.assert_array_equal(across.get_dev_input(name).numpy(), within.get_dev_input(name).numpy())


def test_going_back_overwrites_and_forgets_what_came_after(kit):
    x, other = kit.rows(10), kit.rows(10, seed=9)
    prefill = rt.load(kit.model("attention_prefill"))
    for at in (0, 4):
        kit.step(prefill, x[:, at : at + 4], at)
    mixed = np.concatenate([x[:, :3], other[:, 3:7]], axis=1)
    same_rows(kit.step(prefill, other[:, 3:7], 3), one_by_one(kit, mixed)[3:7])
