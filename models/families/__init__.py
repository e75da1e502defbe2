"""Model families, one file each. A file here that defines `FAMILY` is all that a new family needs."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from typing import Any

from ..common.errors import CompileError
from ..family import Family, ModelConfig

FAMILIES: dict[str, Family] = {
    name: importlib.import_module(f"{__name__}.{name}").FAMILY
    for name in sorted(module.name for module in pkgutil.iter_modules(__path__))
}


def read_config(raw: Mapping[str, Any]) -> ModelConfig:
    """Reads a parsed `config.json` by the rules of the family it names.

    Raises:
        CompileError: No family of this compiler, or a value that is missing, malformed or not supported.
    """
    architectures, model_type = raw.get("architectures"), raw.get("model_type")
    for family in FAMILIES.values():
        listed = isinstance(architectures, (list, str)) and family.architecture in architectures
        if (listed if architectures else model_type == family.model_type) and model_type in (None, family.model_type):
            return family.read(raw)
    supported = ", ".join(f"{family.title} ({family.architecture})" for family in FAMILIES.values())
    raise CompileError(
        f"config.json describes another architecture (architectures={architectures!r}, model_type={model_type!r}); "
        f"this compiler takes {supported}"
    )
