"""Caches shared by two and three graphs, owned by any of them."""

import itertools

import numpy as np

from .. import under_test as rt
from ..checks import same_rows, set_input_binds
from ..registry import each

TIER = "full"
ROLES = ["attention_prefill", "attention_verify", "attention_decode"]
# Rows that each graph handles in one sequence, in this order.
STEPS = [("attention_prefill", 4), ("attention_decode", 1), ("attention_verify", 3), ("attention_decode", 1)]
STEPS += [("attention_prefill", 2), ("attention_verify", 2)]


def expected_rows(kit, tokens):
    """Outputs of the tokens one by one, by a decode graph of its own."""
    decode = rt.load(kit.model("attention_decode"))
    x = kit.rows(tokens)
    return np.stack([kit.step(decode, x[:, i : i + 1], i)[0] for i in range(tokens)])


@each("owner", ROLES)
@each("dummies", [True, False])
@each("bind", ["set_input", "set_dev_input"])
def test_three_graphs_work_on_the_caches_of_any_of_them(kit, owner, dummies, bind):
    manager = rt.WeightManager(0)
    modules = {}
    for role in ROLES:
        option = rt.Option(manager).set_dummy_tensors(kit.caches if dummies and role != owner else [])
        modules[role] = rt.load(kit.model(role), option)
    if not dummies and not set_input_binds():
        bind = "set_dev_input"
    for role in ROLES:
        if role != owner:
            for name in kit.caches:
                getattr(modules[role], bind)(name, modules[owner].get_dev_input(name))
    tokens = sum(count for _, count in STEPS)
    expected, at = expected_rows(kit, tokens), 0
    for role, count in STEPS:
        x = kit.rows(tokens)[:, at : at + count]
        same_rows(kit.step(modules[role], x, at), expected[at : at + count])
        at += count
        seen = [module.get_dev_input(kit.caches[0]).numpy() for module in modules.values()]
        assert all((cache == seen[0]).all() for cache in seen)


def test_a_binding_may_change_between_runs(kit):
    prefill = rt.load(kit.model("attention_prefill"))
    owners = [rt.load(kit.model("attention_decode")) for _ in range(3)]
    expected = expected_rows(kit, 8)
    for owner in owners:
        for name in kit.caches:
            prefill.set_dev_input(name, owner.get_dev_input(name))
        kit.step(prefill, kit.rows(8)[:, :3], 0)
    for owner in owners:
        same_rows(kit.step(owner, kit.rows(8)[:, 3:4], 3)[0], expected[3])
    for name in kit.caches:
        prefill.set_dev_input(name, owners[1].get_dev_input(name))
    same_rows(kit.step(prefill, kit.rows(8)[:, 4:8], 4), expected[4:])
    assert not owners[0].get_dev_input(kit.caches[0]).numpy()[0, :, 4:].any()
    assert owners[1].get_dev_input(kit.caches[0]).numpy()[0, :, 4:8].any()


def test_host_writes_reach_every_graph_whoever_is_asked(kit):
    modules = [rt.load(kit.model(role)) for role in ROLES]
    for module in modules[1:]:
        for name in kit.caches:
            module.set_dev_input(name, modules[0].get_dev_input(name))
    rng = np.random.default_rng(3)
    for writer, reader in itertools.product(modules, modules):
        for name in kit.caches:
            values = rng.standard_normal((1, 2, 32, 64)).astype(np.float16)
            writer.set_input(name, values)
            np.testing.assert_array_equal(reader.get_dev_input(name).numpy(), values)


def test_keys_and_values_are_not_mixed_up(kit):
    """Keys that agree with every query equally give the mean of the values."""
    decode = rt.load(kit.model("attention_decode"))
    values = np.random.default_rng(4).standard_normal((1, 2, 32, 64)).astype(np.float16)
    decode.set_input(kit.caches[0], np.zeros((1, 2, 32, 64), np.float16))
    decode.set_input(kit.caches[1], values)
    found = kit.step(decode, np.zeros((1, 1, 128), np.float32), 7).reshape(2, 64)
    mean = np.concatenate([values[0, :, :7], np.zeros((2, 1, 64), np.float16)], axis=1).astype(np.float64).mean(1)
    kit.measure("attention over equal keys, float16: largest error", np.abs(found - mean).max(), 2e-3)


def test_one_tensor_for_keys_and_values_is_what_it_says(kit):
    """Both caches in one memory: each row is written twice with the same bytes here, so nothing changes."""
    decode, expected = rt.load(kit.model("attention_decode")), expected_rows(kit, 5)
    shared = decode.get_dev_input(kit.caches[0])
    decode.set_dev_input(kit.caches[1], shared)
    for token in range(5):
        found = kit.step(decode, kit.rows(5)[:, token : token + 1], token)
        np.testing.assert_array_equal(found[0], expected[token])


@each("count", [2, 5])
def test_sequences_with_caches_of_their_own_do_not_meet(kit, count):
    prefill = rt.load(kit.model("attention_prefill"))
    info = prefill.get_dev_input(kit.caches[0]).info
    sets = [[rt.Tensor(info) for _ in kit.caches] for _ in range(count)]
    inputs = [kit.rows(12, seed) for seed in range(count)]
    alone = []
    for x in inputs:
        single = rt.load(kit.model("attention_prefill"))
        alone.append(np.concatenate([kit.step(single, x[:, at : at + 4], at) for at in (0, 4, 8)]))
    found = [[] for _ in range(count)]
    for at in (0, 4, 8):
        for number in range(count):
            for name, tensor in zip(kit.caches, sets[number], strict=True):
                prefill.set_dev_input(name, tensor)
            found[number].append(kit.step(prefill, inputs[number][:, at : at + 4], at))
    for number in range(count):
        np.testing.assert_array_equal(np.concatenate(found[number]), alone[number])
