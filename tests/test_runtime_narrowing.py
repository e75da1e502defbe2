"""Cast with `from`: an input of float32 in a graph whose other tensors are float16."""

import numpy as np
import pytest
from graph_maker import GraphMaker

import tcim_lite.runtime as rt
from tcim_lite import hmm
from tcim_lite.errors import HmmFormatError

SHAPE = (3, 5, 400)  # several tasks and a tail


def write(path, given="float32", taken="float16", attributes=None, read=None):
    """y = relu(cast(x)); with `read` the value that relu reads."""
    maker = GraphMaker("narrowing", taken)
    x = maker.input("x", SHAPE, given)
    halves = maker.op("Cast", [x], "halves", SHAPE, **{"from": "float32"} if attributes is None else attributes)
    y = maker.op("Relu", [halves if read is None else read], "y", SHAPE)
    path.write_bytes(maker.file(halves, y))
    return path


def numbers() -> np.ndarray:
    """Of every exponent, ties between two halves, and beyond them."""
    rng = np.random.default_rng(2)
    x = np.ldexp(rng.uniform(-1, 1, SHAPE), rng.integers(-30, 20, SHAPE)).astype(np.float32)
    halves = rng.standard_normal(2000).astype(np.float16)
    x.reshape(-1)[:2000] = (halves.astype(np.float64) + np.nextafter(halves, np.float16(9))) / 2
    x[2, 0, :6] = [65504, 65519.9, 65520, -1e30, 3e38, -0.0]
    return x


@pytest.mark.parametrize("numerics", ["", "float"])
def test_each_number_is_rounded_once(tmp_path, monkeypatch, numerics):
    monkeypatch.setenv("TCIM_LITE_NUMERICS", numerics)
    module, x = rt.load(write(tmp_path / "m.hmm")), numbers()
    assert module.get_input_info("x").dtype == np.float32
    module.set_input("x", x)
    module.run(True)
    expected = np.clip(x.astype(np.float64), -65504, 65504).astype(np.float16)
    np.testing.assert_array_equal(module.get_output("halves").numpy(), expected)
    np.testing.assert_array_equal(module.get_output("y").numpy(), np.maximum(expected, 0))
    given = np.roll(expected, 7)  # a program that gives float16
    module.set_input("x", given)
    module.run(True)
    np.testing.assert_array_equal(module.get_output("halves").numpy(), given)


def test_a_file_says_the_version_that_older_runtimes_lack(tmp_path):
    plain = write(tmp_path / "n.hmm", "int32", attributes={})
    assert [hmm.read(path).version for path in (write(tmp_path / "m.hmm"), plain)] == [(1, 6), (1, 3)]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"attributes": {"from": "float16"}}, "attribute 'from' is 'float16', which this version does not know"),
        ({"attributes": {"from": 1}}, "attribute 'from' is no string"),
        ({"given": "float16"}, r"'x' is input float16 .*, expected float32"),
        ({"given": "int32"}, r"'x' is input int32 .*, expected float32"),
        ({"taken": "float32"}, r"'halves' is float32 .*, expected float16"),
        ({"read": 0}, r"'x' is input float32 .*, the graph's other tensors are float16"),
    ],
)
def test_others_are_refused(tmp_path, changes, message):
    with pytest.raises(HmmFormatError, match=message):
        rt.load(write(tmp_path / "m.hmm", **changes))
