"""Model families, one file each. A file here that defines `FAMILY` is all that a new family needs."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from typing import Any

from ..common.errors import CompileError
from ..family import Family
from ..model_config import ModelConfig

_RECORDS: list[Family] = [
    importlib.import_module(f"{__name__}.{name}").FAMILY
    for name in sorted(module.name for module in pkgutil.iter_modules(__path__) if not module.ispkg)
]
FAMILIES: dict[str, Family] = {family.model_type: family for family in _RECORDS}


def titles_of(has: Callable[[Family], object]) -> str:
    """Names the families that have something, for a sentence."""
    *titles, last = (family.title for family in FAMILIES.values() if has(family))
    return f"{', '.join(titles)} and {last}" if titles else last


def read_config(raw: Mapping[str, Any]) -> ModelConfig:
    """Reads a parsed `config.json` by the rules of the family it names.

    Raises:
        CompileError: No family of this compiler, or a value that is missing, malformed or not supported.
    """
    for family in FAMILIES.values():
        if family.is_of(raw):
            return family.read(raw)
    part = next((f for f in FAMILIES.values() if f.nested and raw.get("model_type") == f"{f.model_type}_text"), None)
    if part is not None:
        raise CompileError(
            f"config.json is the {part.nested} of a {part.title} checkpoint (model_type={raw.get('model_type')!r}, "
            f"architectures={raw.get('architectures')!r}); compile the folder of the whole checkpoint, "
            f"{part.text_architecture or part.architecture}"
        )
    supported = ", ".join(f"{family.title} ({family.architecture})" for family in FAMILIES.values())
    raise CompileError(
        f"config.json describes another architecture (architectures={raw.get('architectures')!r}, "
        f"model_type={raw.get('model_type')!r}); this compiler takes {supported}"
    )
