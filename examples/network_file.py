"""Opens the network that an example was given: a .hmm file, a package folder, or an ONNX file, which it compiles."""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import tcim_lite.runtime as tcim

try:
    import PIL  # noqa: F401
except ImportError:
    sys.exit("this example reads images, which needs an extra: pip install 'tcim-lite[images]'")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `open_network`."""
    parser.add_argument("model", type=Path, help="MODEL.onnx, or what `tcim-lite compile MODEL.onnx -o OUT` wrote")
    parser.add_argument("--quant", help="profile to compile an ONNX file in: w8a8h1_sefp, float16 or float32")
    parser.add_argument("--labels", type=Path, help="a class a line; default: classes.txt beside the model, if any")


def open_network(model: Path, quant: str | None = None) -> tcim.Module:
    """Loads a network on device 0.

    Raises:
        ValueError: `model` is a folder without one .hmm file, or `quant` is given for a compiled package.
        subprocess.CalledProcessError: The ONNX file cannot be compiled; the command has said why.
    """
    if model.suffix.lower() == ".onnx":
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, "-m", "tcim_lite", "compile", str(model.resolve()), "-o", folder, "-q"]
            # Not here, where `python -m` may find a checkout instead of the installed package.
            subprocess.run([*command, *(["--quant", quant] if quant else [])], check=True, cwd=folder)
            return tcim.load(next(Path(folder).glob("*.hmm")).read_bytes())
    if quant:
        raise ValueError(f"--quant {quant} is for ONNX files; {model} is compiled")
    if model.is_dir():
        found = sorted(model.glob("*.hmm"))
        if len(found) != 1:
            raise ValueError(f"{model} holds {len(found)} .hmm files, expected one; give the file itself")
        model = found[0]
    return tcim.load(str(model))


def read_labels(model: Path, labels: Path | None, count: int) -> list[str]:
    """Names of `count` classes: from `labels`, from classes.txt beside the model, or their numbers."""
    path = labels or model.parent / "classes.txt"
    if labels is None and not path.is_file():
        return [str(number) for number in range(count)]
    names = path.read_text().split("\n")[:count]
    if len(names) < count:
        raise ValueError(f"{path} names {len(names)} classes, expected {count}")
    return names


def image_size(module: tcim.Module) -> tuple[int, int]:
    """Height and width of a network with one input [1, 3, H, W].

    Raises:
        ValueError: The network has other inputs.
    """
    shape = tuple(module.get_input_info(module.get_input_name(0)).shape)
    if module.get_num_inputs() != 1 or len(shape) != 4 or shape[:2] != (1, 3):
        count = module.get_num_inputs()
        raise ValueError(f"the network has {count} inputs, the first {shape}; expected one [1, 3, H, W]")
    return shape[2], shape[3]
