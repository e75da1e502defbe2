"""The examples recorded, and their recordings replayed bit for bit."""

from __future__ import annotations

from pathlib import Path

import pytest
from llm_packages import ROOT

from tcim_lite.cli import main
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
    "qwen3_speculative": (("--draft-layers", "2"), ASKED, 1),
}
NETWORKS = ROOT / "examples" / "demo_networks"
# Network, image, whether the example writes a picture.
IMAGES = {
    "image_classification": ("shapes_classifier", "star.png", False),
    "object_detection": ("shapes_detector", "scene_1.png", True),
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
    assert_replays(tmp_path)


@pytest.mark.parametrize("example", IMAGES)
def test_a_recorded_image_example_replays_bit_for_bit(run_example, tmp_path, example):
    pytest.importorskip("onnx", reason="needs onnx")
    pytest.importorskip("PIL", reason="needs Pillow")
    network, image, draws = IMAGES[example]
    output = ("-o", tmp_path) if draws else ()
    assert main(["compile", str(NETWORKS / f"{network}.onnx"), "-o", str(tmp_path / "out"), "-q"]) == 0
    environment = {"TCIM_LITE_LAYERS": f"record:{tmp_path / 'example.tcimrec'}", "TCIM_LITE_RECORD_DATA": "all"}
    done = run_example(f"{example}.py", tmp_path / "out", NETWORKS / "images" / image, *output, **environment)
    assert done.returncode == 0, done.stderr
    assert_replays(tmp_path, least=1)


def assert_replays(folder: Path, least: int = 13) -> None:
    """Replays the recordings of a program: one for each of its processes, at least so many results in all."""
    compared = 0
    for path in folder.glob("example.tcimrec*"):
        again = replay(Recording(path))
        assert again.mismatches == []
        assert set(again.skipped) <= {"Stream.create", "WeightManager.release", "get_device_num", "get_version"}
        compared += again.compared
    assert compared >= least
