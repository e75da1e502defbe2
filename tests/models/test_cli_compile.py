"""`tcim-lite compile` and `tcim-lite inspect` as a user meets them."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tcim_lite.cli import main
from tcim_lite.models.common.embedding import write_embedding_bin
from tcim_lite.models.common.profiles import QUANTS

Make = Callable[..., Path]
SMALL = ["--prefill-length", "8", "--context-length", "64"]


def test_compile_then_inspect(make_checkpoint: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "out"
    graphs = ["--batch", "2", "--verify-length", "3", "--all-logits", "--ndevice", "2", "--pipeline", "2"]
    assert main(["compile", str(make_checkpoint()), "-o", str(output), "--name", "demo", *graphs, *SMALL]) == 0
    shown = capsys.readouterr().out
    assert "demo_prefill.hmm" in shown
    assert main(["inspect", str(output), "--verify"]) == 0
    shown = capsys.readouterr().out
    for text in (
        "weights in demo.hmw (id matches)",
        "context_length=64",
        "input_1  float16 [2, 1, 64]",
        "3..4  model_layers_{0..1}_self_attn_kcache_input  float16 [1, 2, 64, 32]  state  k_cache",
        "model_layers_{0..1}_self_attn_vcache_input_batch_1",
        "v_cache  also past_value_cache_{0..1}_batch_1",
        "input_1  float16 [1, 8, 64]  embeddings  also inputs_embeds",
        "add_1  float16 [1, 8, 64]  hidden",
        "logits  float16 [2, 1, 83]",
        "logits  float16 [1, 8, 83]",
        "logits  float16 [1, 3, 83]",
        "demo_verify.hmms  model",
        "demo_decode_part1.hmm  model",
        "5..6  model_layers_{0..1}_self_attn_vcache_input  float16 [1, 2, 64, 32]  state  v_cache, axis 1 cut 1+1",
        "9 AllGather",
        "prefill_length=3, batch=2, context_length=64, flash_attention=True, all_logits=True",
        "linear_w4 uint8",
        "checksums: all match",
        "quant_embedding.bin",
    ):
        assert text in shown
    assert main(["inspect", str(output / "demo.hmw"), "--weights"]) == 0
    assert "layers.1.self_attn.qkv.weight  linear_w4 uint8 [320, 64]" in capsys.readouterr().out


def test_quiet_prints_nothing(make_checkpoint: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compile", str(make_checkpoint()), "-o", str(tmp_path / "out"), "-q", *SMALL]) == 0
    assert capsys.readouterr() == ("", "")


def test_warnings_are_one_line(make_checkpoint: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    checkpoint = make_checkpoint()
    (checkpoint / "tokenizer.json").unlink()
    assert main(["compile", str(checkpoint), "-o", str(tmp_path / "out"), "-q", *SMALL]) == 0
    error = capsys.readouterr().err
    assert error.startswith("warning: ")
    assert error.count("\n") == 1


def test_errors_are_one_line_and_exit_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "foreign.hmm").write_text("hello")
    (tmp_path / "empty").mkdir()
    for arguments in (
        ["compile", str(tmp_path / "nowhere"), "-o", str(tmp_path / "out")],
        ["compile", str(tmp_path), "-o", str(tmp_path / "out"), "--prefill-length", "0"],
        ["inspect", str(tmp_path / "foreign.hmm")],
        ["inspect", str(tmp_path / "nowhere.hmm")],
        ["inspect", str(tmp_path / "empty")],
    ):
        assert main(arguments) == 2
        error = capsys.readouterr().err
        assert error.startswith("error: ")
        assert "Traceback" not in error
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (
            "none",
            "none does not exist; expected a Hugging Face checkpoint folder, a GGUF file or a network in an .onnx",
        ),
        ("none.onnx", "none.onnx: No such file or directory; expected an ONNX file"),
        ("out", "and no model.safetensors; run it, or give the checkpoint's folder"),
    ],
)
def test_what_cannot_be_compiled_says_what_can(
    make_checkpoint: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, words: str
) -> None:
    assert main(["compile", str(make_checkpoint()), "-o", str(tmp_path / "out"), "-q", *SMALL]) == 0
    assert main(["compile", str(tmp_path / name), "-o", str(tmp_path / "other")]) == 2
    assert words in capsys.readouterr().err
    assert main(["compile", "Nobody/Nothing", "-o", str(tmp_path / "other")]) == 2
    assert "is fetched with `hf download Nobody/Nothing --local-dir DIR`" in capsys.readouterr().err
    assert not (tmp_path / "other").exists()


def test_output_that_is_a_file(make_checkpoint: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "out").write_text("mine")
    assert main(["compile", str(make_checkpoint()), "-o", str(tmp_path / "out"), *SMALL]) == 2
    assert "cannot write to" in (error := capsys.readouterr().err)
    assert "there is a file or a broken link; -o takes a folder" in error
    assert (tmp_path / "out").read_text() == "mine"


@pytest.mark.parametrize("occupied", ["hmquant", "tokenizer", "qwen3_decode.hmm/x", "hmquant/quant_embedding.bin/x"])
def test_a_package_that_cannot_be_put_in_place_leaves_nothing(
    make_checkpoint: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str], occupied: str
) -> None:
    out = tmp_path / "out"
    (out / occupied).parent.mkdir(parents=True)
    (out / occupied).write_text("mine")
    before = sorted(out.rglob("*"))
    assert main(["compile", str(make_checkpoint()), "-o", str(out), *SMALL]) == 2
    assert "move it away" in capsys.readouterr().err
    assert sorted(out.rglob("*")) == before


def test_a_disk_without_space_is_named_and_keeps_what_it_had(
    make_checkpoint: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["compile", str(make_checkpoint()), "-q", *SMALL, "-o"]
    assert main([*command, str(tmp_path / "out")]) == 0
    before = {path: path.read_bytes() for path in (tmp_path / "out").rglob("*") if path.is_file()}
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        for name in ("out", "new"):
            assert main([*command, str(tmp_path / name)]) == 2
            assert f"cannot write to {tmp_path / name}: File too large; free some space" in capsys.readouterr().err
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert {path: path.read_bytes() for path in (tmp_path / "out").rglob("*") if path.is_file()} == before
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    "arguments",
    [["compile", "x", "-o", ""], ["compile", "", "-o", "x"], ["inspect", ""], ["bench", ""], ["dump", "x", "-o", ""]],
)
def test_an_empty_path_is_not_the_current_folder(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit, match="2"):
        main(arguments)
    assert "the path is empty (an unset variable?)" in capsys.readouterr().err
    for command in ("chat", "serve"):
        assert main([command, ""]) == 2
        assert "PACKAGE is missing" in capsys.readouterr().err
    assert not any(tmp_path.iterdir())


def test_inspect_does_not_wait_for_a_fifo(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo(tmp_path / "pipe.hmm")
    assert main(["inspect", str(tmp_path / "pipe.hmm")]) == 2
    assert "is not a regular file" in capsys.readouterr().err


def test_unknown_quant_lists_the_choices(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["compile", str(tmp_path), "-o", str(tmp_path / "out"), "--quant", "int4"])
    error = capsys.readouterr().err
    assert all(quant in error for quant in QUANTS)


class _Ones:
    shape = (64, 128)

    def read(self, start: int, stop: int) -> np.ndarray:
        return np.ones((stop - start, 128), np.float32)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_an_embedding_that_does_not_fit_a_disk_says_so(dtype: str) -> None:
    """numpy's own writer does not: its error has no number, so that nobody knows what to tell the user."""
    with pytest.raises(OSError, match="No space left") as caught:
        write_embedding_bin(Path("/dev/full"), _Ones(), dtype, lambda elements: None)
    assert caught.value.errno == errno.ENOSPC
