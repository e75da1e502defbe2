"""Reads the marks of the public API from the sources of its packages, which takes no compiled core."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_PACKAGE = Path(__file__).parents[1]
_STATUSES = ("exact", "chosen", "extension")


@dataclass(frozen=True, slots=True)
class Marked:
    """A public name.

    Attributes:
        name: With its class: "Module.run".
        status: The name of the mark.
        section: Of the contract, "" for an extension.
        text: What was chosen, or what to do instead; "" where it is exact.
        cpp: The name that C++ has for it, or "".
        result: The class that a call or property returns, "ndarray", or "".
    """

    name: str
    status: str
    section: str
    text: str
    cpp: str
    result: str


def marked_names(package: str) -> Iterator[Marked]:
    """Of a package such as "runtime", whose `__init__.py` imports what is public."""
    for node in _parsed(_PACKAGE / package / "__init__.py").body:
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            source = _PACKAGE.parent / f"{node.module.replace('.', '/')}.py"
            defined = {each.name: each for each in _parsed(source).body if isinstance(each, _Definition)}
            for alias in node.names:
                yield from _marked(defined[alias.name], alias.name)


_Definition = ast.ClassDef | ast.FunctionDef


def _parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def _marked(node: _Definition, name: str) -> Iterator[Marked]:
    for decorator in node.decorator_list:
        match decorator:
            case ast.Call(func=ast.Name(id=status), args=arguments) if status in _STATUSES:
                texts = [ast.literal_eval(each) for each in arguments]
                section = texts.pop(0) if status != "extension" else ""
                text = texts.pop(0) if status != "exact" else ""
                yield Marked(name, status, section, text, texts.pop() if texts else "", _result(node))
    if isinstance(node, ast.ClassDef):
        members: dict[str, Marked] = {}
        for member in node.body:
            match member:
                case ast.FunctionDef(name=inner) if not inner.startswith("_"):
                    for found in _marked(member, f"{name}.{inner}"):
                        members[inner] = found
                case ast.Assign(targets=targets, value=ast.Name(id=other)) if other in members:
                    first = members[other]
                    text = first.text and f"another name of {other}"
                    for target in targets:
                        alias = ast.unparse(target)
                        members[alias] = Marked(f"{name}.{alias}", first.status, first.section, text, "", first.result)
        yield from members.values()


def _result(node: _Definition) -> str:
    returns = node.returns if isinstance(node, ast.FunctionDef) else None
    match returns:
        case ast.Name(id=name):
            return name
        case ast.Subscript(value=ast.Name(id="NDArray")):
            return "ndarray"
        case _:
            return ""
