"""In whatever order things go, what is left works."""

import gc
import itertools

import numpy as np

from .. import under_test as rt
from ..registry import each

TIER = "full"


@each("first", ["manager", "option", "prefill", "tensor", "stream"])
def test_objects_may_go_in_any_order(attention_pair, caches, rows, step, first):
    expected = step(rt.load(attention_pair[1]), rows(1), 0)
    others = [name for name in ("manager", "option", "prefill", "tensor", "stream") if name != first]
    for rest in itertools.permutations(others):
        manager = rt.WeightManager(0)
        option = rt.Option(manager).set_dummy_tensors(caches)
        decode = rt.load(attention_pair[1], option)
        things = {
            "manager": manager,
            "option": option,
            "prefill": rt.load(attention_pair[0], rt.Option(manager)),
            "stream": rt.Stream(),
        }
        things["tensor"] = things["prefill"].get_dev_input(caches[0])
        decode.set_input(caches[0], things["tensor"])
        decode.set_input(caches[1], things["prefill"].get_dev_input(caches[1]))
        decode.set_stream(things["stream"])
        del manager, option
        for name in (first, *rest):
            del things[name]
            np.testing.assert_array_equal(step(decode, rows(1), 0), expected)


def test_a_module_may_go_with_work_queued(kit, slow):
    ones = np.ones((1, 256, 4096), np.float32)
    slow.set_input("a", ones)
    for _ in range(5):
        module = rt.load(kit.model("add_slow"))
        module.set_input("a", ones)
        target = slow.get_dev_input("b")
        module.set_dev_output("total", target)
        module.run(False, rt.RunOption(3))
        del module
        gc.collect()
        slow.run()
        assert (slow.get_output("total").numpy() == 2).all()


def test_views_and_clones_outlive_their_tensor_and_its_module(kit):
    module = rt.load(kit.model("add_4x5"))
    values = np.arange(20, dtype=np.float32).reshape(4, 5)
    module.set_input("a", values)
    module.run(True)
    tensor = module.get_dev_output("total")
    view, clone, host = tensor.select_roi([1, 1], [2, 3]), tensor.clone(True), tensor.to_host(True)
    inner = view.select_roi([1, 0], [1, 2])
    del module, tensor, view
    gc.collect()
    np.testing.assert_array_equal(inner.numpy(), values[2:3, 1:3])
    np.testing.assert_array_equal(clone.numpy(), values)
    np.testing.assert_array_equal(host.numpy(), values)


def test_a_stream_may_be_changed_between_runs(add):
    add.set_dev_output("total", add.get_dev_input("b"))
    add.set_input("a", np.ones((2, 3)))
    for _ in range(20):
        add.set_stream(rt.Stream())
        add.run()
    add.sync()
    assert (add.get_dev_input("b").numpy() == 20).all()
