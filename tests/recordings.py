"""Small recordings for tests, made in processes of their own."""

from __future__ import annotations

import os
import textwrap
from pathlib import Path

import warm_python


def record(script: str, file: Path, *arguments: object, data: str = "all", **environment: str) -> str:
    """Runs Python text under `TCIM_LITE_LAYERS=record:FILE` and returns what it printed."""
    variables = {"TCIM_LITE_LAYERS": f"record:{file}", "TCIM_LITE_RECORD_DATA": data, **environment}
    done = warm_python.run("-c", textwrap.dedent(script), *arguments, env=os.environ | variables, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


# argv: an add model, two attention models that share caches.
PROGRAM = """
import sys, contextlib
import numpy as np
import tcim_lite.runtime as rt

rng = np.random.default_rng(7)
add = rt.load(sys.argv[1])
print(add.get_input_name(1), add.get_input_info("a").shape, add.get_num_inputs())
add.set_input("a", rng.standard_normal((2, 3)).astype(np.float32))
add.set_dev_input("b", add.get_dev_input("a").clone())
add.set_stream(rt.Stream())
add.run(run_option=rt.RunOption(2))
with contextlib.suppress(rt.UnknownNameError):
    add.set_input("nothing", 1)
print(add.get_output("total", add.get_output_info("total").astype(np.float32)).numpy())
add.set_stream(None)
host = rt.Tensor(rt.TensorInfo((2, 3), np.float32))
add.set_output("total", host)
add.run(sync=True)
print(host.numpy(), add.get_dev_output("total").select_roi([0, 1], [2, 2]).to_host(True).astype(np.float32).numpy())

prefill = rt.load(sys.argv[2])
names = [name for name in map(prefill.get_input_name, range(prefill.get_num_inputs())) if "cache" in name]
decode = rt.load(sys.argv[3], rt.Option(rt.WeightManager(0)).set_dummy_tensors(names))
for name in names:
    decode.set_input(name, prefill.get_dev_input(name))
for module, rows in ((prefill, 4), (decode, 1), (decode, 1)):
    module.set_input("input_1", rng.standard_normal((1, rows, 128)).astype(np.float32)[:, ::1])
    module.set_input("valid_length", np.int32(0 if module is prefill else 4))
    module.set_input("current_length", np.array(rows))
    module.run()
    module.sync()
    print(module.get_output("logits").to_host().numpy().sum())
"""
