"""P-201 in a Python program: results read, or inputs written, after a run that nobody waited for."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, replace

from .findings import Place, Risk, risk
from .python_calls import Around, calls, entry_of, follow, set_values
from .python_source import PythonFile
from .scopes import Scope


def unsynced(file: PythonFile, scope: Scope) -> Iterator[Risk]:
    at = _At(file, scope, Around(), {})
    _pending(at, scope.node.body, {})
    yield from at.found.values()


@dataclass(frozen=True)
class _At:
    """Where statements stand, and what was found by line."""

    file: PythonFile
    scope: Scope
    around: Around
    found: dict[int, Risk]


def _pending(at: _At, body: list[ast.stmt], state: dict[str, int]) -> dict[str, int]:
    """Follows statements; `state` has the modules with a run that nobody waited for, and the line of the run."""
    for statement in body:
        match statement:
            case ast.If(test=test, body=then, orelse=otherwise):
                _judge(at, test, state)
                first = _pending(at, then, dict(state))
                second = _pending(at, otherwise, dict(state))
                # Conditions may go together, so what is queued on one way only is not judged.
                state = {name: line for name, line in first.items() if name in second}
            case ast.For(iter=head, body=inner, orelse=otherwise) | ast.While(test=head, body=inner, orelse=otherwise):
                _judge(at, head, state)
                for _ in range(2):  # the second time with what the first left behind
                    state = _pending(at, inner, dict(state))
                state = _pending(at, otherwise, state)
            case ast.With(items=items, body=inner):
                for item in items:
                    _judge(at, item.context_expr, state)
                state = _pending(at, inner, state)
            case ast.Try(body=inner, handlers=handlers, orelse=otherwise, finalbody=final):
                before = dict(state)
                state = _pending(at, [*inner, *otherwise], state)
                for handler in handlers:
                    _pending(at, handler.body, dict(before))
                state = _pending(at, final, state)
            case _:
                _judge(at, statement, state)
    return state


def _judge(at: _At, node: ast.AST, state: dict[str, int]) -> None:
    """Follows the calls of a simple statement or an expression; changes `state`."""
    for call in calls(node):
        entry = entry_of(at.file, call, at.scope)
        receiver = ast.unparse(call.func.value) if isinstance(call.func, ast.Attribute) else ""
        receiver = at.around.names.get(receiver, receiver)
        if entry.startswith("def:"):
            if (followed := follow(at.file, call, entry[4:], at.around)) is not None:
                scope, around = followed
                after = _pending(replace(at, scope=scope, around=around), scope.node.body, dict(state))
                state.clear()
                state.update(after)
        elif entry == "Module.run":
            if _waits(call):
                state.clear()
            else:
                state[receiver] = call.lineno
        elif entry in ("Module.sync", "Module.release"):
            state.clear()  # modules share a stream unless they are given others
        elif receiver in state and ((reads := _reads(call, entry)) or _writes(at, call, entry)):
            what = "is read" if reads else "is written"
            # The emulator has waited then; what follows is right here and judged no more.
            text = f"{receiver} {what} after run() in line {state.pop(receiver)}, with no sync() between."
            at.found.setdefault(call.lineno, risk("P-201", Place(at.file.shown, call.lineno), text))


def _waits(call: ast.Call) -> bool:
    given = [*call.args[:1], *(keyword.value for keyword in call.keywords if keyword.arg == "sync")]
    # A variable may be true.
    return bool(given) and not (isinstance(given[0], ast.Constant) and not given[0].value)


def _reads(call: ast.Call, entry: str) -> bool:
    """Whether a result is taken to the host; older programs name the device as its place, where it stays then."""
    places = [*call.args[1:], *(keyword.value for keyword in call.keywords)]
    return entry == "Module.get_output" and not any(ast.unparse(place).endswith("Device.HDPL") for place in places)


def _writes(at: _At, call: ast.Call, entry: str) -> bool:
    """Whether host data is set."""
    return entry == "Module.set_input" and any(
        at.file.type_of(value, at.scope) != "Tensor" for value in set_values(call)
    )
