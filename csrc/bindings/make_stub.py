"""Writes tcim_lite/_core.pyi, the types of the compiled core, from the signatures that pybind11 puts into docstrings.

`make docs` runs it; a test compares the file with what it would write.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from tcim_lite import _core

STUB = Path(__file__).parents[2] / "tcim_lite" / "_core.pyi"
HEAD = '''"""The compiled core. Only tcim_lite.runtime, dev_ctrl, layers, faults and bench use it.

Made by csrc/bindings/make_stub.py: run `make docs` after a change of the bindings.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from numpy.typing import NDArray
from typing_extensions import Buffer

_Array = NDArray[Any]
'''
# pybind11's words for types, and what the package calls them.
WORDS = {
    r"tcim_lite(\._core\.|::)": "",
    r"typing\.SupportsInt \| typing\.SupportsIndex": "int",
    r"typing\.SupportsFloat \| typing\.SupportsIndex": "float",
    r"(collections\.abc|typing|typing_extensions)\.": "",
    r"numpy\.ndarray\b": "_Array",
    r"\bdict\b(?!\[)": "dict[str, Any]",
    r"\blist\b(?!\[)": "list[dict[str, Any]]",  # rows of a table
    r"\btuple\b(?!\[)": "tuple[int, ...]",  # shapes
    "'": '"',
}
# A std::string takes bytes, too, and a std::shared_ptr None; pybind11 does not say so.
ARGUMENTS = {r"\bpath: str\b": "path: str | bytes", r": (WeightStore|Stream)\b": r": \1 | None"}


def stub() -> str:
    """The whole file."""
    members = [item for name, item in vars(_core).items() if not name.startswith("_")]
    functions = "\n".join(_function(item) for item in members if not isinstance(item, type))
    parts = [HEAD, functions, *(_class(item) for item in members if isinstance(item, type))]
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def _class(item: type) -> str:
    lines = []
    for name, member in vars(item).items():
        if isinstance(member, property):
            result = _typed((member.fget.__doc__ or "").rpartition(" -> ")[2].strip())
            lines += ["    @property", f"    def {name}(self) -> {result}: ..."]
        elif name == "__init__" and (member.__doc__ or "").startswith("__init__(self"):
            lines.append(_function(member, "    "))
        elif not name.startswith("_"):
            lines.append(_function(getattr(item, name), "    "))
    return "\n".join([f"class {item.__name__}:", *lines])


def _function(function: Any, indent: str = "") -> str:
    signature = (function.__doc__ or "").partition("\n")[0]
    found = re.fullmatch(r"(\w+)\((.*)\) -> (.+)", signature)
    if found is None:
        raise ValueError(f"{function.__name__}: '{signature}' is no signature; give every overload a name of its own")
    name, arguments, result = found[1], _typed(re.sub(r"^self: [\w.]+", "self", found[2])), _typed(found[3])
    for pattern, text in ARGUMENTS.items():
        arguments = re.sub(pattern, text, arguments)
    mark = f"{indent}@staticmethod\n" if indent and not arguments.startswith("self") else ""
    line = f"{indent}def {name}({arguments}) -> {result}: ..."
    if len(line) > 120:
        rows = "".join(f"{indent}    {argument},\n" for argument in re.split(r", (?![^\[]*\])", arguments))
        line = f"{indent}def {name}(\n{rows}{indent}) -> {result}: ..."
    return mark + line


def _typed(text: str) -> str:
    for pattern, word in WORDS.items():
        text = re.sub(pattern, word, text)
    return text


if __name__ == "__main__":
    STUB.write_text(stub())
