"""Random checkpoints whose Linears are codes, beside the same as floats: what both compile to must be equal."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from family_checkpoints import family_config, family_tensors

from tcim_lite.models.checkpoints.checkpoint import Checkpoint
from tcim_lite.models.checkpoints.quantized.table import decoded
from tcim_lite.models.compiler import CompileOptions, compile_checkpoint

torch = pytest.importorskip("torch", reason="writes FP8, and computes what codes stand for")
save_file = pytest.importorskip("safetensors.torch").save_file

MODULE = "model.layers.1.mlp.down_proj"  # of which tests look at tensors

# Of a weight: the tensors beside each other in the file by what follows the module's name, and the values in fp32.
Encoder = Callable[[Any], "tuple[Mapping[str, Any], Any]"]


def write(folder: Path, config: Mapping[str, Any], tensors: Mapping[str, Any]) -> Path:
    """A folder with config.json and model.safetensors."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    save_file({name: tensor.clone().contiguous() for name, tensor in tensors.items()}, folder / "model.safetensors")
    return folder


class Coded:
    """A checkpoint of a tiny config whose projections an encoder has stored.

    Attributes:
        config: With `quantization_config`.
        tensors: Of the file.
        floats: What they stand for.
    """

    def __init__(self, family: str, scheme: Mapping[str, Any], encode: Encoder, **changes: Any) -> None:
        plain = family_config(family, **changes)
        self.config = {**plain, "quantization_config": dict(scheme)}
        self.floats = {name: torch.from_numpy(tensor).float() for name, tensor in family_tensors(plain).items()}
        self.tensors = dict(self.floats)
        for name in self.floats:
            if name.endswith("_proj.weight"):
                self.encode(name, encode)

    def encode(self, name: str, encode: Encoder, end: str = ".weight") -> None:
        """Stores a tensor of floats as codes; `end` is what stands for the module's tensors in its name."""
        parts, values = encode(self.tensors.pop(name))
        self.tensors |= {name.removesuffix(end) + what: part for what, part in parts.items()}
        self.floats[name] = values

    def both(self, folder: Path, **options: Any) -> tuple[bytes, bytes]:
        """The weights of the packages of the codes and of the floats."""
        plain = {key: value for key, value in self.config.items() if key != "quantization_config"}
        coded = write(folder / "coded", self.config, self.tensors)
        floats = write(folder / "floats", plain, {name: value.float() for name, value in self.floats.items()})
        return weights_of(coded, **options), weights_of(floats, **options)

    def check_rows(self, folder: Path) -> None:
        """Any rows of a tensor in the folder of `both` are those of the whole, wherever blocks and words begin."""
        store, name = decoded(Checkpoint(folder / "coded"), self.config), f"{MODULE}.weight"
        whole = self.floats[name].numpy()
        for start, stop in ((0, 1), (1, 2), (7, 45), (len(whole) - 3, len(whole))):
            np.testing.assert_array_equal(store.read(name, start, stop), whole[start:stop], f"{start} to {stop}")


def edited(what: str, value: Callable[[Any], Any]) -> Callable[[dict[str, Any]], None]:
    """What puts `value` of a tensor of MODULE, or of None, in its place."""

    def edit(tensors: dict[str, Any]) -> None:
        tensors[f"{MODULE}.{what}"] = value(tensors.get(f"{MODULE}.{what}"))

    return edit


def without(what: str) -> Callable[[dict[str, Any]], None]:
    """What takes a tensor of MODULE out."""
    return lambda tensors: tensors.pop(f"{MODULE}.{what}")


def weights_of(source: Path, **options: Any) -> bytes:
    """The weight file that a checkpoint compiles to."""
    package = compiled(source, **options)
    (file,) = package.glob("*.hmw")
    return file.read_bytes()


def compiled(source: Path, **options: Any) -> Path:
    """The package of a checkpoint, beside it; a tensor without a place in the graph is an error."""
    output = source.with_name(f"{source.name}_out")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*has no tokenizer files")
        sizes = {"prefill_length": 8, "context_length": 64, "quant": "float32", **options}
        compile_checkpoint(CompileOptions(checkpoint=source, output=output, **sizes))
    return output
