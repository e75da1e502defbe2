"""Stages in processes of their own, joined by gloo as vLLM joins them: needs torch, but no vLLM."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from warm_python import ISOLATED

from tcim_lite.llm.engine.slots import Slots

pytest.importorskip("torch")
sys.path.insert(0, str(Path(__file__).parents[1] / "llm"))
from llm_packages import tiny_package  # noqa: F401

pytestmark = pytest.mark.oracle

LONG, SHORT = list(range(3, 40)), [7, 8]  # three chunks, and a part of one
STAGES = """
import json, os, sys
from pathlib import Path
from types import SimpleNamespace
import torch

folder, store, prompts, faults = sys.argv[1:]
rank = 0 if os.fork() else 1  # torch is imported once for both
if faults and rank == 0:
    os.environ["TCIM_LITE_FAULTS"] = faults
from tcim_lite.llm import Package
from tcim_lite.vllm.stages import Link, load_stage

torch.distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
group = SimpleNamespace(
    is_first_rank=rank == 0, is_last_rank=rank == 1, prev_rank=0, next_rank=1, cpu_group=torch.distributed.group.WORLD
)
slots, found = load_stage(Package.open(folder), rank, 0, Link(group)), []
try:
    for slot, prompt in enumerate(json.loads(prompts)):
        for begin in range(0, len(prompt), slots.chunk_length):
            logits = slots.prefill(slot, prompt[begin : begin + slots.chunk_length])
        found.append(logits.tobytes().hex())
    for tokens in ({0: 5, 1: 6}, {1: 9}):
        logits = slots.decode(tokens)
        found += [logits[slot].tobytes().hex() for slot in tokens]
except Exception as error:
    found = [type(error).__name__, str(error)]
made = {"found": found, "held": slots.tokens, "vocab": slots.vocab_size, "carries": slots.carries}
Path(f"stage{rank}.json").write_text(json.dumps(made))
if rank == 0:
    sys.exit(os.waitstatus_to_exitcode(os.wait()[1]))
"""


def run_stages(folder: Path, tmp_path: Path, faults: str | None = None) -> list[dict]:
    """What both stages found; `faults` are rules for the first."""
    rules = tmp_path / "rules.toml"
    rules.write_text(faults or "")
    command = [sys.executable, ISOLATED, "-c", STAGES, folder, tmp_path / "store", json.dumps([LONG, SHORT])]
    subprocess.run([*map(str, command), str(rules) if faults else ""], cwd=tmp_path, check=True, timeout=120)
    return [json.loads((tmp_path / f"stage{rank}.json").read_text()) for rank in range(2)]


@pytest.fixture(scope="module")
def package(tiny_package):  # noqa: F811
    return tiny_package("qwen3", prefill_length=16, context_length=64, pipeline=2, batch=2)


def logits_of_one(slots: Slots) -> list[str]:
    expected = []
    for slot, prompt in enumerate((LONG, SHORT)):
        for begin in range(0, len(prompt), 16):
            logits = slots.prefill(slot, prompt[begin : begin + 16])
        expected.append(logits.tobytes().hex())
    for tokens in ({0: 5, 1: 6}, {1: 9}):
        logits = slots.decode(tokens)
        expected += [logits[slot].tobytes().hex() for slot in tokens]
    return expected


def test_the_last_of_two_processes_has_the_logits_of_one(package, tmp_path):
    first, last = run_stages(package.folder, tmp_path)
    slots = Slots.open(package)
    assert last["found"] == logits_of_one(slots)
    assert first["held"] == last["held"] == slots.tokens
    assert first["vocab"] == last["vocab"] == slots.vocab_size


def test_the_last_stage_says_what_happened_to_a_stage_before_it(package, tmp_path):
    rules = '[[fault]]\nkind = "device_lost"\nmodel = "decode"\nnth = 2\n'
    first, last = run_stages(package.folder, tmp_path, rules)
    assert first["found"][0] == "DeviceError"
    assert last["found"][0] == "StageError"
    assert last["found"][1].startswith("DeviceError: ")
    # As much of it as rows of this step take in bytes.
    assert first["found"][1].startswith(last["found"][1].removeprefix("DeviceError: "))
    assert "lost" in last["found"][1]


def test_stages_with_states(tiny_package, tmp_path):  # noqa: F811
    """The second has none of its own, but cuts prompts as the first."""
    layers = {"layer_types": ["linear_attention", "full_attention", "full_attention", "full_attention"]}
    package = tiny_package("qwen3_5", layers, prefill_length=16, context_length=64, pipeline=2, batch=2)
    first, last = run_stages(package.folder, tmp_path)
    assert last["found"] == logits_of_one(Slots.open(package))
    assert first["carries"] is last["carries"] is True
