"""P-301 in a Python program: bytes of one type given or read as another."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from .findings import Place, Risk, risk
from .python_calls import entry_of, set_values
from .python_source import PythonFile
from .scopes import Scope

_BYTE_TYPES = ("uint8",)
_SAME_ELEMENTS = ("ascontiguous", "ascontiguousarray", "reshape", "transpose")


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


def _bytes_of(file: PythonFile, value: ast.expr, scope: Scope, names: frozenset[str] = frozenset()) -> str:
    """What is said of a value of set_input that is 8-bit unsigned, or bytes taken for floats.

    `names` are those that led here, as in `a = b.reshape(1, -1)` and `b = a.reshape(-1)`.
    """
    if isinstance(value, ast.Name):
        assigned = [
            node.value
            for node, where in file.scope_of.items()
            if where is scope and isinstance(node, ast.Assign)
            and any(isinstance(target, ast.Name) and target.id == value.id for target in node.targets)
        ]  # fmt: skip
        for each in reversed(assigned):
            if _same_elements(each) != value.id:  # `a = a.reshape(shape)` has the bytes of the assignment before
                known = isinstance(each, ast.Name) or value.id in names
                return "" if known else _bytes_of(file, each, scope, names | {value.id})
        return ""
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
        if function.attr in _SAME_ELEMENTS:
            return _bytes_of(file, _inner(value, function), scope, names)
    if _named(dtype) in _BYTE_TYPES:
        return f"{text:.80} is unsigned: from 128 on its values become negative where the input is int8."
    return ""


def _inner(call: ast.Call, function: ast.Attribute) -> ast.expr:
    """What one of `_SAME_ELEMENTS` takes."""
    return call.args[0] if function.attr.startswith("asc") and call.args else function.value


def _same_elements(value: ast.expr) -> str | None:
    """The name whose elements a value has, in another shape or order."""
    while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr in _SAME_ELEMENTS:
        value = _inner(value, value.func)
        if isinstance(value, ast.Name):
            return value.id
    return None


def _named(dtype: str) -> str:
    return dtype.strip("'\"").rpartition(".")[2]
