"""The tools on the examples as they stand: trace, clock, dump, diff. Others have recordings, faults and port-check."""

from __future__ import annotations

import json

import pytest
from planted import plant, wrong_weight

from tcim_lite.cli import main
from tcim_lite.diff.folder import Dump
from tcim_lite.trace_summary import summarize

pytestmark = pytest.mark.slow  # whole programs
ASKED = ("--question", "What is 12 + 30?", "--max-new-tokens", 6)
EXAMPLES = {
    "qwen3_chat": ((), 1),
    "qwen3_multibatch": (("--batch", "2"), 1),
    "qwen3_pipeline": (("--pipeline", "2"), 2),
}


@pytest.mark.parametrize("example", EXAMPLES)
def test_a_traced_example_has_its_runs_and_their_modelled_time(compile_demo, run_example, tmp_path, example):
    options, devices = EXAMPLES[example]
    package, file = compile_demo(*options), tmp_path / "trace.json"
    # An answer that is alone in a batch comes from the prefill graph.
    second = ("--question", "Hello, who are you?") * (example == "qwen3_multibatch")
    done = run_example(
        f"{example}.py", package.folder, *ASKED, *second, TCIM_LITE_DEVICE_NUM=str(devices),
        TCIM_LITE_LAYERS=f"trace:{file}", TCIM_LITE_TRACE_PHASES="layers",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = summarize(file)
    runs, modelled = ({cost.name: cost for cost in found.costs[kind]} for kind in ("run", "modelled"))
    assert runs.keys() <= {path.name for path in package.folder.glob("*.hmm")}
    assert {"prefill" in name for name in runs} == {True, False}
    assert all(modelled[name].count == runs[name].count for name in runs)
    assert all(modelled[name].seconds > 0 for name in runs)
    called = {cost.name: cost.count for cost in found.costs["call"]}
    assert sum(cost.count for cost in runs.values()) == called["Module.run"]
    assert sum(cost.name.startswith("layers.") for cost in found.costs["layer"]) == 4
    assert len(found.memory) == devices
    assert len(found.processes) == len({event["pid"] for event in json.loads(file.read_text())})


def test_the_calls_of_an_example_are_dumped_and_locate_a_wrong_weight(compile_demo, run_example, tmp_path, capsys):
    package, file = compile_demo(), tmp_path / "chat.tcimrec"
    done = run_example("qwen3_chat.py", package.folder, *ASKED[:-1], 3, TCIM_LITE_LAYERS=f"record:{file}")
    assert done.returncode == 0, done.stderr
    calls = ["--recording", str(file)]
    assert main(["dump", str(package.folder), "-o", str(tmp_path / "dump"), "--taps", "layers.0.attn.mix", *calls]) == 0
    steps = Dump.open(tmp_path / "dump").steps
    assert [step.graph.split("_")[-1] for step in steps] == ["prefill", "decode", "decode"]
    assert all("layers.0.attn.mix" in step.tensors for step in steps)
    wrong = plant(package.folder, tmp_path / "bad", {"layers.2.mlp.down_proj.weight": wrong_weight})
    assert main(["diff", str(package.folder), str(wrong), "-o", str(tmp_path / "diff"), *calls]) == 1
    assert "the op Linear that makes layers.2.mlp.out, step 0" in capsys.readouterr().out
