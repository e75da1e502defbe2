"""Packages that commands compile on the way: one for each checkpoint and set of options, whole or not there."""

import argparse
import json
import subprocess
import sys
import warnings

import numpy as np
import pytest
from family_checkpoints import family_config, write_family
from safetensors.numpy import load_file, save_file
from warm_python import ISOLATED

import tcim_lite.runtime as rt
from tcim_lite.cli.opening import open_package
from tcim_lite.llm import Package, lanes_of
from tcim_lite.models.common.errors import CheckpointError, CompileError
from tcim_lite.models.compiler import cache
from tcim_lite.models.families import FAMILIES

OPTIONS = {"random_weights": True, "seed": 7, "context_length": 64, "prefill_length": 16}

SCRIPT = """
    import signal, sys, os, warnings
    from pathlib import Path
    from tcim_lite.models.compiler import cache
    warnings.simplefilter("ignore")
    compile_checkpoint = cache.compile_checkpoint

    def killed(options, **keywords):
        options.output.mkdir()
        (options.output / "half_prefill.hmm").write_bytes(b"half")
        os.kill(os.getpid(), signal.SIGKILL)

    def together(options, **keywords):
        input()  # the other process is there
        return compile_checkpoint(options, **keywords)

    cache.compile_checkpoint = CHOICE
    say = lambda line: print(line, flush=True)
    print(cache.cached_package(Path(sys.argv[1]), say=say, **OPTIONS))
"""


@pytest.fixture
def checkpoint(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(FAMILIES["qwen3"].tiny_config))
    return folder


def made(checkpoint, **changes):
    """The package's folder, and what was said before."""
    lines = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # no tokenizer
        folder = cache.cached_package(checkpoint, say=lines.append, **(OPTIONS | changes))
    Package.open(folder)
    return folder, lines


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_package_is_compiled_once(checkpoint, tmp_path):
    folder, lines = made(checkpoint)
    assert folder.parent == tmp_path / "xdg" / "tcim-lite" / "packages"
    assert lines == [f"compiling {checkpoint} into {folder}"]
    before = {path.name: path.stat().st_ctime_ns for path in folder.iterdir()}
    assert made(checkpoint) == (folder, [])
    assert {path.name: path.stat().st_ctime_ns for path in folder.iterdir()} == before
    assert names(folder.parent) == [folder.name, f"{folder.name}.lock"]


@pytest.mark.parametrize("change", ["content", "new file", "option", "compiler"])
def test_another_package_is_made_when_something_changes(checkpoint, monkeypatch, change):
    folder, _ = made(checkpoint)
    options = {}
    config = checkpoint / "config.json"
    if change == "content":  # of the same size
        config.write_bytes(config.read_bytes())
    elif change == "new file":
        (checkpoint / "generation_config.json").write_text("{}")
    elif change == "option":
        options = {"context_length": 128}
    else:
        monkeypatch.setattr(cache, "_compiler", lambda: "another")
    other, lines = made(checkpoint, **options)
    assert other != folder
    assert len(lines) == 1


def script(checkpoint, choice):
    text = "\n".join(line.removeprefix("    ") for line in SCRIPT.splitlines())
    text = text.replace("CHOICE", choice).replace("OPTIONS", repr(OPTIONS))
    return subprocess.Popen(
        [sys.executable, ISOLATED, "-c", text, str(checkpoint)],
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )


@pytest.mark.slow
def test_of_two_processes_one_compiles_and_the_other_waits(checkpoint):
    first, second = script(checkpoint, "together"), None
    try:
        assert first.stdout.readline().startswith("compiling ")
        second = script(checkpoint, "compile_checkpoint")
        line = second.stdout.readline()
        assert line.startswith("another process compiles ")
        told = first.communicate("\n", timeout=60)[0]
        waited = second.communicate(timeout=60)[0]
    finally:
        for process in (first, second):
            if process is not None:
                process.kill()
                process.communicate()
    assert told == waited == f"{made(checkpoint)[0]}\n"


def test_a_process_that_is_killed_leaves_nothing_that_counts(checkpoint, tmp_path):
    killed = script(checkpoint, "killed")
    killed.communicate(timeout=60)
    assert killed.returncode == -9
    root = tmp_path / "xdg" / "tcim-lite" / "packages"
    assert any(root.glob("*/package/half_prefill.hmm"))
    folder, lines = made(checkpoint)
    assert len(lines) == 1
    assert names(root) == [folder.name, f"{folder.name}.lock"]


def test_an_error_leaves_nothing(checkpoint, tmp_path):
    (checkpoint / "config.json").write_text("{}")
    with pytest.raises(CompileError):
        made(checkpoint)
    assert [path for path in (tmp_path / "xdg/tcim-lite/packages").iterdir() if path.suffix != ".lock"] == []


def test_a_checkpoint_that_changes_meanwhile_is_no_package(checkpoint, monkeypatch, tmp_path):
    compile_checkpoint = cache.compile_checkpoint

    def compile_and_change(options, **keywords):
        compile_checkpoint(options, **keywords)
        (checkpoint / "more.json").write_text("{}")

    monkeypatch.setattr(cache, "compile_checkpoint", compile_and_change)
    with pytest.raises(CheckpointError, match="changed while it was compiled"):
        made(checkpoint)
    assert not any(path.is_dir() for path in (tmp_path / "xdg/tcim-lite/packages").iterdir())


def test_a_cache_that_cannot_be_written_says_what_to_do(checkpoint, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(CompileError, match=r"cannot write into the cache .*set XDG_CACHE_HOME, or compile with"):
        made(checkpoint)


def test_a_relative_cache_folder_does_not_count(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", "cache")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache.cache_folder() == tmp_path / ".cache" / "tcim-lite" / "packages"


@pytest.mark.filterwarnings("ignore:.*has no tokenizer files")
@pytest.mark.parametrize(("family", "slots"), [("qwen3", 4), ("qwen2_vl", 1), ("glm_ocr", 1)])
def test_a_default_of_slots_is_for_models_that_have_them(tmp_path, monkeypatch, family, slots):
    """As `serve` gives it; what the user asks for is refused instead."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    checkpoint = write_family(tmp_path / "hf", family_config(family), np.float16)
    given = {"quant": "float16", "context_length": 64, "prefill_length": 16}
    beside = {"model": str(checkpoint), "name": None, "devices": "0", "pipeline": False, "local_files_only": True}
    beside |= {"draft": None, "speculate": None, "lora": []}
    package = open_package(argparse.Namespace(**beside, **given, batch=None), batch=4)
    assert len(lanes_of(rt.load(package.decode_path))) == slots
    if slots == 1:
        with pytest.raises(CompileError, match="--batch 2: the vendor has no graph of several slots"):
            open_package(argparse.Namespace(**beside, **given, batch=2), batch=4)


def test_defaults_are_those_that_a_model_takes(checkpoint):
    defaults = {"batch": 4, "argmax": True}
    for config, expected in (
        (FAMILIES["qwen3_5"].tiny_config, defaults),
        (FAMILIES["gemma4"].tiny_config, defaults),
        (FAMILIES["qwen3_vl"].tiny_config, {"argmax": True}),
        ({"model_type": "whisper"}, {}),
        ({"model_type": "another"}, defaults),  # compiling it says what is wrong
        ([], defaults),
    ):
        (checkpoint / "config.json").write_text(json.dumps(config))
        assert cache.fitting(checkpoint, defaults) == expected


@pytest.mark.parametrize("has_layer", [True, False])
def test_guessing_compiles_the_layer_that_a_checkpoint_has(tmp_path, has_layer):
    path = write_family(tmp_path / "checkpoint", family_config("qwen3_5"), np.float32)
    if has_layer:
        join = np.zeros((192, 384), np.float32)
        save_file({**load_file(path / "model.safetensors"), "mtp.fc.weight": join}, path / "model.safetensors")
    defaults = {"batch": 4, "mtp": True}
    assert cache.fitting(path, defaults) == (defaults if has_layer else {"batch": 4})
    (path / "config.json").write_text(json.dumps(family_config("qwen3")))
    assert cache.fitting(path, defaults) == {"batch": 4}


def test_a_verify_graph_is_compiled_where_no_layer_guesses(tmp_path):
    dense = write_family(tmp_path / "dense", family_config("qwen3"), np.float32)
    hybrid = write_family(tmp_path / "hybrid", family_config("qwen3_5"), np.float32)
    wanted = {"batch": 4, "mtp": True, "verify_length": 5}
    assert cache.fitting(dense, wanted) == {"batch": 4, "verify_length": 5}
    assert cache.fitting(dense, wanted, draft=dense) == {"batch": 4}  # which brings one
    assert cache.fitting(hybrid, wanted) == {"batch": 4}  # its graphs cannot take tokens back
    tensors = load_file(hybrid / "model.safetensors")
    save_file({**tensors, "mtp.fc.weight": np.zeros((192, 384), np.float32)}, hybrid / "model.safetensors")
    assert cache.fitting(hybrid, wanted) == {"batch": 4, "mtp": True}
    assert cache.fitting(hybrid, wanted, draft=dense) == {"batch": 4}  # which guesses in place of the layer


def test_an_assistant_has_one_slot_and_no_argmax(tmp_path):
    path = write_family(tmp_path / "gemma", family_config("gemma4"), np.float32)
    (tmp_path / "assistant").mkdir()
    (tmp_path / "assistant/config.json").write_text('{"model_type": "gemma4_assistant"}')
    wanted = {"batch": 4, "argmax": True, "mtp": True, "name": "a"}
    assert cache.fitting(path, wanted, draft=tmp_path / "assistant") == {"name": "a"}
