"""Recordings of calls, and their replay: bit for bit, within a tolerance, and what differs first."""

from __future__ import annotations

import dataclasses
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from recordings import PROGRAM, record
from tiny_graphs import add_graph, sinks_graph
from warm_python import ISOLATED

from tcim_lite import hmm
from tcim_lite.cli import main
from tcim_lite.replay import (
    Recording,
    RecordingError,
    RecordingWriter,
    Tolerance,
    assert_replays,
    difference,
    replay,
)
from tcim_lite.replay.fingerprint import fingerprint


@pytest.fixture
def models(add_model, attention_pair) -> list[Path]:
    return [add_model, *attention_pair]


@pytest.fixture
def recorded(tmp_path, models):
    """recorded(data) -> the file of a recording of `PROGRAM`."""

    def make(data: str = "all") -> Path:
        record(PROGRAM, tmp_path / f"{data}.tcimrec", *models, data=data)
        return tmp_path / f"{data}.tcimrec"

    return make


def test_the_fingerprint_is_that_of_the_page():
    """docs/recording.md gives these; the layer's own are compared by every replay."""
    page = (Path(__file__).parent.parent / "docs/recording.md").read_text()
    for content in (b"", b"a", bytes(range(256)) * 100):
        assert f"{fingerprint(content):016x}" in page


def test_flipped_signs_change_the_fingerprint():
    values = np.random.default_rng(1).standard_normal(4096).astype(np.float32)
    flipped = -values
    assert fingerprint(values.tobytes()) != fingerprint(flipped.tobytes())
    pair = values.copy()
    pair[[101, 303]] *= -1  # both in the upper half of a word
    assert fingerprint(values.tobytes()) != fingerprint(pair.tobytes())


@pytest.mark.parametrize("data", ["inputs", "all", "states"])
def test_a_replay_equals_its_recording_bit_for_bit(recorded, data):
    file = recorded(data)
    done = replay(file)
    assert done.mismatches == []
    assert not done.notes
    names = {entry["call"] for entry in Recording(file).records if "call" in entry}
    assert names - set(done.skipped) >= {"Module.set_output", "Tensor.select_roi", "Module.set_stream", "Tensor.clone"}
    assert set(done.skipped) <= {"Stream.create"}
    assert done.compared >= 12 + (6 if data == "states" else 0)
    assert_replays(file)


def test_data_by_choice(recorded):
    stored = {}
    for data in ("none", "inputs", "outputs", "all", "states"):
        recording = Recording(recorded(data))
        assert recording.complete
        assert recording.meta["data"] == data
        stored[data] = set(recording.data_hashes())
    assert stored["none"] == set()
    assert stored["inputs"] | stored["outputs"] == stored["all"] < stored["states"]
    assert stored["inputs"]
    assert stored["outputs"]


def test_a_replay_without_the_inputs_says_what_is_missing(recorded, capfd):
    assert main(["replay", str(recorded("none"))]) == 2
    assert "('a') were not stored; record with TCIM_LITE_RECORD_DATA=inputs" in capfd.readouterr().err


def test_the_first_call_that_differs_is_named(recorded, models, tmp_path, capsys):
    """With another model in the place of decode: an attention sink takes part of every sum."""
    file = recorded("all")
    package = tmp_path / "changed"
    package.mkdir()
    for model in models:
        shutil.copy(model, package)
    hmm.write_model(package / models[2].name, *sinks_graph(1))
    done = replay(file, package=package)
    (first,) = done.mismatches
    assert "Module.get_output" in first.call
    assert re.search(r"\d+ of 128 elements differ, the first at \[0, 0, 0\]: .*, recorded was ", first.text)
    decode = [entry["module"] for entry in Recording(file).records if entry.get("call") == "Module.load"][2]
    assert f"model {decode} " in first.call
    assert main(["replay", str(file), "--package", str(package)]) == 1
    printed = capsys.readouterr().out
    assert f"note: {package / models[2].name} is not the file that was recorded" in printed
    assert "DIFFERS at" in printed
    assert main(["replay", str(file), "--package", str(package), "--tolerance", "rel=2"]) == 0
    assert main(["replay", str(file), "--package", str(package), "--all"]) == 1
    assert capsys.readouterr().out.count("DIFFERS at") == 6  # get_output, to_host and numpy, of two runs
    with pytest.raises(AssertionError, match="differs from the recording at call"):
        assert_replays(file, package=package)


def test_states_locate_a_difference_before_any_output_is_read(recorded, models, tmp_path, monkeypatch):
    file = recorded("states")
    monkeypatch.setenv("TCIM_LITE_NUMERICS", "float")
    changed = [entry for entry in Recording(file).records if "states" in entry]
    assert [len(entry["states"]) for entry in changed] == [2, 2, 2]
    from tcim_lite.replay.player import Player

    array = Player.array
    monkeypatch.setattr(Player, "array", lambda self, entry: array(self, entry) * (1 + (entry["name"] == "input_1")))
    (first,) = replay(file).mismatches
    assert "Module.run" in first.call
    assert "state 'model_layers_0_self_attn_kcache_input' after the run: 512 of 4096 elements differ" in first.text


def test_errors_are_results_too(recorded, models, tmp_path):
    file = recorded("inputs")
    package = tmp_path / "changed"
    package.mkdir()
    for model in models:
        shutil.copy(model, package)
    graph = add_graph()
    values = [
        dataclasses.replace(value, name={"image": "nothing"}.get(value.name, value.name)) for value in graph.values
    ]
    hmm.write_model(package / models[0].name, hmm.Graph("add", values, graph.ops, graph.inputs, graph.outputs), [])
    (first,) = replay(file, package=package).mismatches
    assert "it failed with ShapeError: set_input error: 'nothing' is int8 [4]" in first.text
    assert first.text.endswith("; recorded was UnknownNameError")
    (package / models[0].name).unlink()
    with pytest.raises(RecordingError, match=r"record 0: the model .*add.hmm is missing; give the folder"):
        replay(file, package=package)


FAILED_LOADS = """
import sys, contextlib
import numpy as np
import tcim_lite.runtime as rt

for path in (b"no model", sys.argv[2], "nowhere.hmm"):
    with contextlib.suppress(rt.HmmFormatError):
        rt.load(path)
add = rt.load(sys.argv[1])
for name in "ab":
    add.set_input(name, np.ones((2, 3), np.float32))
add.run(True)
print(add.get_output("total").numpy())
"""


def test_loads_that_failed_keep_no_replay_from_going_on(tmp_path, add_model, capsys):
    file, folder = tmp_path / "f.tcimrec", tmp_path / "folder"
    folder.mkdir()
    record(FAILED_LOADS, file, add_model, folder)
    done = replay(file)
    assert not done.mismatches
    assert done.skipped == {"Module.load": 1}  # from memory
    assert main(["record-info", str(file)]) == 0
    assert re.search(r"^  model 0  .*/folder  FAILED", capsys.readouterr().out, re.MULTILINE)  # which has no size


REFUSED = """
import sys, contextlib
import numpy as np
import tcim_lite.runtime as rt

add = rt.load(sys.argv[1])
a = add.get_dev_input("a")
for start, shape in (([0, -1], [1, 2]), ([0, 1 << 62], [1, 1 << 62]), ([0] * 40, [1] * 40), ([], []), ([0, 0], [2, 0])):
    with contextlib.suppress(rt.ShapeError):
        a.select_roi(start, shape)
        raise SystemExit(f"{start}, {shape} lie inside")
a.select_roi([0, 1], [2, 2]).set_zero()
add.set_input("b", np.ones((2, 3), np.float32))
add.run(True)
print(add.get_output("total").numpy())
"""


def test_places_that_a_call_refused_keep_no_replay_from_going_on(tmp_path, add_model):
    file = tmp_path / "r.tcimrec"
    record(REFUSED, file, add_model)
    done = replay(file)
    assert not done.mismatches
    assert not done.skipped


def test_info_shows_a_recording(recorded, capsys):
    assert main(["record-info", str(recorded()), "--calls"]) == 0
    printed = capsys.readouterr().out
    assert re.search(r"^  model \d+  .*/add.hmm, 0.00 MB  4 inputs, 1 outputs$", printed, re.MULTILINE)
    assert re.search(r"^  Module.run +5 +\d+\.\d{3}$", printed, re.MULTILINE)
    assert "1 calls failed" in printed
    assert "FAILED UnknownNameError: Module set_input error" in printed
    assert re.search(r"Module.set_input model \d+  'current_length', array int64\[\] 4$", printed, re.MULTILINE)


def test_a_redacted_copy_has_no_values_paths_or_texts(recorded, tmp_path, capsys):
    file, copy = recorded(), tmp_path / "redacted.tcimrec"
    assert main(["record-info", str(file), "--redact", str(copy)]) == 0
    assert "redacted: 0 tensors stored" in capsys.readouterr().out
    content = copy.read_bytes()
    for secret in (str(tmp_path), sys.executable, "the inputs are", '"value":4'):
        assert secret.encode() in file.read_bytes()
        assert secret.encode() not in content
    assert len(Recording(copy).records) == len(Recording(file).records)
    hashes = [[entry["out"]["hash"] for entry in Recording(path).records if "out" in entry] for path in (file, copy)]
    assert hashes[0] == hashes[1]
    assert main(["record-info", str(file), "--redact", str(file)]) == 2
    assert "needs a name of its own" in capsys.readouterr().err


@pytest.mark.slow  # two runs of pytest
def test_a_recording_is_a_pytest_case(recorded, models, tmp_path):
    """pytest FILE.tcimrec; the models are found beside it."""
    file = recorded("all")
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    for path in (file, *models):
        shutil.move(path, folder)
    command = [sys.executable, ISOLATED, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:schemathesis"]
    command += ["--rootdir", str(folder)]
    done = subprocess.run([*command, str(folder / file.name)], capture_output=True, text=True, timeout=120)
    assert (done.returncode, "1 passed" in done.stdout) == (0, True), done.stdout + done.stderr
    hmm.write_model(folder / models[2].name, *sinks_graph(1))
    done = subprocess.run([*command, str(folder / file.name)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    assert "the replay differs from the recording at call" in done.stdout
    assert "Traceback" not in done.stdout


def test_a_module_that_is_no_runtime_is_refused(tmp_path, capsys):
    with RecordingWriter(tmp_path / "x", {"data": "all"}) as writer:
        writer.add_record({"call": "get_version"})
        writer.close(complete=False)
    assert main(["replay", str(tmp_path / "x"), "--runtime", "json"]) == 2
    assert "json is no runtime with the vendor's Python API: it has no Option, DevManager" in capsys.readouterr().err
    assert main(["replay", str(tmp_path / "x")]) == 2
    printed = capsys.readouterr()
    assert f"note: {tmp_path}/x has no end: the process was killed" in printed.out
    assert "calls made: 0, and none of them has a result to compare" in printed.err


def test_a_recording_cut_before_its_first_call_says_nothing(tmp_path, capsys):
    with RecordingWriter(tmp_path / "x", {"data": "all"}) as writer:
        writer.close(complete=False)
    assert main(["replay", str(tmp_path / "x")]) == 2
    printed = capsys.readouterr()
    assert "none differs" not in printed.out
    assert "calls made: 0, and none of them has a result to compare" in printed.err


def test_tolerances():
    assert Tolerance.parse("1e-3") == Tolerance(relative=1e-3)
    assert Tolerance.parse("abs=1,rel=0.5, cosine=0.9") == Tolerance(1.0, 0.5, 0.9)
    for wrong in ("", "x", "abs", "abs=1,abs=2", "rel=-1", "cosine=nan", "cosine=1.1", "max=1"):
        with pytest.raises(ValueError, match="expected NUMBER or abs=NUMBER"):
            Tolerance.parse(wrong)
    ones = np.ones(4, np.float32)
    assert difference(ones, ones * 1.01) is not None
    assert difference(ones, ones * 1.01, Tolerance(relative=0.02)) is None
    assert difference(ones, ones * 1.01, Tolerance(absolute=0.001)) is not None
    assert difference(ones, ones * 9, Tolerance(cosine=0.999)) is None
    assert difference(ones, -ones, Tolerance(cosine=0.999)) is not None
    assert difference(ones, ones * 9, Tolerance(relative=0.1, cosine=0.999)) is not None
    nan = np.array([np.nan, 1], np.float32)
    assert difference(nan, nan) is None
    assert difference(nan, np.array([2, 1], np.float32), Tolerance(relative=1e30)) is not None
    assert "1 of 2 elements differ" in difference(np.array([0.0, 1.0]), np.array([-0.0, 1.0]))
    assert difference(np.zeros(2, np.float32), np.zeros(2, np.float16)) is not None


def test_a_state_that_the_model_does_not_have_is_a_difference(recorded):
    recording = Recording(recorded("states"))
    for entry in recording.records:
        for state in entry.get("states", ())[:1]:
            state["name"] = "elsewhere"
    (first,) = replay(recording).mismatches
    assert "state 'elsewhere' after the run: UnknownNameError" in first.text
