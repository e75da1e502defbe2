"""One GGUF file with all that a program needs of a language model, laid out as the vendor's deliveries (HiModel).

Each file of the package is a tensor of bytes (I8) under its own name: programs load graphs from where these lie, with
`Option.set_model_offset`, and take the rest out. The embedding has a header of its own: the number of axes, rows,
columns and a code of the dtype, each uint32.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from .. import hmm
from ..hmm.payload import TemporaryFile
from .json_object import read_object
from .package import Package
from .text_file import read_text

_ALIGNMENT = 4096  # of tensors in the file: as of a page, so that weights are used where they lie
_UINT32, _BOOL, _STRING, _I8 = 4, 7, 8, 24
_FP16 = 1  # the vendor's code; those of other dtypes are not known
_GRAPHS = {"prefill.hmm": "prefill_path", "decoder.hmm": "decode_path"}
_TEMPLATE = "chat_template.jinja"
_MOST_BYTES = 64 << 20  # of a configuration


@dataclass(frozen=True, slots=True)
class Asset:
    """A tensor of the file.

    Attributes:
        name: By which programs ask for it.
        parts: Its bytes, one after the other; a path is read when they are written.
    """

    name: str
    parts: Sequence[bytes | memoryview | Path]

    @property
    def nbytes(self) -> int:
        """Of all parts."""
        return sum(part.stat().st_size if isinstance(part, Path) else len(part) for part in self.parts)


def pack(package: Package, path: Path) -> list[Asset]:
    """Writes a package into one file, which replaces an earlier one, and returns what is in it.

    Raises:
        FileNotFoundError: A file of the package is missing.
        OSError: The file cannot be written.
        ValueError: The package's graphs keep their weights in another file, its embedding has no code, a file of its
            tokenizer is damaged, or `path` is no file to write.
    """
    _check_place(package, path)
    graphs = {name: _self_contained(getattr(package, attribute)) for name, attribute in _GRAPHS.items()}
    prefill = graphs["prefill.hmm"].graphs[0]
    rows, logits = (prefill.values[ports[0]] for ports in (prefill.inputs, prefill.outputs))
    hidden_size, vocab_size = rows.shape[-1], logits.shape[-1]
    table = package.embedding(hidden_size, vocab_size)
    if not isinstance(table, np.ndarray) or table.dtype != np.float16:
        raise ValueError(
            f"the embedding of {package.name} in {package.folder} is not one table in float16, the only kind whose "
            "code in such a file is known; compile without --quant float32, and a model without per-layer inputs"
        )
    assets = [
        Asset("quant_embedding.bin", [struct.pack("<IIII", 2, vocab_size, hidden_size, _FP16), table.data.cast("B")]),
        *(Asset(name, [getattr(package, attribute)]) for name, attribute in _GRAPHS.items()),
        *_host_files(package.tokenizer_folder),
    ]
    about = {
        "general.architecture": _model_type(package.tokenizer_folder),
        "general.name": package.name,
        "general.alignment": _ALIGNMENT,
        "is_hmm": True,
        "target": graphs["prefill.hmm"].target,
        "core_num": graphs["prefill.hmm"].ncore,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    staged = TemporaryFile(path)
    try:
        _write(staged.file, about, assets)
        staged.commit()
    except BaseException:
        staged.discard()
        raise
    return assets


def _check_place(package: Package, path: Path) -> None:
    if path.exists() and not path.is_file():
        what, example = ("folder", f", such as {path / 'model.gguf'}") if path.is_dir() else ("device", "")
        raise ValueError(f"{path} is a {what}; expected the file to write{example}")
    folder, place = package.folder.resolve(), path.resolve()
    if folder in place.parents and (place.parent != folder or place.suffix != ".gguf"):
        raise ValueError(
            f"{path} lies in the package {folder}, among the files that are packed; write it elsewhere, or as a .gguf "
            "file beside the graphs"
        )


def _self_contained(path: Path) -> hmm.Container:
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing; such a file holds prefill and decode for one device")
    container = hmm.read(path)
    if container.sibling is not None:
        raise ValueError(
            f"{path.name} keeps its weights in {container.sibling.file}, which no graph inside another file finds; "
            "compile the package with --self-contained"
        )
    return container


def _host_files(folder: Path) -> Iterable[Asset]:
    """The files of the tokenizer; its config has the chat template, which programs look for there."""
    template = folder / _TEMPLATE
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder} is missing; copy the whole package folder, or compile the checkpoint again")
    for file in sorted(path for path in folder.iterdir() if path.is_file()):
        if file.name == "tokenizer_config.json" and template.is_file():
            config = {"chat_template": read_text(template)} | read_object(file, _MOST_BYTES)
            yield Asset(file.name, [json.dumps(config, ensure_ascii=False, indent=2).encode()])
        else:
            yield Asset(file.name, [file])


def _model_type(folder: Path) -> str:
    return str(read_object(folder / "config.json", _MOST_BYTES).get("model_type", ""))


def _write(file: BinaryIO, about: Mapping[str, Any], assets: Sequence[Asset]) -> None:
    file.write(b"GGUF" + struct.pack("<IQQ", 3, len(assets), len(about)))
    for key, value in about.items():
        file.write(_text(key) + _value(value))
    offset = 0
    for asset in assets:
        file.write(_text(asset.name) + struct.pack("<IQIQ", 1, asset.nbytes, _I8, offset))
        offset += -(-asset.nbytes // _ALIGNMENT) * _ALIGNMENT
    for asset in assets:
        file.write(b"\0" * (-file.tell() % _ALIGNMENT))
        for part in asset.parts:
            if isinstance(part, Path):
                with part.open("rb") as source:
                    while block := source.read(1 << 24):
                        file.write(block)
            else:
                file.write(part)
    file.write(b"\0" * (-file.tell() % _ALIGNMENT))


def _text(text: str) -> bytes:
    encoded = text.encode()
    return struct.pack("<Q", len(encoded)) + encoded


def _value(value: bool | int | str) -> bytes:
    if isinstance(value, bool):
        return struct.pack("<I?", _BOOL, value)
    if isinstance(value, int):
        return struct.pack("<II", _UINT32, value)
    return struct.pack("<I", _STRING) + _text(value)
