"""Hugging Face checkpoint folders: `config.json` and safetensors, one file or shards."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tcim_lite.hmm.foreign import describe_foreign
from tcim_lite.hmm.layout import MAGIC_MODEL, MAGIC_WEIGHTS

from ..common.errors import CheckpointError
from .tensor_file import INDEX, MOST_JSON_BYTES, Entry, entries_of, import_safe_open, missing, open_file

_SINGLE = "model.safetensors"
_BESIDE = "hf_quant_config.json"  # of ModelOpt, beside a config.json that does not say it
FLOATS = ("BF16", "F16", "F32")
# What safetensors does not give to numpy, and integers of the same size: read as bytes from where they lie in the file.
_OF_ONE_BYTE = ("U8", "I8", "F8_E4M3", "F8_E5M2", "F8_E8M0")


def read_json(path: Path) -> dict[str, Any]:
    """Returns the JSON object in `path`; CheckpointError if there is none."""
    if path.exists() and not path.is_file():  # reading a FIFO or a device might not end
        raise CheckpointError(f"{path} is not a regular file; expected a Hugging Face checkpoint folder")
    try:
        if path.stat().st_size > MOST_JSON_BYTES:
            raise CheckpointError(f"{path} has {path.stat().st_size} bytes, expected at most {MOST_JSON_BYTES}")
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CheckpointError(f"{path} does not exist; expected a Hugging Face checkpoint folder") from None
    except (OSError, ValueError, RecursionError) as error:  # ValueError: no UTF-8, no JSON, a number of 5000 digits
        raise CheckpointError(f"{path} cannot be read as JSON: {error}") from error
    if not isinstance(content, dict):
        raise CheckpointError(f"{path} holds {type(content).__name__}, expected a JSON object")
    return content


class TensorStore(Protocol):
    """Tensors under the names of Hugging Face, read a few rows at a time as fp32, by several threads at once."""

    def __contains__(self, name: str) -> bool: ...

    def names(self) -> list[str]:
        """Returns the names of all tensors."""

    def shape(self, name: str) -> tuple[int, ...]:
        """Returns the shape of a tensor."""

    def check(self, name: str, shape: Sequence[int]) -> None:
        """Raises CheckpointError unless the tensor exists, is a float and has `shape`."""

    def read(self, name: str, start: int = 0, stop: int | None = None) -> NDArray[np.float32]:
        """Returns rows start..stop of a tensor; CheckpointError if it is missing or holds NaN or infinity."""


class PartStore(TensorStore, Protocol):
    """A store that also gives parts of tensors of more than two axes."""

    def check(self, name: str, shape: Sequence[int], dtypes: Sequence[str] = FLOATS) -> None:
        """Raises CheckpointError unless the tensor exists, has one of `dtypes` and `shape`."""

    def part(self, name: str, index: tuple[int | slice, ...]) -> NDArray[Any]:
        """Returns a part of a tensor as it is stored; one that stands for floats as fp32."""


class CodeStore(TensorStore, Protocol):
    """A store some of whose tensors are codes of 4 bits with scales."""

    def has_codes(self, name: str) -> bool:
        """Whether a tensor is stored as codes."""

    def check_codes(self, name: str) -> None:
        """Raises CheckpointError where our 4-bit format cannot hold the codes of a tensor."""

    def codes(self, name: str, start: int, stop: int) -> tuple[NDArray[np.int8], NDArray[np.float16]]:
        """Returns rows of a tensor: codes [stop - start, K] in -8..7 and scales [stop - start, K / 64]."""


class Checkpoint:
    """Tensors of a checkpoint folder, read a few rows at a time as fp32; one without axes counts as a vector of one.

    Every read opens and closes its file: threads may read at once, and mapped pages do not pile up in resident memory.
    """

    def __init__(self, folder: Path) -> None:
        """Finds the files; reads no tensor.

        Raises:
            CheckpointError: No safetensors, or a shard is missing.
            CompileError: The extra ``[compile]`` is not installed.
        """
        import_safe_open()
        self.folder = folder
        if (folder / INDEX).is_file():
            weight_map = read_json(folder / INDEX).get("weight_map")
            if not isinstance(weight_map, dict):
                raise CheckpointError(f"{folder / INDEX} has no 'weight_map'")
            self._files = {name: self._shard(file) for name, file in weight_map.items()}
        else:
            self._files = dict.fromkeys(entries_of(self._single()), self._single())
        self._read: dict[Path, dict[str, Entry]] = {}

    def __contains__(self, name: str) -> bool:
        return self.stored_name(name) in self._files

    def names(self) -> list[str]:
        """Returns the names of all tensors."""
        return list(self._files)

    def shape(self, name: str) -> tuple[int, ...]:
        """Returns the shape of a tensor."""
        return self._entry(name).shape or (1,)

    def dtype(self, name: str) -> str:
        """Returns the dtype of a tensor as safetensors calls it."""
        return self._entry(name).dtype

    def check(self, name: str, shape: Sequence[int], dtypes: Sequence[str] = FLOATS) -> None:
        """Raises CheckpointError unless the tensor exists, has one of `dtypes` and `shape`."""
        entry = self._entry(name)
        if (got := entry.shape or (1,)) != tuple(shape):
            raise CheckpointError(f"{self.where(name)} has shape {list(got)}, expected {list(shape)} by config.json")
        if entry.dtype not in dtypes:
            raise CheckpointError(f"{self.where(name)} has dtype {entry.dtype}, expected one of {', '.join(dtypes)}")

    def where(self, name: str) -> str:
        """Names a tensor and its file in messages."""
        stored = self.stored_name(name)
        return f"tensor {stored!r} in {self._files[stored]}"

    def read(self, name: str, start: int = 0, stop: int | None = None) -> NDArray[np.float32]:
        """Returns rows start..stop of a tensor in fp32.

        Raises:
            CheckpointError: The tensor is missing or holds NaN or infinity. One without axes may be infinite, as bounds
                are that keep nothing.
        """
        if (dtype := self.dtype(name)) in _OF_ONE_BYTE:
            raise CheckpointError(f"{self.where(name)} has dtype {dtype}, expected one of {', '.join(FLOATS)}")
        name = self.stored_name(name)
        with self._open(name) as file:
            entry = file.get_slice(name)
            has_axes = bool(entry.get_shape())
            rows = np.atleast_1d(entry[start:stop] if has_axes else file.get_tensor(name)).astype(np.float32)
        if (~np.isfinite(rows) if has_axes else np.isnan(rows)).any():
            raise CheckpointError(f"tensor {name!r} in {self._files[name]} holds NaN or infinity")
        return rows

    def part(self, name: str, index: tuple[int | slice, ...]) -> NDArray[Any]:
        """Returns a part of a tensor in the dtype that it is stored in; CheckpointError if it is missing.

        Floats of 8 bits are returned as uint8. One without axes counts as a vector of one, which is returned whole.
        """
        entry, name = self._entry(name), self.stored_name(name)
        if entry.dtype in _OF_ONE_BYTE:
            kind = np.int8 if entry.dtype == "I8" else np.uint8
            if 0 in entry.shape:
                return np.zeros(entry.shape, kind)[index]
            mapped = np.memmap(self._files[name], kind, "r", entry.begin, entry.shape or (1,))
            return np.array(mapped[index] if entry.shape else mapped)
        with self._open(name) as file:
            return np.asarray(file.get_slice(name)[index] if entry.shape else [file.get_tensor(name)])

    def integers(self, name: str, columns: slice = slice(None)) -> NDArray[np.int32]:
        """Returns a tensor of int32, or some columns of a matrix; CheckpointError if it is missing."""
        name = self.stored_name(name)
        with self._open(name) as file:
            entry = file.get_slice(name)
            values = entry[:] if columns == slice(None) else entry[:, columns]
        return np.ascontiguousarray(values, np.int32)

    def stored_name(self, name: str) -> str:
        """The name in the files of what callers call so, which is another in views of a part of a model."""
        return name

    def _open(self, name: str) -> Any:
        return open_file(self._file(name), name)

    def _file(self, name: str) -> Path:
        if name not in self._files:
            source = INDEX if (self.folder / INDEX).is_file() else _SINGLE
            raise CheckpointError(f"{self.folder / source} has no tensor {name!r}")
        return self._files[name]

    def _entry(self, name: str) -> Entry:
        """Of what callers call so."""
        path = self._file(name := self.stored_name(name))
        entries = self._read.get(path)
        if entries is None:
            entries = self._read[path] = entries_of(path)
        if name not in entries:
            raise missing(path, name)
        return entries[name]

    def _shard(self, file: object) -> Path:
        if not isinstance(file, str) or Path(file).name != file:
            raise CheckpointError(f"{self.folder / INDEX} names the shard {file!r}, expected a bare file name")
        if not (self.folder / file).is_file():
            raise CheckpointError(f"{self.folder / file} does not exist, but {INDEX} names it (incomplete download?)")
        return self.folder / file

    def _single(self) -> Path:
        path = self.folder / _SINGLE
        if path.is_file():
            return path
        if any(self.folder.glob("*.bin")) or any(self.folder.glob("*.pt*")):
            raise CheckpointError(
                f"{self.folder} holds pytorch files only; convert them to safetensors, e.g. "
                "AutoModelForCausalLM.from_pretrained(folder).save_pretrained(folder)"
            )
        if graph := next(self.folder.glob("*.hmm*"), None):
            raise CheckpointError(
                f"{self.folder} is a compiled package already: it has {graph.name} and no {_SINGLE}; run it, or give "
                "the checkpoint's folder"
            )
        raise CheckpointError(f"{self.folder} has neither {_SINGLE} nor {INDEX}; --random-weights needs no weights")


def config_of(folder: Path) -> Mapping[str, Any]:
    """Returns the parsed `config.json` of a checkpoint folder; CheckpointError if the folder has none."""
    if folder.is_file():
        with folder.open("rb") as file:
            head = file.read(512)
        what = (
            "it is a compiled file already"
            if head.startswith((MAGIC_MODEL, MAGIC_WEIGHTS))
            else describe_foreign(memoryview(head))
        )
        what = what.replace("give the path of a .hmm", "give the checkpoint's folder")
        raise CheckpointError(f"{folder} is a file, expected a Hugging Face checkpoint folder or a GGUF file: {what}")
    if not folder.is_dir():
        wrong = "is not a folder" if folder.exists() else "does not exist"
        hint = ""
        if not folder.exists() and not folder.is_absolute() and len(folder.parts) == 2:
            hint = f"; a model of the Hugging Face hub is fetched with `hf download {folder} --local-dir DIR`"
        raise CheckpointError(
            f"{folder} {wrong}; expected a Hugging Face checkpoint folder, a GGUF file or a network in an .onnx file"
            f"{hint}"
        )
    if not (folder / "config.json").exists() and (files := sorted(folder.glob("*.gguf"))):
        raise CheckpointError(f"{folder} has no config.json, but {files[0].name}: give the path of that file")
    config = read_json(folder / "config.json")
    if not config.get("quantization_config") and (folder / _BESIDE).is_file():
        config["quantization_config"] = _said_beside(folder / _BESIDE)
    return config


def _said_beside(path: Path) -> dict[str, Any]:
    """What a file of its own says of how a checkpoint is quantised, as config.json would."""
    content = read_json(path)
    given, producer = content.get("quantization"), content.get("producer")
    if not isinstance(given, dict):
        raise CheckpointError(f"{path} has no object 'quantization'")
    return {"quant_method": (producer if isinstance(producer, dict) else {}).get("name", "?"), **given}
