"""Which names of a Python program port-check follows."""

from __future__ import annotations

import pytest

from tcim_lite.portcheck import check
from tcim_lite.portcheck.api import DISTINCT


def test_an_import_inside_a_function_is_one_of_the_api(tmp_path):
    """As in programs that have another backend beside the card's."""
    text = """
class Runner:
    def __init__(self, path):
        import tcim_lite

        self.module = tcim_lite.runtime.load(str(path))
        self.names = [self.module.get_input_name(i) for i in range(self.module.get_num_inputs())]
"""
    (tmp_path / "program.py").write_text(text)
    report = check([tmp_path / "program.py"])
    assert {use.name for use in report.uses} == {"load", "Module.get_input_name", "Module.get_num_inputs"}


def test_the_class_of_modules_may_be_asked_of_the_package(tmp_path):
    """Of no function that is called, so the annotation alone says what the parameter is."""
    text = """
import tcim_lite as tcim

def fed(module: tcim.Module, name: str):
    return module.get_input_info(name).shape
"""
    (tmp_path / "program.py").write_text(text)
    report = check([tmp_path / "program.py"])
    assert {use.name for use in report.uses} == {"Module.get_input_info", "TensorInfo.shape"}


def test_a_class_may_have_a_method_of_a_name_of_the_api(tmp_path):
    """Such as `get_input_names`: what else the class has is then not asked of the API."""
    text = """
import tcim_lite.runtime as rt

class Chat:
    def __init__(self, path):
        self.clock = Clock()
        self.clock.start()
        self.module = rt.load(path)
        self.names = self.METHOD()

    def METHOD(self):
        return [self.module.get_input_name(i) for i in range(self.module.get_num_inputs())]
"""
    for method in DISTINCT:
        (tmp_path / "program.py").write_text(text.replace("METHOD", method))
        report = check([tmp_path / "program.py"])
        assert {use.name for use in report.uses} == {"load", "Module.get_input_name", "Module.get_num_inputs"}, method


@pytest.mark.parametrize(
    ("lines", "risky"),
    [
        (["a = np.zeros(8)", "a = a.reshape(1, 8)"], False),
        (["a = np.zeros(8)", "b = a.reshape(1, 8)", "a = b.reshape(8)"], False),
        (["a = np.ascontiguousarray(a)"], False),
        (["a = image.astype(np.uint8)", "a = np.ascontiguousarray(a.reshape(1, 8))"], True),
        (["a = image.astype(np.uint8)", "a = a.astype(np.float16)", "a = a.reshape(1, 8)"], False),
    ],
)
def test_arrays_that_take_their_own_name_again_are_followed(tmp_path, lines, risky):
    first = "import numpy as np, tcim_lite as tcim", "module = tcim.runtime.load('net.hmm')"
    text = "\n".join([*first, *lines, "module.set_input('x', a)", "module.run()", "module.sync()"])
    (tmp_path / "program.py").write_text(text)
    assert [risk.code for risk in check([tmp_path / "program.py"]).risks] == ["P-301"] * risky
