"""Wrong arguments of every entry point: refused, and what was there before is still there."""

import numpy as np

from .. import under_test as rt
from ..checks import emulator_only, refused
from ..registry import each

TIER = "full"
VALUES = np.arange(6, dtype=np.float16).reshape(2, 3)


def state(module):
    """What one can read of a module: inputs, outputs, infos."""
    names = [module.get_input_name(i) for i in range(module.get_num_inputs())]
    outputs = [module.get_output_name(i) for i in range(module.get_num_outputs())]
    return (
        [(name, module.get_input_info(name).shape, module.get_dev_input(name).numpy().tobytes()) for name in names],
        [(name, module.get_output_info(name).shape, module.get_output(name).numpy().tobytes()) for name in outputs],
    )


def loaded(kit):
    """`add` after a run, with an output in a tensor of the caller's."""
    module = rt.load(kit.model("add"))
    module.set_input("a", VALUES)
    module.set_input("b", VALUES)
    module.set_input("length", np.array([5], np.int32))
    module.run(True)
    return module


def device_tensor(module, dtype=np.float16, shape=(2, 3)):
    """A device tensor; `shape` has at most as many elements as `total`."""
    whole = rt.Tensor(module.get_output_info("total")).astype(dtype)
    return whole if shape == (2, 3) else whole.select_roi([0, 0], list(shape))


def host_tensor(module):
    return rt.Tensor(module.get_input_info("a").ascontiguous(), VALUES)


# (call, the emulator's class, its words)
SET = {
    "set_input of no such name": (lambda m: m.set_input("nobody", VALUES), "KeyError", "nobody"),
    "set_input of too few": (lambda m: m.set_input("a", VALUES[0]), "ShapeError", "3"),
    "set_input of too many": (lambda m: m.set_input("a", np.zeros(7)), "ShapeError", "7"),
    "set_input of nothing": (lambda m: m.set_input("a", np.zeros(0)), "ShapeError", "0"),
    "set_input of text": (lambda m: m.set_input("a", np.array(["x"] * 6)), "ArgumentError", "cannot be converted"),
    "set_input of objects": (lambda m: m.set_input("a", np.array([object()] * 6)), "ArgumentError", "dtype object"),
    "set_input of complex": (lambda m: m.set_input("a", np.ones(6, complex)), "ArgumentError", "dtype complex128"),
    "set_input of None": (lambda m: m.set_input("a", None), "ArgumentError", "NoneType"),
    "set_input of what does not fit": (lambda m: m.set_input("length", np.array([1 << 31])), "ValueError", "fit"),
    "set_input of a small tensor": (lambda m: m.set_input("a", device_tensor(m, shape=(1, 3))), "ShapeError", "3"),
    "set_input of another dtype": (lambda m: m.set_input("a", device_tensor(m, np.float32)), "ShapeError", "float32"),
    "set_dev_input of no such name": (lambda m: m.set_dev_input("nobody", device_tensor(m)), "KeyError", "nobody"),
    "set_dev_input of an array": (lambda m: m.set_dev_input("a", VALUES), "TypeError", ""),
    "set_dev_input of a host tensor": (lambda m: m.set_dev_input("a", host_tensor(m)), "TcimError", "host"),
    "set_dev_input of another dtype": (
        lambda m: m.set_dev_input("a", device_tensor(m, np.float32)),
        "ShapeError",
        "float32",
    ),
    "set_dev_output of no such name": (lambda m: m.set_dev_output("nobody", device_tensor(m)), "KeyError", "nobody"),
    "set_dev_output of an input": (lambda m: m.set_dev_output("a", device_tensor(m)), "KeyError", "a"),
    "set_dev_output of an array": (lambda m: m.set_dev_output("total", VALUES), "TypeError", ""),
    "set_dev_output of another dtype": (
        lambda m: m.set_dev_output("total", device_tensor(m, np.float32)),
        "ShapeError",
        "float32",
    ),
    "set_output of a small tensor": (
        lambda m: m.set_output("total", device_tensor(m, shape=(1, 3))),
        "ShapeError",
        "3",
    ),
    "set_stream of what is none": (lambda m: m.set_stream(5), "TypeError", ""),
}
GET = {
    "get_input_info": (lambda m: m.get_input_info("total"), "KeyError", "no input is named 'total'"),
    "get_output_info": (lambda m: m.get_output_info("a"), "KeyError", "no output is named 'a'"),
    "get_dev_input": (lambda m: m.get_dev_input(""), "KeyError", ""),
    "get_dev_output": (lambda m: m.get_dev_output("nobody"), "KeyError", "nobody"),
    "get_output": (lambda m: m.get_output("nobody"), "KeyError", "nobody"),
    "get_output with a small info": (
        lambda m: m.get_output("total", m.get_input_info("length")),
        "ShapeError",
        "",
    ),
    "get_input_name beyond": (lambda m: m.get_input_name(4), "Exception", ""),
    "get_output_name beyond": (lambda m: m.get_output_name(1), "Exception", ""),
    "run with what is no option": (lambda m: m.run(False, "three"), "TypeError", ""),
}


@each("what", SET)
def test_a_refused_setter_changes_nothing(kit, what):
    module = loaded(kit)
    before = state(module)
    call, kind, words = SET[what]
    with refused(kind, words):
        call(module)
    assert state(module) == before
    module.run(True)
    assert state(module) == before
    module.set_input("a", VALUES + 1)  # and it still works
    module.run(True)
    np.testing.assert_array_equal(module.get_output("total").numpy(), 2 * VALUES + 1)


@each("what", GET)
def test_a_refused_query_changes_nothing(kit, what):
    module = loaded(kit)
    before = state(module)
    call, kind, words = GET[what]
    with refused(kind, words):
        call(module)
    assert state(module) == before


TENSOR = {
    "select_roi outside": (lambda t: t.select_roi([1, 1], [2, 2]), "ShapeError", "do not lie inside"),
    "select_roi of another rank": (lambda t: t.select_roi([0], [1]), "ShapeError", ""),
    "select_roi of nothing": (lambda t: t.select_roi([0, 0], [0, 1]), "ShapeError", ""),
    "copy_to of another dtype": (lambda t: t.copy_to(t.astype(np.float32)), "ShapeError", "cast_to"),
    "copy_to a small one": (lambda t: t.copy_to(t.clone().select_roi([0, 0], [1, 3])), "ShapeError", ""),
    "copy_to an array": (lambda t: t.copy_to(VALUES.copy()), "TypeError", ""),
    "cast_to a small one": (lambda t: t.cast_to(t.clone().select_roi([0, 0], [1, 3])), "ShapeError", ""),
    "astype float64": (lambda t: t.astype(np.float64), "ValueError", "float64"),
    "an array that does not fit": (lambda t: rt.Tensor(t.info, np.zeros(7)), "ShapeError", "7"),
}


@each("place", ["get_output", "get_dev_output"])
@each("what", TENSOR)
def test_a_refused_tensor_verb_changes_nothing(kit, place, what):
    tensor = getattr(loaded(kit), place)("total")
    before = tensor.numpy().tobytes()
    call, kind, words = TENSOR[what]
    with refused(kind, words):
        call(tensor)
    assert tensor.numpy().tobytes() == before


def test_managers_refuse_device_ids_that_are_none():
    for bad in ([], [-1], [1 << 40]):
        with refused("ValueError"):
            rt.DevManager(bad, "Xh2HalBackend")
    for bad in (["0"], [0.5], [True], "0", None):
        with refused("TypeError"):
            rt.DevManager(bad, "Xh2HalBackend")


def test_run_options_refuse_rounds_below_one():
    for bad in (0, -1):
        with refused("ValueError", f"{bad}"):
            rt.RunOption(bad)


def test_options_refuse_what_is_no_device():
    emulator_only("the classes of constructors' errors")
    for bad in ("0", 0.5, object()):
        with refused("TypeError"):
            rt.Option(bad)
        with refused("TypeError"):
            rt.WeightManager(bad)
    for bad in (None, 5, "ab", [3]):
        with refused("TypeError"):
            rt.Option().set_dummy_tensors(bad)
    for bad in ((-1, 5), (0, 0), (5, -1)):
        with refused("ValueError"):
            rt.Option().set_model_offset(*bad)


def test_load_refuses_what_is_no_model(kit, tmp_path):
    model = kit.model("add").read_bytes()
    for size in sorted({0, 1, 16, *range(40, len(model), max(1, len(model) // 16))}):
        with refused("HmmFormatError"):
            rt.load(model[:size])
        (tmp_path / "cut.hmm").write_bytes(model[:size])
        with refused("HmmFormatError", "cut"):
            rt.load(str(tmp_path / "cut.hmm"))
    for bad in (None, 5, ["model.hmm"]):
        with refused("TypeError"):
            rt.load(bad)
    with refused("TypeError"):
        rt.load(kit.model("add"), 0.5)


LENGTHS = {"current 0": (0, 0), "current 5 of 4": (0, 5), "valid below 0": (-1, 1)}


@each("what", LENGTHS)
def test_refused_lengths_leave_the_caches_alone(attention_pair, caches, rows, step, what):
    valid, current = LENGTHS[what]
    prefill = rt.load(attention_pair[0])
    step(prefill, rows(4), 0)
    before = [prefill.get_dev_input(name).numpy().tobytes() for name in caches]
    prefill.set_input("valid_length", np.array([valid], np.int32))
    prefill.set_input("current_length", np.array([current], np.int32))
    with refused("ArgumentError"):
        prefill.run()
        prefill.sync()
    assert [prefill.get_dev_input(name).numpy().tobytes() for name in caches] == before
    again = rt.load(attention_pair[0])
    step(again, rows(4), 0)
    np.testing.assert_array_equal(step(prefill, rows(2, 1), 4), step(again, rows(2, 1), 4))


READS = {
    "sync": lambda module: module.sync(),
    "another run": lambda module: [module.run(), module.sync()],
    "get_output": lambda module: module.get_output("logits"),
}


@each("call", READS)
def test_an_error_of_queued_work_is_raised_by_what_comes_next(attention_pair, rows, step, call):
    if call == "get_output":
        emulator_only("reads without sync")
    module, again = (rt.load(attention_pair[0]) for _ in range(2))
    step(module, rows(4), 0)
    step(again, rows(4), 0)
    module.set_input("valid_length", np.array([4], np.int32))
    module.set_input("current_length", np.array([5], np.int32))
    with refused("ArgumentError", "current_length", status="INVALID_ARGUMENT"):
        module.run()
        READS[call](module)
    np.testing.assert_array_equal(step(module, rows(2, 1), 4), step(again, rows(2, 1), 4))


def test_an_error_of_queued_work_is_raised_once(add):
    emulator_only("rows that are not finite")
    add.set_input("a", np.full((2, 3), np.nan))
    add.run()
    with refused("ArgumentError"):
        add.sync()
    add.sync()
    add.set_input("a", VALUES)
    add.run(True)
    np.testing.assert_array_equal(add.get_output("total").numpy(), VALUES)
