"""The examples recorded, and their recordings replayed bit for bit."""

from __future__ import annotations

import pytest

from tcim_lite.replay import Recording, replay

pytestmark = pytest.mark.slow  # whole programs
ASKED = ("--question", "What is the capital of France?", "--max-new-tokens", 12)
# Options of the package, arguments of the example, devices.
EXAMPLES = {
    "qwen3_chat": ((), ASKED, 1),
    "qwen3_prefix_cache": ((), ASKED, 1),
    "qwen3_multibatch": (("--batch", "2"), ASKED, 1),
    "qwen3_pipeline": (("--pipeline", "2"), ASKED, 2),
    "qwen3_tensor_parallel": (("--ndevice", "2"), ASKED, 2),
}


@pytest.mark.parametrize("example", EXAMPLES)
def test_a_recorded_example_replays_bit_for_bit(compile_demo, run_example, tmp_path, monkeypatch, example):
    options, arguments, devices = EXAMPLES[example]
    folder = compile_demo(*options).folder
    file = tmp_path / "example.tcimrec"
    environment = {"TCIM_LITE_LAYERS": f"record:{file}", "TCIM_LITE_RECORD_DATA": "all"}
    done = run_example(f"{example}.py", folder, *arguments, TCIM_LITE_DEVICE_NUM=str(devices), **environment)
    assert done.returncode == 0, done.stderr
    monkeypatch.setenv("TCIM_LITE_DEVICE_NUM", str(devices))
    compared = 0
    for path in tmp_path.glob("example.tcimrec*"):  # one for each process
        again = replay(Recording(path))
        assert again.mismatches == []
        assert set(again.skipped) <= {"Stream.create", "WeightManager.release", "get_device_num", "get_version"}
        compared += again.compared
    assert compared > 12
