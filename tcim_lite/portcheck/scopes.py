"""Scopes of a Python program: which names are bound where, and the types of those that have one."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

Type = str | tuple["Type", ...] | None  # as in python_source.py
Function = ast.FunctionDef | ast.AsyncFunctionDef
Unnamed = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp | ast.Lambda


@dataclass
class Scope:
    """A module, class or function of a file; or a comprehension or lambda, which has name and node of what it is in."""

    name: str  # "Chat.answer"; "" for the file
    node: ast.Module | ast.ClassDef | Function
    parent: Scope | None = None
    types: dict[str, Type] = field(default_factory=dict)  # by the text of a name or `self.x`
    mixed: set[str] = field(default_factory=set)  # of these, those that are bound to something else as well
    own: frozenset[str] = frozenset()  # the variables of a comprehension or lambda, which hide others of their names
    bound: frozenset[str] = frozenset()  # the variables of a function: perhaps what has the name outside, perhaps not

    @property
    def owner(self) -> Scope | None:
        """The class of a method, also inside its nested functions."""
        scope: Scope | None = self
        while scope is not None and not isinstance(scope.node, ast.ClassDef):
            scope = scope.parent
        return scope

    def inside(self, node: Unnamed) -> Scope:
        """The scope of a comprehension or lambda."""
        if isinstance(node, ast.Lambda):
            return Scope(self.name, self.node, self, own=frozenset(_parameters(node)))
        targets = [each for made in node.generators for each in ast.walk(made.target)]
        own = frozenset(each.id for each in targets if isinstance(each, ast.Name))
        return Scope(self.name, self.node, self, own=own)


def bound_by(node: ast.AST) -> str | None:
    """The name that a handler of exceptions or a pattern binds, for which there is no node."""
    match node:
        case ast.ExceptHandler(name=name) | ast.MatchAs(name=name) | ast.MatchStar(name=name):
            return name
        case ast.MatchMapping(rest=name):
            return name
        case _:
            return None


def bound_in(function: Function) -> frozenset[str]:
    """The variables of a function, its parameters among them."""
    names = _parameters(function)
    left: list[ast.AST] = [*function.body]
    while left:
        match left.pop():
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                names.add(name)
            case ast.Name(id=name, ctx=ast.Store()):
                names.add(name)
            case ast.alias(name=name, asname=other):
                names.add(other or name.partition(".")[0])
            case ast.Lambda() | ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
                pass
            case node:
                if (bound := bound_by(node)) is not None:
                    names.add(bound)
                left.extend(ast.iter_child_nodes(node))
    return frozenset(names)


def root_of(node: ast.expr) -> str:
    """The name that an expression begins with, "self" of `self.x[0].y()`, or nothing."""
    while isinstance(node, (ast.Attribute, ast.Subscript, ast.Call)):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


def _parameters(function: Function | ast.Lambda) -> set[str]:
    return {each.arg for each in ast.walk(function.args) if isinstance(each, ast.arg)}
