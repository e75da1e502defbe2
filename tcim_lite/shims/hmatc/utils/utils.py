"""Helpers that the vendor's demos use to read their configuration and to fetch their files."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from importlib import metadata
from os import PathLike
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from tcim_lite.runtime import get_version, load_model_info

__all__ = [
    "first_not_none",
    "get_file_from_jfrog",
    "get_houmo_version",
    "get_model_configs",
    "get_package_version",
    "hmatc_get_file",
    "parse_context_length",
]

T = TypeVar("T")
_MOST_BYTES = 1 << 20


def first_not_none(*values: T | None) -> T | None:
    """The first value that is not None; None if all are."""
    return next((value for value in values if value is not None), None)


def get_model_configs(config_path: str | PathLike[str]) -> tuple[str, str, dict[str, dict[str, Any]]]:
    """Reads a demo's config.yaml.

    Args:
        config_path: a YAML file with `default_model_size`, `default_model_name` and `model_configs`.

    Returns:
        The default size, the default name, and the configurations: `configs[name][size]` is a mapping of settings.

    Raises:
        ImportError: PyYAML is not installed.
        OSError: the file cannot be read.
        ValueError: it is no YAML of this shape, or larger than 1 MiB.
    """
    path = Path(config_path)
    try:
        import yaml
    except ImportError:
        raise ImportError(f"{path}: reading YAML needs PyYAML: pip install pyyaml") from None
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file; expected the demo's config.yaml")
    if path.stat().st_size > _MOST_BYTES:
        raise ValueError(f"{path}: {path.stat().st_size} bytes; expected a config.yaml of at most {_MOST_BYTES}")
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"{path}: no YAML: {' '.join(str(error).split()):.200}") from None
    configs = content.get("model_configs", {}) if isinstance(content, dict) else None
    if not isinstance(configs, dict) or not all(isinstance(sizes, dict) for sizes in configs.values()):
        raise ValueError(f"{path}: expected a mapping with model_configs: NAME: SIZE: settings")
    return str(content.get("default_model_size", "")), str(content.get("default_model_name", "")), configs


def parse_context_length(text: str | int) -> int:
    """A number of tokens: `4096`, `"4096"`, `"256k"` (units of 1024) or `"1m"` (of 1024 * 1024). ValueError else."""
    match = re.fullmatch(r"\s*(\d{1,12})\s*([kKmM]?)\s*", str(text))
    length = int(match[1]) * {"": 1, "k": 1 << 10, "m": 1 << 20}[match[2].lower()] if match else 0
    if length < 1:
        raise ValueError(f"context length {text!r:.80}: expected a number of tokens such as 4096, 256k or 1m")
    return length


def get_houmo_version() -> str:
    """`HOUMO_VERSION` with a "v" before it; where it is not set, the version of the runtime that is emulated.

    Raises:
        ValueError: `HOUMO_VERSION` is no version.
    """
    version = os.environ.get("HOUMO_VERSION") or get_version().split("\n")[0]
    if not re.fullmatch(r"v?\d+\.\d+\.\d+(\.dev\d{8})?", version):
        raise ValueError(f"HOUMO_VERSION={version!r:.80}: expected a version such as v1.4.0")
    return version if version.startswith("v") else f"v{version}"


def get_package_version(package_name: str) -> str:
    """The version of an installed package; "N/A" without it."""
    try:
        return metadata.version(package_name)
    except metadata.PackageNotFoundError:
        return "N/A"


def hmatc_get_file(
    model_cfgs: Mapping[str, Any],
    file_type: str,
    download_dir: str = "",
    extract_dir: str | None = None,
    source_type: str = "jfrog",
) -> tuple[str, dict[str, Any]]:
    """Finds the compiled models where the vendor's would put them, so that scripts which fetch first go on.

    Args:
        model_cfgs: of the model; `target` and `model_name` are read.
        file_type: "hmm"; everything else is refused.
        download_dir, source_type: not used.
        extract_dir: the folder of the models; `output/TARGET` without it.

    Returns:
        The folder, and `{"ret": True}`.

    Raises:
        RuntimeError: there are none, as from `get_file_from_jfrog`.
    """
    folder = Path("output", str(model_cfgs.get("target", "xh2"))) if extract_dir is None else Path(extract_dir)
    if file_type != "hmm" or not _has_models(folder):
        get_file_from_jfrog(f"{model_cfgs.get('model_name', 'the model')} ({file_type})", "", str(folder))
    print(f"{folder} has compiled models; nothing is downloaded.")
    return str(folder), {"ret": True}


def _has_models(folder: Path) -> bool:
    for path in sorted(folder.glob("*.hmm*")):
        try:
            load_model_info(path)
        except RuntimeError:  # another file of this name, or one of the vendor's
            continue
        return True
    return False


def get_file_from_jfrog(file_path: str, save_dir: str = "", extract_dir: str | None = None) -> NoReturn:
    """Refuses: the vendor's server has compiled files for the card, which the emulator cannot run.

    Raises:
        RuntimeError: always; the message says how to make the files here.
    """
    raise RuntimeError(
        f"{file_path!r:.200} is not downloaded: the vendor's files are closed and need the card. Compile the Hugging "
        f"Face checkpoint instead: tcim-lite compile HF_DIR -o {extract_dir or save_dir or 'OUT'} (docs/porting.md)"
    )


def __getattr__(name: str) -> NoReturn:
    if name.startswith("__"):
        raise AttributeError(name)
    raise ImportError(
        f"cannot import {name!r}: of the vendor's hmatc.utils.utils there are here {', '.join(__all__)}; put the "
        "vendor's hmatc on the path, which takes precedence (docs/devices.md)",
        name=__name__,
    )
