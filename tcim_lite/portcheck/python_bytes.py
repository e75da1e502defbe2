"""P-301 in a Python program: bytes of one type given or read as another."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from .findings import Place, Risk, risk
from .python_calls import entry_of, set_values
from .python_source import PythonFile
from .scopes import Scope

_BYTE_TYPES = ("uint8",)


def reinterpreted(file: PythonFile, node: ast.AST, scope: Scope) -> Iterator[Risk]:
    if not isinstance(node, ast.Call):
        return
    entry = entry_of(file, node, scope)
    if entry == "Module.set_input":
        for value in set_values(node):
            text = _bytes_of(file, value, scope)
            if text:
                yield risk("P-301", Place(file.shown, node.lineno), text)
    function = node.func
    if (
        isinstance(function, ast.Attribute)
        and function.attr == "view"
        and node.args
        and (file.type_of(function.value, scope) == "ndarray" or _is_result(file, function.value, scope))
    ):
        text = f"view({ast.unparse(node.args[0])}) reads the bytes of a tensor as another type."
        yield risk("P-301", Place(file.shown, node.lineno), text)


def _is_result(file: PythonFile, node: ast.expr, scope: Scope) -> bool:
    return isinstance(node, ast.Call) and entry_of(file, node, scope) == "Tensor.numpy"


def _bytes_of(file: PythonFile, value: ast.expr, scope: Scope) -> str:
    """What is said of a value of set_input that is 8-bit unsigned, or bytes taken for floats."""
    if isinstance(value, ast.Name):
        assigned = [
            node.value
            for node, where in file.scope_of.items()
            if where is scope and isinstance(node, ast.Assign)
            and any(isinstance(target, ast.Name) and target.id == value.id for target in node.targets)
        ]  # fmt: skip
        return _bytes_of(file, assigned[-1], scope) if assigned and not isinstance(assigned[-1], ast.Name) else ""
    if not isinstance(value, ast.Call):
        return ""
    text = ast.unparse(value)
    dtype = next((ast.unparse(each.value) for each in value.keywords if each.arg == "dtype"), "")
    function = value.func
    if isinstance(function, ast.Attribute):
        argument = ast.unparse(value.args[0]) if value.args else ""
        if function.attr == "astype" and _named(argument) in _BYTE_TYPES:
            dtype = argument
        if function.attr == "view" and _named(argument) not in ("int8", "uint8"):
            return f"view({argument}) gives the bytes of one type as another."
        if function.attr in ("ascontiguous", "ascontiguousarray", "reshape", "transpose"):
            inner = value.args[0] if function.attr.startswith("asc") and value.args else function.value
            return _bytes_of(file, inner, scope)
    if _named(dtype) in _BYTE_TYPES:
        return f"{text:.80} is unsigned: from 128 on its values become negative where the input is int8."
    return ""


def _named(dtype: str) -> str:
    return dtype.strip("'\"").rpartition(".")[2]
