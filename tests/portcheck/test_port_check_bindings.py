"""`tcim-lite port-check` knows the object behind a name as the program binds it anew."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from cpp_programs import sdk  # noqa: F401

from tcim_lite.portcheck import check


def test_what_else_a_name_is_bound_to_has_members_of_its_own(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        """import threading, time
import tcim_lite.runtime as rt
module = rt.load("a.hmm")
workers = [threading.Thread(target=module.run) for _ in range(4)]
[t.start() for t in workers]
t = rt.Tensor(module.get_input_info("a"))
[t.join() for t in workers]
logits = module.get_output("logits")
logits = logits.numpy()
print(logits.argmax(), [m.sync() for m in [module]])
start = time.localtime()
print(start.tm_hour)
start = rt.Stream()
class Chat:
    def __init__(self):
        self.model = None
    def open(self):
        self.model = rt.load("b.hmm")
        self.model.warm_up()
def stop(t, rt, extra=None):
    t.stop(), rt.stop_all()
    for module in range(3):
        module.real
def wait(module):
    module.get_core_num()
print(sorted(workers, key=lambda t: t.ident))
"""
    )
    names = {use.name for use in check([program]).uses}
    assert {name for name in names if "Module." in name} == {
        "Module.get_core_num", "Module.get_input_info", "Module.get_output", "Module.run", "Module.sync",
        "Module.warm_up",
    }  # fmt: skip
    others = {"Tensor.start", "Tensor.join", "Tensor.argmax", "Tensor.stop", "Tensor.ident", "Stream.tm_hour"}
    assert names & (others | {"stop_all"}) == set()


@pytest.mark.parametrize("where", ["of the file", "of a function"])
@pytest.mark.parametrize(
    "binding",
    [
        "try: open('x')\nexcept OSError as NAME: NAME.errno",
        "NAME += 1\nNAME.errno",
        "match 1:\n  case NAME: NAME.errno",
        "match 1:\n  case [int() as NAME]: NAME.errno",
        "match 1:\n  case [_, *NAME]: NAME.errno",
        "match 1:\n  case {1: _, **NAME}: NAME.errno",
        "match 1:\n  case int(real=NAME) | [NAME]: NAME.errno",
    ],
)
@pytest.mark.parametrize("name", ["module", "rt"])
def test_every_way_of_binding_a_name_anew_counts(tmp_path, where, binding, name):
    text = binding.replace("NAME", name) + "\n"
    if where == "of a function":
        text = "def f():\n" + "".join(f"  {line}\n" for line in text.splitlines())
    program = tmp_path / "program.py"
    program.write_text(f"import tcim_lite.runtime as rt\nmodule = rt.load('a.hmm')\nmodule.sync()\n{text}")
    names = {use.name for use in check([program]).uses}
    assert {"load", "Module.sync"} <= names
    assert names & {"errno", "Module.errno"} == set()
