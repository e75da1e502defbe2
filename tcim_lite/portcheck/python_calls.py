"""Calls of the API in a Python program in the order of evaluation, functions of the file followed."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field

from .python_source import PythonFile
from .scopes import Scope

_DEPTH = 4  # of calls that are followed


@dataclass
class Step:
    """A call of the API, in the order of evaluation, with the names of the caller where a function was followed."""

    entry: str  # "Module.run"
    node: ast.Call
    file: PythonFile
    scope: Scope
    receiver: str


@dataclass
class Around:
    """What calls are followed from."""

    names: dict[str, str] = field(default_factory=dict)  # parameters by the caller's text
    depth: int = 0


def calls(node: ast.AST, *, always: bool = False) -> Iterator[ast.Call]:
    """Calls in the order of evaluation, without those of functions that are only defined here.

    Args:
        always: without those that depend on a condition or an error.
    """
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
        return
    if always and isinstance(node, (ast.If, ast.IfExp, ast.ExceptHandler)):
        yield from () if isinstance(node, ast.ExceptHandler) else calls(node.test)
        return
    for child in ast.iter_child_nodes(node):
        yield from calls(child, always=always)
    if isinstance(node, ast.Call):
        yield node


def entry_of(file: PythonFile, call: ast.Call, scope: Scope) -> str:
    """The call of the API, or "def:NAME" of the file, or ""."""
    kind = file.type_of(call.func, scope)
    if not isinstance(kind, str):
        return ""
    return kind[4:] if kind.startswith("api:") else kind if kind.startswith("def:") else ""


def steps(file: PythonFile, nodes: list[ast.stmt], scope: Scope, around: Around, *, inner: bool) -> Iterator[Step]:
    """The API calls of statements, with functions of the file in the place of their calls.

    Args:
        inner: also those of nested loops.
    """
    for statement in nodes:
        if isinstance(statement, (ast.For, ast.While)) and not inner:
            continue
        if isinstance(statement, (ast.If, ast.With, ast.Try, ast.For, ast.While)):
            head = [value for value in ast.iter_child_nodes(statement) if isinstance(value, ast.expr)]
            for expression in head:
                yield from _steps_of(file, expression, scope, around, inner=inner)
            for body in ("body", "orelse", "finalbody"):
                yield from steps(file, getattr(statement, body, []), scope, around, inner=inner)
        else:
            yield from _steps_of(file, statement, scope, around, inner=inner)


def _steps_of(file: PythonFile, node: ast.AST, scope: Scope, around: Around, *, inner: bool) -> Iterator[Step]:
    for call in calls(node):
        entry = entry_of(file, call, scope)
        if entry.startswith("def:"):
            followed = follow(file, call, entry[4:], around)
            if followed is not None:
                target, names = followed
                yield from steps(file, target.node.body, target, names, inner=inner)
        elif entry:
            receiver = ast.unparse(call.func.value) if isinstance(call.func, ast.Attribute) else ""
            yield Step(entry, call, file, scope, around.names.get(receiver, receiver))


def follow(file: PythonFile, call: ast.Call, name: str, around: Around) -> tuple[Scope, Around] | None:
    scope = file.scopes.get(name)
    if scope is None or around.depth >= _DEPTH or isinstance(scope.node, (ast.Module, ast.ClassDef)):
        return None
    parameters = [each.arg for each in scope.node.args.args]
    if parameters[:1] == ["self"]:
        parameters = parameters[1:]
    texts = [ast.unparse(each) for each in call.args]
    names = {name: around.names.get(text, text) for name, text in zip(parameters, texts, strict=False)}
    return scope, Around(names, around.depth + 1)


def set_values(call: ast.Call) -> list[ast.expr]:
    """The values of a call of set_input."""
    return [*call.args[1:], *(keyword.value for keyword in call.keywords if keyword.arg == "value")]
