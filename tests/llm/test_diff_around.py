"""`tcim-lite diff` where every op is right: inputs that do not stay, a length that is not obeyed, lost outputs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tcim_lite.cli import main

# What a side's processes run first: a runtime with a mistake around the ops.
RUNTIMES = {
    # The second prompt chunk does not reach the graph.
    "the input input_1: B does not hold what it was given, step 1": """
def set_input(module, name, value, given=Module.set_input):
    seen[name] = seen.get(name, 0) + 1
    if name != "input_1" or seen[name] != 2:
        given(module, name, value)
Module.set_input = set_input
""",
    # Runs take the length of the first run.
    "the input current_length: B computes other rows than it says, step 1": """
def run(module, sync=False, run=Module.run, set_input=Module.set_input):
    length = module.get_dev_input("current_length").numpy()
    set_input(module, "current_length", seen.setdefault(id(module), length))
    run(module, True)
    set_input(module, "current_length", length)
Module.run = run
""",
    # Of each result with several rows the first is lost on its way out.
    "the output layers.0.attn.qkv: B computes it right and gives out something else, step 0": """
def get_output(module, name, *more, get_output=Module.get_output):
    found = get_output(module, name, *more)
    if found.shape[-2] == 1:
        return found
    values = found.numpy()
    values[..., 0, :] = 0
    return rt.Tensor(rt.TensorInfo(values.shape, values.dtype.type), values)
Module.get_output = get_output
""",
}


@pytest.mark.parametrize(
    "told",
    [
        pytest.param(told, id=name, marks=[pytest.mark.slow] * (name != "altered"))
        for told, name in zip(RUNTIMES, ("altered", "length", "delivered"), strict=True)
    ],
)
def test_an_error_around_the_ops_is_told_from_an_op(tiny_package, tmp_path, capsys, told):
    package: Path = tiny_package(quant="w4a8h0_ssfp", prefill_length=16, context_length=64).folder
    head = "import tcim_lite.runtime as rt\nModule = rt.Module\nseen = {}\n"
    (tmp_path / "sitecustomize.py").write_text(head + RUNTIMES[told])
    tokens = ",".join(map(str, range(5, 26)))  # a chunk of 16, one of 5
    options = ["--tokens", tokens, "--steps", "1", "-o", str(tmp_path / "diff")]
    status = main(["diff", str(package), str(package), *options, "--env-b", f"PYTHONPATH={tmp_path}"])
    printed = capsys.readouterr()
    assert status == 1, printed.out + printed.err
    assert f"first beyond its bound: {told} (" in printed.out
    assert told.split(", step")[0] in (tmp_path / "diff/index.html").read_text()
