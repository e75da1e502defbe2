"""Risky patterns in a Python program (`findings.KINDS`), from its text.

A token loop is an innermost loop that sets two inputs or more (rows and a length), runs the module, reads an output and
chooses a token (argmax, top-k, a sampler, or lengths and logits by name), itself or in functions of the file that it
calls. What stands there is done for each token.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from .findings import Place, Risk, risk
from .python_bytes import reinterpreted
from .python_calls import Around, calls, entry_of, set_values, steps
from .python_source import PythonFile
from .python_sync import unsynced
from .scopes import Function, Scope

_CHOOSING = ("argmax", "topk", "top_k", "multinomial", "sample", "choice")
_LENGTHS = ("valid_length", "current_length", "logits")
_ALLOCATING = ("zeros", "empty", "ones", "full", "zeros_like", "empty_like", "ones_like", "full_like", "pad", "tile")
_OBJECTS = {
    "Tensor": "A Tensor", "Tensor.clone": "A copy of a Tensor", "load": "A module", "Module.load": "A module",
    "WeightManager": "A WeightManager", "Option": "An Option", "Stream": "A Stream",
}  # fmt: skip
_SMALL = 64  # elements: lengths, positions


def risks(file: PythonFile) -> list[Risk]:
    """All risky patterns of a file, each line once for a code."""
    found: dict[tuple[str, int], Risk] = {}
    loops = [(node, scope) for node, scope in file.scope_of.items() if isinstance(node, (ast.For, ast.While))]
    token_loops = [(loop, scope) for loop, scope in loops if _is_token_loop(file, loop, scope)]
    for loop, scope in token_loops:
        for each in (*_allocations(file, loop, scope), *_copies(file, loop, scope)):
            found.setdefault((each.code, each.place.line), each)
    for scope in file.scopes.values():
        if not isinstance(scope.node, ast.ClassDef):
            for each in unsynced(file, scope):
                found.setdefault((each.code, each.place.line), each)
    for node, scope in file.scope_of.items():
        for each in reinterpreted(file, node, scope):
            found.setdefault((each.code, each.place.line), each)
    return sorted(found.values(), key=lambda each: (each.place.line, each.code))


# -- token loops


def _is_token_loop(file: PythonFile, loop: ast.For | ast.While, scope: Scope) -> bool:
    """Whether one round of the loop, nested loops left out, runs, reads and chooses."""
    made = {step.entry for step in steps(file, loop.body, scope, Around(), inner=False)}
    given = [step for step in steps(file, loop.body, scope, Around(), inner=True) if step.entry == "Module.set_input"]
    return {"Module.run", "Module.get_output"} <= made and len(given) > 1 and _chooses(file, loop, scope)


def _regions(
    file: PythonFile, loop: ast.For | ast.While, scope: Scope, *, always: bool = False
) -> Iterator[tuple[list[ast.stmt], Scope]]:
    """The body of a token loop, and the bodies of functions of the file that it calls (`always`: in every round)."""
    yield loop.body, scope
    seen: set[str] = set()
    waiting = [(loop.body, scope)]
    while waiting:
        body, where = waiting.pop()
        for statement in body:
            for call in calls(statement, always=always):
                entry = entry_of(file, call, where)
                target = file.scopes.get(entry[4:]) if entry.startswith("def:") else None
                if target is None or entry in seen or not isinstance(target.node, Function):
                    continue
                seen.add(entry)
                if len(seen) <= 32:
                    yield target.node.body, target
                    waiting.append((target.node.body, target))


def _chooses(file: PythonFile, loop: ast.For | ast.While, scope: Scope) -> bool:
    for body, _ in _regions(file, loop, scope):
        for node in (inner for statement in body for inner in ast.walk(statement)):
            match node:
                case ast.Attribute(attr=name) | ast.Name(id=name) if any(part in name.lower() for part in _CHOOSING):
                    return True
                case ast.Constant(value=str() as text) if text in _LENGTHS:
                    return True
                case _:
                    pass
    return False


# -- P-102


def _allocations(file: PythonFile, loop: ast.For | ast.While, scope: Scope) -> Iterator[Risk]:
    for body, where in _regions(file, loop, scope, always=True):
        given = _given_names(file, body, where)
        for statement in body:
            if isinstance(statement, (ast.For, ast.While)) and body is not loop.body:
                continue  # a loop inside a function has rounds of its own
            for call in calls(statement, always=True):
                entry = entry_of(file, call, where)
                if entry in _OBJECTS:
                    text = f"{_OBJECTS[entry]} is made in the token loop."
                    yield risk("P-102", Place(file.shown, call.lineno), text)
                elif _allocates(call) and _is_given(file, call, statement, where, given):
                    text = f"{ast.unparse(call.func)} makes an array for set_input in the token loop."
                    yield risk("P-102", Place(file.shown, call.lineno), text)


def _allocates(call: ast.Call) -> bool:
    function = call.func
    if not (isinstance(function, ast.Attribute) and function.attr in _ALLOCATING):
        return False
    if ast.unparse(function.value) not in ("np", "numpy", "torch"):
        return False
    elements = 1
    for extent in ast.walk(call.args[0]) if call.args else ():
        if isinstance(extent, (ast.Name, ast.Attribute, ast.Call, ast.BinOp)):
            return True
        if isinstance(extent, ast.Constant) and isinstance(extent.value, int):
            elements *= extent.value
    return elements > _SMALL


def _given_names(file: PythonFile, body: list[ast.stmt], scope: Scope) -> set[str]:
    """Names that are arguments of set_input."""
    names: set[str] = set()
    for call in (call for statement in body for call in calls(statement)):
        if entry_of(file, call, scope) == "Module.set_input":
            for value in set_values(call):
                names |= {node.id for node in ast.walk(value) if isinstance(node, ast.Name)}
    return names


def _is_given(file: PythonFile, call: ast.Call, statement: ast.stmt, scope: Scope, given: set[str]) -> bool:
    if isinstance(statement, ast.Assign) and any(isinstance(t, ast.Name) and t.id in given for t in statement.targets):
        return True
    inside = (outer for outer in calls(statement) if entry_of(file, outer, scope) == "Module.set_input")
    return any(node is call for outer in inside for value in set_values(outer) for node in ast.walk(value))


# -- P-101


def _copies(file: PythonFile, loop: ast.For | ast.While, scope: Scope) -> Iterator[Risk]:
    fetched: set[tuple[str, str]] = set()
    for step in steps(file, loop.body, scope, Around(), inner=False):
        if step.entry == "Module.run":
            fetched.clear()
        elif step.entry == "Module.get_output" and step.node.args:
            key = step.receiver, ast.unparse(step.node.args[0])
            if key in fetched:
                yield risk("P-101", Place(file.shown, step.node.lineno), f"{key[1]} is fetched again after one run.")
            fetched.add(key)
    for body, where in _regions(file, loop, scope):
        outputs = _output_names(file, body, where)
        for statement in body:
            for call in calls(statement):
                function = call.func
                if (
                    isinstance(function, ast.Attribute)
                    and function.attr in ("astype", "cast", "copy", "tolist", "float")
                    and _whole_output(file, function.value, where, outputs)
                ):
                    text = f"{function.attr} copies the whole output for every token."
                    yield risk("P-101", Place(file.shown, call.lineno), text)


def _output_names(file: PythonFile, body: list[ast.stmt], scope: Scope) -> set[str]:
    """Names of values that are an output as get_output gave it."""
    found: set[str] = set()
    for statement in (inner for each in body for inner in ast.walk(each)):
        if isinstance(statement, ast.Assign) and _whole_output(file, statement.value, scope, found):
            found |= {target.id for target in statement.targets if isinstance(target, ast.Name)}
    return found


def _whole_output(file: PythonFile, node: ast.expr, scope: Scope, names: set[str]) -> bool:
    """Whether an expression is an output, or its array in another shape."""
    match node:
        case ast.Name(id=name):
            return name in names
        case ast.Call(func=ast.Attribute(value=value, attr=attribute)):
            if entry_of(file, node, scope) == "Module.get_output":
                return True
            return attribute in ("numpy", "to_host", "reshape", "squeeze", "flatten", "ravel") and _whole_output(
                file, value, scope, names
            )
        case ast.Subscript(value=value, slice=index):  # a row of a batch of one: [0], [:, -1], [0, -1]
            return _is_row(index) and _whole_output(file, value, scope, names)
        case _:
            return False


def _is_row(index: ast.expr) -> bool:
    parts = index.elts if isinstance(index, ast.Tuple) else [index]
    return len(parts) <= 2 and all(
        (isinstance(part, ast.Slice) and part.lower is None and part.upper is None)
        or (isinstance(part, ast.Constant) and part.value == 0)
        or ast.unparse(part) == "-1"
        for part in parts
    )
