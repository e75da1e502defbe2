"""Files of the tools with damage: profiles, traces, dumps and programs are read or refused, with no other error.

Recordings and fault rules have tests of their own (test_recording_files.py, test_fault_rules.py), models another
(test_hmm_malformed.py). `TCIM_LITE_MUTATIONS` says how many files each test tries.
"""

from __future__ import annotations

import json
import random
import re
import warnings
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from mutation import count, damaged, damaged_json
from tiny_graphs import attention_graph

import tcim_lite.runtime as rt
from tcim_lite import _core, hmm, layers
from tcim_lite.cli import make_parser, trace_summary
from tcim_lite.diff.folder import Dump, DumpWriter
from tcim_lite.errors import ArgumentError, HmmFormatError
from tcim_lite.portcheck import elf
from tcim_lite.trace_summary import summarize

PROFILE = Path(__file__).parents[1] / "csrc/runtime/m50.toml"


@pytest.fixture(scope="module")
def trace(tmp_path_factory) -> bytes:
    """With every kind of event."""
    folder = tmp_path_factory.mktemp("trace")
    hmm.write_model(folder / "attention.hmm", attention_graph(4), ())
    layers.enable("trace", file=folder / "trace.json", phases="ops")
    module = rt.load(folder / "attention.hmm")
    module.set_input("current_length", np.int32([2]))
    module.run(sync=True)
    module.get_output(module.get_output_name(0)).numpy()
    layers.disable("trace")
    content = (folder / "trace.json").read_bytes()
    assert {event["ph"] for event in json.loads(content)} == set("XMCsf")
    return content


def either(content: bytes, rng: random.Random) -> bytes:
    return damaged_json(content, rng) if rng.random() < 0.5 else damaged(content, rng)


def test_a_damaged_profile_of_the_chip_is_read_or_refused():
    rng, seen, content = random.Random(1), Counter(), PROFILE.read_bytes()
    for _ in range(count(3000)):
        text = damaged(content, rng).decode(errors="replace")
        try:
            _core.chip_profile(text)
        except ArgumentError as error:
            told = str(error)
        else:
            seen["read"] += 1
            continue
        assert re.fullmatch(r"profile(:\d+)?: .+", told, re.S), text
        seen["refused"] += 1
    assert min(seen["read"], seen["refused"]) > 20, seen


def test_a_damaged_trace_is_summed_up_or_refused(trace, tmp_path, capsys):
    rng, seen, path = random.Random(2), Counter(), tmp_path / "trace.json"
    parser = make_parser()  # once: it takes longer than most files
    commands = [parser.parse_args(["trace-summary", str(path), *words]) for words in ([], ["--json"])]
    for _ in range(count(800)):
        path.write_bytes(either(trace, rng))
        try:
            summarize(path)
        except ArgumentError:
            seen["refused"] += 1
            continue
        seen["read"] += 1
        assert [trace_summary.run(command) for command in commands] == [0, 0]
        shown = capsys.readouterr().out
        shown.encode()
        assert json.loads(shown[shown.rindex("\n{\n") :])["seconds"] >= 0
    assert min(seen["read"], seen["refused"]) > 20, seen


def test_events_are_added_to_a_damaged_trace_or_it_is_left_alone(trace, tmp_path):
    rng, seen, path = random.Random(3), Counter(), tmp_path / "trace.json"
    for _ in range(count(300)):
        before = damaged(trace, rng)
        if rng.random() < 0.3:
            before = before[: rng.randrange(len(before))]
        path.write_bytes(before)
        try:
            layers.enable("trace", file=path)
        except ArgumentError:
            assert path.read_bytes() == before
            seen["refused"] += 1
            continue
        rt.get_version()
        layers.disable("trace")
        after = path.read_bytes()
        assert after.startswith(before.removesuffix(b"\n]\n"))
        assert len(after) > len(before)
        if is_list(before):
            assert is_list(after)
        seen["list" if is_list(before) else "other"] += 1
    assert len(seen) == 3
    assert min(seen.values()) > 0, seen


def is_list(content: bytes) -> bool:
    try:
        return isinstance(json.loads(content), list)
    except ValueError:
        return False


@pytest.fixture
def dump(tmp_path) -> Path:
    writer = DumpWriter(tmp_path / "dump", {"package": "x"})
    for step in range(2):
        writer.add_step("qwen3_prefill", "qwen3_prefill.hmm", 3 * step, 3)
        writer.add("input", "input_1", np.arange(12, dtype=np.float16).reshape(1, 3, 4))
        writer.add("value", "add_0", np.ones((1, 3, 4), np.float32))
        writer.add("cache", "layers.0.attn.k", np.ones((1, 1, 3, 2), np.float16))
        writer.add("output", "logits", np.zeros((1, 1, 5), np.float16))
    writer.close(prompt=[1, 2, 3], answer=[4])
    return writer.folder


@pytest.mark.parametrize("part", ["manifest", "array"])
def test_a_damaged_dump_is_read_or_refused(dump, part):
    rng, seen = random.Random(4), Counter()
    files = [dump / "dump.json"] if part == "manifest" else sorted(dump.rglob("*.npy"))
    whole = {path: path.read_bytes() for path in files}
    for _ in range(count(600)):
        path = rng.choice(files)
        content = whole[path]
        path.write_bytes(either(content, rng) if part == "manifest" else damaged(content, rng))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            seen[reads(dump)] += 1
        path.write_bytes(content)
    assert min(seen[True], seen[False]) > 20, seen


def reads(folder: Path) -> bool:
    try:
        found = Dump.open(folder)
        for step, each in enumerate(found.steps):
            for name in each.tensors:
                assert found.array(step, name).dtype.kind in "biuf"
    except HmmFormatError:
        return False
    return True


def test_a_damaged_program_is_read_or_refused_by_port_check():
    rng, seen = random.Random(5), Counter()
    content = Path(_core.__file__).read_bytes()
    assert list(elf.undefined(content))
    table = int.from_bytes(content[40:48], "little")
    for _ in range(count(1500)):
        made = bytearray(content)
        for _ in range(rng.randint(1, 3)):  # the header, or the table of sections
            made[rng.choice((rng.randrange(64), rng.randrange(table, len(made))))] = rng.randrange(256)
        try:
            assert all(isinstance(use.name, str) for use in elf.uses(bytes(made), "program"))
            seen["read"] += 1
        except ValueError:
            seen["refused"] += 1
    assert min(seen["read"], seen["refused"]) > 5, seen
