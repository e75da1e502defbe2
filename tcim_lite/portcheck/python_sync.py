"""P-201 in a Python program: results read, or inputs written, after a run that nobody waited for."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from .findings import Place, Risk, risk
from .python_calls import Around, calls, entry_of, follow, set_values
from .python_source import PythonFile
from .scopes import Scope


def unsynced(file: PythonFile, scope: Scope) -> Iterator[Risk]:
    found: dict[int, Risk] = {}
    _pending(file, scope.node.body, scope, {}, found, Around())
    yield from found.values()


def _pending(
    file: PythonFile, body: list[ast.stmt], scope: Scope, state: dict[str, int], found: dict[int, Risk], around: Around
) -> dict[str, int]:
    """Follows statements; `state` has the modules with a run that nobody waited for, and the line of the run."""
    for statement in body:
        match statement:
            case ast.If(test=test, body=then, orelse=otherwise):
                _judge(file, test, scope, state, found, around)
                first = _pending(file, then, scope, dict(state), found, around)
                second = _pending(file, otherwise, scope, dict(state), found, around)
                # Conditions may go together, so what is queued on one way only is not judged.
                state = {name: line for name, line in first.items() if name in second}
            case ast.For(iter=head, body=inner, orelse=otherwise) | ast.While(test=head, body=inner, orelse=otherwise):
                _judge(file, head, scope, state, found, around)
                for _ in range(2):  # the second time with what the first left behind
                    state = _pending(file, inner, scope, dict(state), found, around)
                state = _pending(file, otherwise, scope, state, found, around)
            case ast.With(items=items, body=inner):
                for item in items:
                    _judge(file, item.context_expr, scope, state, found, around)
                state = _pending(file, inner, scope, state, found, around)
            case ast.Try(body=inner, handlers=handlers, orelse=otherwise, finalbody=final):
                before = dict(state)
                state = _pending(file, [*inner, *otherwise], scope, state, found, around)
                for handler in handlers:
                    _pending(file, handler.body, scope, dict(before), found, around)
                state = _pending(file, final, scope, state, found, around)
            case _:
                _judge(file, statement, scope, state, found, around)
    return state


def _judge(
    file: PythonFile, node: ast.AST, scope: Scope, state: dict[str, int], found: dict[int, Risk], around: Around
) -> None:
    """Follows the calls of a simple statement or an expression; changes `state`."""
    for call in calls(node):
        entry = entry_of(file, call, scope)
        receiver = ast.unparse(call.func.value) if isinstance(call.func, ast.Attribute) else ""
        receiver = around.names.get(receiver, receiver)
        if entry.startswith("def:"):
            followed = follow(file, call, entry[4:], around)
            if followed is not None:
                after = _pending(file, followed[0].node.body, followed[0], dict(state), found, followed[1])
                state.clear()
                state.update(after)
        elif entry == "Module.run":
            if _waits(call):
                state.clear()
            else:
                state[receiver] = call.lineno
        elif entry in ("Module.sync", "Module.release"):
            state.clear()  # modules share a stream unless they are given others
        elif receiver in state and (entry == "Module.get_output" or _writes(file, call, entry, scope)):
            what = "is read" if entry == "Module.get_output" else "is written"
            # The emulator has waited then; what follows is right here and judged no more.
            text = f"{receiver} {what} after run() in line {state.pop(receiver)}, with no sync() between."
            found.setdefault(call.lineno, risk("P-201", Place(file.shown, call.lineno), text))


def _waits(call: ast.Call) -> bool:
    given = [*call.args[:1], *(keyword.value for keyword in call.keywords if keyword.arg == "sync")]
    # A variable may be true.
    return bool(given) and not (isinstance(given[0], ast.Constant) and not given[0].value)


def _writes(file: PythonFile, call: ast.Call, entry: str, scope: Scope) -> bool:
    """Whether host data is set."""
    return entry == "Module.set_input" and any(file.type_of(value, scope) != "Tensor" for value in set_values(call))
