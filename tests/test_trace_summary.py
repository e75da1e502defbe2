"""`tcim-lite trace-summary`: what a trace for Perfetto adds up to."""

from __future__ import annotations

import json
import os

import numpy as np
import pytest
from tiny_graphs import attention_graph
from traces import checked, slices

import tcim_lite.runtime as rt
from tcim_lite import hmm, layers
from tcim_lite.cli import main
from tcim_lite.trace_summary import summarize


def test_the_summary_adds_up_what_the_trace_holds(tmp_path, capsys):
    attention, file = tmp_path / "attention.hmm", tmp_path / "t.json"
    hmm.write_model(attention, attention_graph(4), ())
    layers.enable("trace", file=file, phases="ops")
    module = rt.load(attention)
    module.set_input("current_length", np.int32([3]))
    module.run(True, rt.RunOption(5))
    with pytest.raises(rt.UnknownNameError):
        module.set_input("nothing", 1)
    layers.disable("trace")
    summary = summarize(file)
    calls = {cost.name: cost for cost in summary.costs["call"]}
    assert (calls["Module.set_input"].count, calls["Module.set_input"].errors) == (2, 1)
    (run,) = summary.costs["run"]
    events = checked(file)
    assert (run.name, run.count) == ("attention.hmm", 5)
    assert run.seconds == pytest.approx(sum(event["dur"] for event in slices(events, "run")) * 1e-6)
    assert run.longest == pytest.approx(max(event["dur"] for event in slices(events, "run")) * 1e-6)
    assert list(summary.cache_rows.values()) == [3]
    assert summary.memory["device 0"] > 0
    assert main(["trace-summary", str(file), "--top", "1"]) == 0
    text = capsys.readouterr().out
    assert "the chip, modelled time" in text
    assert f"and {len(calls) - 1} more" in text
    assert main(["trace-summary", str(file), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["costs"]["run"][0]["count"] == 5


def test_the_summary_reads_regular_files_only(tmp_path, capsys):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path, tmp_path / "nothing", "/dev/zero"):
        assert main(["trace-summary", str(path)]) == 2
        assert "there is no such file, or it is no regular file" in capsys.readouterr().err


@pytest.mark.parametrize(
    "content", ["", "[1]", "{}", '[{"ph": "X", "name": "a", "pid": 1}]', "[" * 100000, '{"a": 1}', '[{"ph']
)
def test_the_summary_refuses_what_is_no_trace(tmp_path, content, capsys):
    (tmp_path / "t.json").write_text(content)
    assert main(["trace-summary", str(tmp_path / "t.json")]) == 2
    assert "is no trace of calls, or a part of one; copy it again, or write one" in capsys.readouterr().err
