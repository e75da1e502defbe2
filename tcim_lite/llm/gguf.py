"""One GGUF file with all that a program needs of a language model, laid out as the vendor's deliveries (HiModel).

Each file of the package is a tensor of bytes (I8) under its own name: programs load graphs from where these lie, with
`Option.set_model_offset`, and take the rest out. The embedding has a header of its own: the number of axes, rows,
columns and a code of the dtype, each uint32.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from .. import hmm
from ..hmm.payload import TemporaryFile
from .json_object import read_object
from .package import HIDDEN_STATES, Package
from .text_file import read_text

if TYPE_CHECKING:
    from gguf import GGUFWriter

ALIGNMENT = 4096  # of tensors in the file: as of a page, so that weights are used where they lie
_FP16 = 1  # the vendor's code; those of other dtypes are not known
_GRAPHS = {"prefill.hmm": "prefill_path", "decoder.hmm": "decode_path"}
_TEMPLATE = "chat_template.jinja"
MOST_BYTES = 64 << 20  # of a configuration

Bytes = NDArray[np.int8]


def pack(package: Package, path: Path) -> dict[str, int]:
    """Writes a package into one file, which replaces an earlier one, and returns the bytes of what is in it, by name.

    Raises:
        FileNotFoundError: A file of the package is missing.
        ImportError: The package `gguf` is not installed.
        OSError: The file cannot be written.
        ValueError: The package's graphs keep their weights in another file, its embedding has no code, a file of its
            tokenizer is damaged, or `path` is no file to write.
    """
    check_place(package, path)
    graphs = {name: self_contained(getattr(package, attribute)) for name, attribute in _GRAPHS.items()}
    prefill = graphs["prefill.hmm"]
    model_type, layers = _read_config(package.tokenizer_folder / "config.json")
    from gguf import MODEL_ARCH_NAMES, GGUFWriter

    writer = GGUFWriter(None, _architecture(model_type, MODEL_ARCH_NAMES.values()))
    writer.add_name(package.name)
    _add_sizes(writer, layers, prefill)
    writer.add_custom_alignment(ALIGNMENT)
    writer.add_bool("is_hmm", True)
    writer.add_string("target", prefill.target)
    writer.add_uint32("core_num", prefill.ncore)
    assets = {"quant_embedding.bin": _embedding(package, prefill.graphs[0])}
    assets |= {name: np.memmap(getattr(package, attribute), np.int8, "r") for name, attribute in _GRAPHS.items()}
    files = _host_files(package.tokenizer_folder)
    if taken := sorted(assets.keys() & files):
        raise ValueError(
            f"{package.tokenizer_folder} has a file {taken[0]}, a name that packed files use themselves; rename it"
        )
    assets |= files
    write(writer, assets, path)
    return {name: content.nbytes for name, content in assets.items()}


def write(writer: GGUFWriter, assets: Mapping[str, Bytes], path: Path) -> None:
    """Writes what a writer was told, then the assets, into a file that replaces an earlier one once it is whole."""
    for name, content in assets.items():
        writer.add_tensor(name, content)
    path.parent.mkdir(parents=True, exist_ok=True)
    staged = TemporaryFile(path)
    try:
        writer.write_header_to_file(Path(staged.file.name))
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        staged.commit()
    except BaseException:
        writer.close()
        staged.discard()
        raise


def _embedding(package: Package, prefill: hmm.Graph) -> Bytes:
    rows, last = (prefill.values[ports[0]] for ports in (prefill.inputs, prefill.outputs))
    is_headless = last.name == HIDDEN_STATES
    count = package.table_rows(rows.shape[-1], rows.dtype) if is_headless else last.shape[-1]
    table = package.embedding(rows.shape[-1], count)
    if not isinstance(table, np.ndarray) or table.dtype != np.float16:
        raise ValueError(
            f"the embedding of {package.name} in {package.folder} is not one table in float16, the only kind whose "
            "code in such a file is known; compile without --quant float32, and a model without per-layer inputs"
        )
    header = np.array([2, *table.shape, _FP16], "<u4")
    return np.concatenate([header.view(np.int8), table.reshape(-1).view(np.int8)])


def check_place(package: Package, path: Path) -> None:
    if path.exists() and not path.is_file():
        what, example = ("folder", f", such as {path / 'model.gguf'}") if path.is_dir() else ("device", "")
        raise ValueError(f"{path} is a {what}; expected the file to write{example}")
    folder, place = package.folder.resolve(), path.resolve()
    if folder in place.parents and (place.parent != folder or place.suffix != ".gguf"):
        raise ValueError(
            f"{path} lies in the package {folder}, among the files that are packed; write it elsewhere, or as a .gguf "
            "file beside the graphs"
        )


def self_contained(path: Path) -> hmm.Container:
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing; such a file holds prefill and decode for one device")
    container = hmm.read(path)
    if container.sibling is not None:
        raise ValueError(
            f"{path.name} keeps its weights in {container.sibling.file}, which no graph inside another file finds; "
            "compile the package with --self-contained"
        )
    return container


def _host_files(folder: Path) -> dict[str, Bytes]:
    """The files of the tokenizer; its config has the chat template, which programs look for there."""
    template = folder / _TEMPLATE
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder} is missing; copy the whole package folder, or compile the checkpoint again")
    contents = {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file()}
    name = "tokenizer_config.json"
    if name in contents and template.is_file():
        config = {"chat_template": read_text(template)} | read_object(folder / name, MOST_BYTES)
        contents[name] = json.dumps(config, ensure_ascii=False, indent=2).encode()
    return {name: np.frombuffer(content, np.int8) for name, content in contents.items()}


def _architecture(model_type: str, names: Iterable[str]) -> str:
    """llama.cpp's name of a model type, as qwen35 for qwen3_5; the type itself where llama.cpp has none."""
    return next((name for name in names if _letters(name) == _letters(model_type.removesuffix("_text"))), model_type)


def _letters(name: str) -> str:
    return name.replace("_", "").replace("-", "")


def _read_config(path: Path) -> tuple[str, int | None]:
    """The model type and the number of layers, where the file says them."""
    config = read_object(path, MOST_BYTES)
    model_type, language = config.get("model_type", ""), config.get("text_config", config)
    if not isinstance(model_type, str) or not model_type.isprintable():
        raise ValueError(f"{path}: model_type is {model_type!r:.80}; expected a name")
    layers = language.get("num_hidden_layers") if isinstance(language, dict) else None
    if layers is not None and (isinstance(layers, bool) or not isinstance(layers, int) or not 0 < layers < 1 << 32):
        raise ValueError(f"{path}: num_hidden_layers is {layers!r:.80}; expected a positive whole number")
    return model_type, layers


def _add_sizes(writer: GGUFWriter, layers: int | None, prefill: hmm.Container) -> None:
    """The sizes by which programs on llama.cpp name caches and take rows of the embedding."""
    if layers is not None:
        writer.add_block_count(layers)
    graph = prefill.graphs[0]
    writer.add_embedding_length(graph.values[graph.inputs[0]].shape[-1])
    writer.add_context_length(json.loads(prefill.custom_msg)["context_length"])
