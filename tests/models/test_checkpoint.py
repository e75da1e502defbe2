"""Checkpoint folders that can be read, and what is said about those that cannot."""

from __future__ import annotations

import errno
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from tcim_lite.models.checkpoints.checkpoint import Checkpoint, config_of
from tcim_lite.models.common.errors import CheckpointError, CompileError

NAME = "model.layers.1.mlp.up_proj.weight"


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float16, np.float32])
def test_reads_rows_as_fp32(make_checkpoint: Callable[..., Path], shards: int, dtype: type) -> None:
    kept = {}
    checkpoint = Checkpoint(make_checkpoint(shards=shards, dtype=dtype, edit=kept.update))
    want = kept[NAME].astype(np.float32)
    got = checkpoint.read(NAME, 3, 9)
    assert got.dtype == np.float32
    np.testing.assert_array_equal(got, want[3:9])
    np.testing.assert_array_equal(checkpoint.read(NAME), want)
    assert checkpoint.shape(NAME) == (128, 64)
    assert NAME in checkpoint
    assert "nothing" not in checkpoint


@pytest.mark.parametrize("shards", [1, 2])
def test_missing_tensor_names_tensor_and_file(make_checkpoint: Callable[..., Path], shards: int) -> None:
    checkpoint = Checkpoint(make_checkpoint(shards=shards, edit=lambda tensors: tensors.pop(NAME)))
    file = "model.safetensors.index.json" if shards > 1 else "model.safetensors"
    with pytest.raises(CheckpointError, match=f"{file} has no tensor '{NAME}'"):
        checkpoint.check(NAME, (128, 64))


def test_tensor_missing_from_its_shard(make_checkpoint: Callable[..., Path]) -> None:
    folder = make_checkpoint(shards=2)
    path = folder / "model.safetensors.index.json"
    index = json.loads(path.read_text())
    index["weight_map"]["extra"] = "model-00001-of-00002.safetensors"
    path.write_text(json.dumps(index))
    with pytest.raises(CheckpointError, match=r"model-00001-of-00002\.safetensors has no tensor 'extra'"):
        Checkpoint(folder).read("extra")


def test_wrong_shape_says_got_and_expected(make_checkpoint: Callable[..., Path]) -> None:
    with pytest.raises(CheckpointError, match=r"has shape \[128, 64\], expected \[64, 64\]"):
        Checkpoint(make_checkpoint()).check(NAME, (64, 64))


def test_integer_tensor_is_refused(make_checkpoint: Callable[..., Path]) -> None:
    folder = make_checkpoint(edit=lambda tensors: tensors.update({NAME: np.zeros((128, 64), np.int8)}))
    with pytest.raises(CheckpointError, match="dtype I8, expected one of BF16, F16, F32"):
        Checkpoint(folder).check(NAME, (128, 64))


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_values_that_are_not_finite_are_refused(make_checkpoint: Callable[..., Path], value: float) -> None:
    def edit(tensors: dict[str, np.ndarray]) -> None:
        tensors[NAME][77, 5] = value

    checkpoint = Checkpoint(make_checkpoint(edit=edit))
    checkpoint.read(NAME, 0, 77)
    with pytest.raises(CheckpointError, match=f"'{NAME}' in .*model.safetensors holds NaN or infinity"):
        checkpoint.read(NAME, 64, 128)


def test_missing_shard(make_checkpoint: Callable[..., Path]) -> None:
    folder = make_checkpoint(shards=3)
    (folder / "model-00002-of-00003.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"model-00002-of-00003\.safetensors does not exist.*incomplete download"):
        Checkpoint(folder)


def test_shard_outside_the_folder_is_refused(make_checkpoint: Callable[..., Path]) -> None:
    folder = make_checkpoint(shards=2)
    (folder / "model.safetensors.index.json").write_text('{"weight_map": {"a": "../model.safetensors"}}')
    with pytest.raises(CheckpointError, match="expected a bare file name"):
        Checkpoint(folder)


@pytest.mark.parametrize(
    ("file", "message"),
    [("pytorch_model.bin", "convert them to safetensors"), (None, "neither model.safetensors nor")],
)
def test_folder_without_safetensors(tmp_path: Path, file: str | None, message: str) -> None:
    if file:
        (tmp_path / file).write_bytes(b"")
    with pytest.raises(CheckpointError, match=message):
        Checkpoint(tmp_path)


def test_damaged_file(make_checkpoint: Callable[..., Path]) -> None:
    folder = make_checkpoint()
    path = folder / "model.safetensors"
    data = path.read_bytes()
    path.write_bytes(data[:-1])
    message = rf"not a readable safetensors file: tensor '.*' ends at byte {len(data)}, the file has {len(data) - 1} of"
    with pytest.raises(CheckpointError, match=message):
        Checkpoint(folder)
    path.write_bytes(data[: len(data) // 2])
    with pytest.raises(CheckpointError, match=rf"tensor '.*' ends at byte \d+, the file has .* of {len(data)} \("):
        Checkpoint(folder)
    for other in (data[:100], b"", b"\0" * 100, b"\xff" * 100):
        path.write_bytes(other)
        with pytest.raises(CheckpointError, match=r"model\.safetensors is not a readable safetensors file"):
            Checkpoint(folder)


@pytest.mark.parametrize("package", ["safetensors", "ml_dtypes"])
def test_missing_extra_is_named(
    make_checkpoint: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    folder = make_checkpoint()
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(CompileError, match=r"pip install 'tcim-lite\[compile\]'"):
        Checkpoint(folder)


def test_a_file_without_permission_is_not_said_to_be_missing(
    make_checkpoint: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_checkpoint()
    (folder / "model.safetensors").write_bytes(b"")

    def refuse(*_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(CheckpointError, match="is not a readable safetensors file: Permission denied"):
        Checkpoint(folder)


def test_config_of(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="nowhere does not exist; expected"):
        config_of(tmp_path / "nowhere")
    with pytest.raises(CheckpointError, match=r"config\.json does not exist"):
        config_of(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(CheckpointError, match="cannot be read as JSON"):
        config_of(tmp_path)


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a": ' + "1" * 5000 + "}"])
def test_json_beyond_the_parser_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(CheckpointError, match="cannot be read as JSON"):
        config_of(tmp_path)


def test_a_config_that_might_not_end_is_refused_unread(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "config.json")
    with pytest.raises(CheckpointError, match=r"config\.json is not a regular file"):
        config_of(tmp_path)
    (tmp_path / "config.json").unlink()
    (tmp_path / "config.json").symlink_to("/dev/zero")
    with pytest.raises(CheckpointError, match=r"config\.json is not a regular file"):
        config_of(tmp_path)
    (tmp_path / "config.json").unlink()
    with (tmp_path / "config.json").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(CheckpointError, match="expected at most 67108864"):
        config_of(tmp_path)
