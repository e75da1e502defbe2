"""`tcim-lite generate` and `serve` take a checkpoint or a name on the hub, and compile it once."""

import os
import re
import shutil
import subprocess
import sys

import pytest
from generate_command import QUESTION, in_process, run
from llm_packages import DEMO_CHECKPOINT
from stand_in_hub import Hub
from warm_python import ISOLATED

from tcim_lite import hmm
from tcim_lite.cli import main


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """Caches of this project and of huggingface_hub, empty."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    return tmp_path / "xdg" / "tcim-lite" / "packages"


def run_with_hub(*arguments):
    """In a process of its own: huggingface_hub reads its environment when it is imported."""
    command = [sys.executable, ISOLATED, "-m", "tcim_lite", "generate", *map(str, arguments)]
    environment = {**os.environ, "TCIM_LITE_STRICT": "error"}
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)


@pytest.mark.slow
def test_a_checkpoint_is_compiled_once(cache, capfd):
    ask = [DEMO_CHECKPOINT, "--chat", "--prompt", QUESTION, "--context-length", 256, "--quant", "w8a8h1_sefp"]
    first = run(*ask)
    assert (first.returncode, first.stdout) == (0, "12 + 30 = 42\n")
    (folder,) = cache.glob("demo_checkpoint-????????????????")
    assert first.stderr.startswith(f"compiling {DEMO_CHECKPOINT} into {folder}\n")
    assert in_process(capfd, *ask)["text"] == "12 + 30 = 42"
    assert list(cache.glob("demo_checkpoint-????????????????")) == [folder]


@pytest.mark.slow
def test_a_checkpoint_is_compiled_for_the_devices_named(cache):
    ask = [DEMO_CHECKPOINT, "--chat", "--prompt", QUESTION, "--context-length", 256, "--devices", "0,1"]
    for words in ([], ["--pipeline"]):
        done = run(*ask, *words, TCIM_LITE_DEVICE_NUM="2")
        assert (done.returncode, done.stdout) == (0, "12 + 30 = 42\n"), done.stderr
        assert " device=cpu:0,1 " in done.stderr


@pytest.fixture
def hub(monkeypatch, cache, tmp_path):
    folder = tmp_path / "repository"
    shutil.copytree(DEMO_CHECKPOINT, folder)
    (folder / "pytorch_model.bin").write_bytes(b"not wanted")
    made = Hub("Owner/demo-model", folder)
    monkeypatch.setenv("HF_ENDPOINT", made.url)
    monkeypatch.setenv("HF_HUB_DISABLE_TELEMETRY", "1")
    yield made
    made.close()


@pytest.mark.slow
def test_a_name_on_the_hub_is_downloaded_once(hub, cache):
    ask = ["Owner/demo-model", "--chat", "--prompt", QUESTION, "--context-length", 256]
    done = run_with_hub(*ask)
    assert (done.returncode, done.stdout) == (0, "12 + 30 = 42\n"), done.stderr
    assert len(list(cache.glob("Owner-demo-model-????????????????"))) == 1
    asked = {path.rpartition("/")[2] for path in hub.paths}
    assert "model.safetensors" in asked
    assert "pytorch_model.bin" not in asked
    hub.paths.clear()
    done = run_with_hub(*ask, "--local-files-only")
    assert (done.returncode, done.stdout, hub.paths) == (0, "12 + 30 = 42\n", []), done.stderr
    assert "compiling" not in done.stderr


def test_a_name_that_cannot_be_fetched_is_one_line(hub):
    done = run_with_hub("Owner/other", "--prompt", "a")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    message = "error: Owner/other is no folder here, and as a name on the Hugging Face hub it cannot be fetched: "
    assert done.stderr.startswith(message)
    hub.paths.clear()
    done = run_with_hub("Owner/demo-model", "--prompt", "a", "--local-files-only")
    assert (done.returncode, done.stderr.count("\n"), hub.paths) == (2, 1, []), done.stderr


def test_a_name_without_huggingface_hub_names_the_extra(monkeypatch, capfd):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    assert main(["generate", "Owner/demo-model", "--prompt", "a"]) == 2
    assert "needs the package 'huggingface_hub': pip install 'tcim-lite[hub]'" in capfd.readouterr().err


@pytest.mark.slow
def test_serve_takes_a_checkpoint_and_four_slots(cache):
    words = ["serve", DEMO_CHECKPOINT, "--context-length", 256, "--port", 0]
    command = [sys.executable, ISOLATED, "-m", "tcim_lite", *map(str, words)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        line = process.stdout.readline()
        process.terminate()
        errors = process.communicate(timeout=60)[1]
    assert re.match("serving qwen3, 4 slots, at http://127.0.0.1:", line), errors
    assert process.returncode == 0
    (decode,) = cache.rglob("qwen3_decode.hmm")
    graph = hmm.read(decode).graph
    assert "token_id" in [graph.values[i].name for i in graph.outputs]
    assert "INFO tcim_lite: serve: " in errors
