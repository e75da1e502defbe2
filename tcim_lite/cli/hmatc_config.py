"""The `config.yml` of the vendor's hmatc, as the options of a compilation: hmatc then finds the package."""

from __future__ import annotations

import os
import reprlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..llm.text_file import read_text
from ..models.common.errors import CompileError
from ..models.onnx import QUANTS, ImageInput
from ..models.onnx.resizer import DYNAMIC, STATIC

_MOST_BYTES, _MOST_KEYS = 1 << 20, 10_000
_NO_DEFAULT = object()


def is_config(path: Path) -> bool:
    """Whether a path names a configuration, by its ending."""
    return path.suffix.lower() in (".yml", ".yaml")


def read_config(path: Path, batch: int | None = None) -> dict[str, Any]:
    """Arguments of `OnnxOptions`. Relative paths in the file count from its folder, where hmatc is run.

    Args:
        batch: goes before that of the file, in the name of the package as well, as hmatc's own `--batch` does.

    Raises:
        CompileError: The file is no configuration of a network, or asks for what is not offered.
    """
    config = _Section(path.name, _load(path))
    if config.get("version", int, 1) != 1:
        raise CompileError(f"{path.name} is of a language model: compile its checkpoint, tcim-lite compile HF_DIR")
    model, build = config.section("model"), config.section("build", optional=True)
    if isinstance(model.content.get("inputs"), list):
        raise CompileError(
            f"{model.where}: inputs is a list, as in files of hmassist, which came before hmatc: compile the ONNX "
            "file, tcim-lite compile FILE.onnx -o OUT"
        )
    inputs = model.section("inputs")
    images: dict[str, ImageInput] = {}
    shapes: dict[str, tuple[int, ...]] = {}
    suffix = ""
    batch = build.get("batch", int, 1) if batch is None else batch
    parts = build.get("roi_num", int, 1)
    if batch < 1:
        raise CompileError(f"{build.where}: batch: {batch}: expected 1 or more")
    for name in inputs.content:
        entry = inputs.section(name)
        shape = entry.integers("shape")
        if min(shape) < 1:
            raise CompileError(f"{entry.where}: shape {list(shape)}: expected whole numbers above 0")
        shapes[name] = (shape[0] * batch, *shape[1:])
        if entry.content.get("data_format") is not None and "resizer" in entry.content:
            images[name], suffix = _image(entry, shape, parts)
    first = next(iter(shapes.values()))[0]
    if images and parts > 1:
        shapes = {name: (shape[0] * parts, *shape[1:]) for name, shape in shapes.items()}
    quant = config.section("quant", optional=True).get("quant_type", str, QUANTS[0])
    if quant not in QUANTS:
        raise CompileError(f"{path.name}: quant_type {quant}: choose by --quant from {', '.join(QUANTS)}")
    tag = f"_{parts}roi" if suffix else ""
    cores, level = build.get("ncore", int, 1), build.get("opt_level", int, 2)
    return {
        "model": _model(path, model.get("model_path", str)),
        "batch": 1,  # the shapes have it
        "output": path.parent / model.get("save_dir", str) / "xh2",
        "name": f"{model.get('name', str, 'model')}_xh2_b{first}{tag}_{cores}core_O{level}{suffix}",
        "quant": quant,
        "shapes": shapes,
        "images": images,
    }


def _image(entry: _Section, shape: tuple[int, ...], parts: int) -> tuple[ImageInput, str]:
    """What the resizer does, and how the name of the package ends."""
    if len(shape) != 4:
        raise CompileError(f"{entry.where}: an image has the shape [N, C, H, W], got {list(shape)}")
    resizer = entry.section("resizer", optional=True)
    earlier = "enable_static_resizer" in resizer.content or "max_input_size" in resizer.content
    if earlier:  # what these keys mean, and how packages are called, is that of earlier versions of hmatc
        static = resizer.get("enable_static_resizer", bool, True)
        size, part = resizer.integers("max_input_size", shape[2:]), resizer.integers("crop_size", (0, 0, *shape[2:]))
    else:
        mode = resizer.get("resizer_mode", int, STATIC)
        if mode not in (DYNAMIC, STATIC):
            raise CompileError(
                f"{resizer.where}: resizer_mode {mode}: expected {DYNAMIC} (dynamic) or {STATIC} (static)"
            )
        static = mode == STATIC
        size = resizer.integers("resizer_input_size", shape[2:])
        part = resizer.integers("resizer_crop", (0, 0, *size))
    if len(size) != 2 or len(part) != 4:
        raise CompileError(f"{resizer.where}: expected two numbers for the size of the image, four for its part")
    (height, width), (y, x, rows, columns) = size, part
    means, deviations = entry.numbers("mean"), entry.numbers("std")
    if len(means) != 3 or len(deviations) != 3:
        raise CompileError(f"{entry.where}: expected three numbers for mean and std")
    # Of a border the vendor's tool gives the converter the first number alone.
    padded = not static and entry.get("resize_type", int, 0) == 1
    fill = entry.integers("padding_values", (114,))[0] if padded else 0
    order = entry.get("data_format", str)
    if order not in ("RGB", "BGR", "GRAY"):
        raise CompileError(f"{entry.where}: data_format {order!r:.80}: expected RGB, BGR or GRAY")
    image = ImageInput(
        format=resizer.get("toYUV_format", str, "YUV420SP"),
        height=height,
        width=width,
        dynamic=not static,
        parts=parts,
        part=(y, x, rows, columns) if static and (y, x, rows, columns) != (0, 0, height, width) else None,
        mean=(means[0], means[1], means[2]),
        deviation=(deviations[0], deviations[1], deviations[2]),
        swap=order == "BGR",
        fill=(fill, fill, fill),
    )
    return image, "_static" if static else "_dynamic" if earlier else "_dynamic_v2"


class _Section:
    """A mapping of the file, and where it is."""

    def __init__(self, where: str, content: Mapping[str, Any]) -> None:
        self.where, self.content = where, content

    def section(self, key: str, optional: bool = False) -> _Section:
        where = f"{self.where}: {key}"
        content = self.content.get(key)
        if content is None and optional:
            content = {}
        if not isinstance(content, dict) or not all(isinstance(name, str) for name in content):
            raise CompileError(f"{where}: expected a mapping as hmatc's config.yml has it (docs/programs.md)")
        if not content and not optional:
            raise CompileError(f"{where}: it is empty")
        return _Section(where, content)

    def get(self, key: str, kind: type, default: Any = _NO_DEFAULT) -> Any:
        value = self.content.get(key)
        if value is None and default is not _NO_DEFAULT:
            return default
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise CompileError(f"{self.where}: {key}: expected {kind.__name__}, got {reprlib.repr(value)}")
        if isinstance(value, str) and "\0" in value:
            raise CompileError(f"{self.where}: {key}: {value!r:.80}: expected text without NUL")
        if isinstance(value, int) and kind is int and not 0 <= value < 1 << 31:
            raise CompileError(f"{self.where}: {key}: {value}: expected 0 or more")
        return value

    def numbers(self, key: str) -> tuple[float, ...]:
        value = self.content.get(key)
        if not isinstance(value, list) or not value or not all(type(number) in (int, float) for number in value):
            raise CompileError(f"{self.where}: {key}: expected a list of numbers, got {reprlib.repr(value)}")
        return tuple(float(f"{number}") for number in value)  # by its digits: too large an integer becomes infinity

    def integers(self, key: str, default: tuple[int, ...] | None = None) -> tuple[int, ...]:
        value = self.content.get(key)
        if value is None and default is not None:
            return default
        whole = isinstance(value, list) and all(type(number) is int and abs(number) < 1 << 31 for number in value)
        if not whole or not value:
            raise CompileError(f"{self.where}: {key}: expected a list of whole numbers, got {reprlib.repr(value)}")
        return tuple(value)


def _load(path: Path) -> dict[str, Any]:
    try:
        import yaml
    except ImportError:
        raise CompileError(f"{path.name}: reading YAML needs PyYAML: pip install pyyaml") from None
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise CompileError(f"{path}: more than {_MOST_BYTES} bytes; expected hmatc's config.yml")
        content = yaml.load(read_text(path), _loader(yaml))
    except OSError as error:
        raise CompileError(f"{path}: cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, ValueError, RecursionError, LookupError, AttributeError) as error:  # the last two of tags
        raise CompileError(f"{path}: no YAML: {' '.join(str(error).split()):.200}") from None
    if not isinstance(content, dict) or not all(isinstance(key, str) for key in content):
        raise CompileError(f"{path}: expected a mapping with the key model, as hmatc's config.yml")
    return content


def _loader(yaml: Any) -> Any:
    """A SafeLoader for which mappings do not grow without end where they merge others (<<) that merge others."""

    class Loader(yaml.SafeLoader):  # type: ignore[misc]
        def flatten_mapping(self, node: Any) -> None:
            super().flatten_mapping(node)
            if len(node.value) > _MOST_KEYS:
                raise yaml.YAMLError(f"a mapping of more than {_MOST_KEYS} keys")

    return Loader


def _model(path: Path, name: str) -> Path:
    """Where hmatc finds the ONNX file."""
    places = [path.parent / name, Path(os.environ.get("HOUMO_MODEL_PATH", ""), name)]
    for place in places:
        if place.is_file():
            return place
    raise CompileError(f"{path.name}: model_path {name} is no file in {path.parent} or HOUMO_MODEL_PATH")
