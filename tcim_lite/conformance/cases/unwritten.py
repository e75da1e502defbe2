"""Data that nobody wrote: it may be there, it may not matter."""

import numpy as np

from .. import under_test as rt
from ..checks import emulator_only
from ..registry import each

TIER = "full"


@each("filler", [0.0, 1.0, -3.0, 65504.0])
def test_rows_beyond_the_current_length_do_not_matter(attention_pair, rows, filler):
    expected, caches = None, None
    for padding in (0.0, filler):
        module = rt.load(attention_pair[0])
        x = np.full((1, 4, 128), padding, np.float32)
        x[:, :2] = rows(2)
        module.set_input("input_1", x)
        module.set_input("valid_length", np.array([0], np.int32))
        module.set_input("current_length", np.array([2], np.int32))
        module.run(True)
        found = module.get_output("logits").numpy()[:, :2]
        cache = module.get_dev_input("model_layers_0_self_attn_kcache_input").numpy()
        if expected is None:
            expected, caches = found, cache
        np.testing.assert_array_equal(found, expected)
        np.testing.assert_array_equal(cache[:, :, :2], caches[:, :, :2])


@each("filler", [1.0, 65504.0, np.inf, np.nan])
def test_cache_rows_beyond_the_valid_length_do_not_matter(attention_pair, caches, rows, step, filler):
    clean, dirty = rt.load(attention_pair[1]), rt.load(attention_pair[1])
    for module, value in ((clean, 0.0), (dirty, filler)):
        for name in caches:
            module.set_input(name, np.full(module.get_input_info(name).shape, value, np.float16))
    for token in range(6):
        x = rows(6)[:, token : token + 1]
        np.testing.assert_array_equal(step(dirty, x, token), step(clean, x, token))


def test_fresh_memory_can_be_read(add):
    info = add.get_input_info("a")
    for tensor in (
        rt.Tensor(info),
        rt.Tensor(info.ascontiguous()),
        add.get_dev_input("b"),
        add.get_dev_output("total"),
    ):
        assert tensor.to_host(True).numpy().shape == (2, 3)
        assert tensor.clone(False).numpy().shape == (2, 3)
    add.run(True)


def test_fresh_memory_is_zero(add):
    emulator_only("zero-filled memory")
    info = add.get_input_info("a")
    for tensor in (rt.Tensor(info), add.get_dev_input("b"), add.get_dev_output("total"), add.get_output("total")):
        assert not tensor.numpy().any()
