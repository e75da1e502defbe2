"""Which names of the API a Python program uses, from its text: types of expressions, as far as they can be told.

A type is a string: a class of the API ("Module"), "ndarray", "api:NAME" (a function, class or member of the API),
"mod:NAME" (a module), "def:NAME" and "new:NAME" (a function of the program, an object of its class), "list:TYPE"; or a
tuple of types. None is unknown.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from .api import CLASSES, DISTINCT, PYTHON, RESULTS, Entry, unknown
from .findings import Place, Use
from .scopes import Scope, Type, Unnamed, bound_by, bound_in, root_of

_OTHER_MODULES = {"pydev_ctrl": "dev_ctrl"}
_PASSES = 4  # types follow from types; longer chains stay unknown


class PythonFile:
    """A parsed file, its scopes, and the types in them."""

    def __init__(self, path: Path, shown: str, tree: ast.Module) -> None:
        """Infers types; `shown` is the path in messages."""
        self.path, self.shown, self.tree = path, shown, tree
        self.scopes: dict[str, Scope] = {}
        self.scope_of: dict[ast.AST, Scope] = {}
        self.is_learned = False  # then what is bound is compared with the types
        self.imports: list[tuple[str, int]] = []  # modules that have statuses of their own
        self._enter(Scope("", tree))
        for _ in range(_PASSES):
            for node, scope in self.scope_of.items():
                self._learn(node, scope)
        self.is_learned = True
        for node, scope in self.scope_of.items():
            self._learn(node, scope)

    @property
    def names_api(self) -> bool:
        """Whether the file imports something of the API."""
        return bool(self.imports) or any(
            isinstance(kind, str) and kind.startswith(("mod:", "api:"))
            for scope in self.scopes.values()
            for kind in scope.types.values()
        )

    # -- scopes

    def _enter(self, scope: Scope) -> None:
        self.scopes[scope.name] = scope
        if isinstance(scope.node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            arguments = scope.node.args
            for each in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
                self.scope_of[each] = scope
        for child in scope.node.body:
            self._place(child, scope)

    def _place(self, node: ast.AST, scope: Scope) -> None:
        self.scope_of[node] = scope
        if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            inner = f"{scope.name}.{node.name}" if scope.name else node.name
            scope.types[node.name] = f"new-of:{inner}" if isinstance(node, ast.ClassDef) else f"def:{inner}"
            bound = frozenset() if isinstance(node, ast.ClassDef) else bound_in(node)
            self._enter(Scope(inner, node, scope, bound=bound))
            for decorator in node.decorator_list:
                self._place(decorator, scope)
            return
        if isinstance(node, Unnamed):
            scope = scope.inside(node)
        for child in ast.iter_child_nodes(node):
            self._place(child, scope)

    def _learn(self, node: ast.AST, scope: Scope) -> None:
        match node:
            case ast.Import(names=names):
                for alias in names:
                    module_kind = _module(alias.name if alias.asname else alias.name.split(".")[0])
                    if module_kind is not None:
                        scope.types[alias.asname or alias.name.split(".")[0]] = module_kind
                    self._import(alias.name, node.lineno)
            case ast.ImportFrom(module=str() as module, names=names, level=0):
                for alias in names:
                    module_kind = _member(_module(module), alias.name)
                    if module_kind is not None:
                        scope.types[alias.asname or alias.name] = module_kind
                        if module_kind.startswith("mod:"):
                            self._import(f"{module}.{alias.name}", node.lineno)
                self._import(module, node.lineno)
            case ast.arg(arg=name, annotation=ast.expr() as annotation):
                kind = self.type_of(annotation, scope)
                if isinstance(kind, str) and kind.startswith("api:") and kind[4:] in CLASSES:
                    scope.types[name] = kind[4:]
            case ast.Assign(value=ast.Constant(value=None) | ast.List(elts=[])):
                pass  # not yet anything
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    self._bind(target, self.type_of(value, scope), scope)
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                self._bind(target, self.type_of(value, scope), scope)
            case ast.NamedExpr(target=target, value=value):
                self._bind(target, self.type_of(value, scope), scope)
            case ast.For(target=target, iter=iterable) | ast.comprehension(target=target, iter=iterable):
                kind = self.type_of(iterable, scope)
                self._bind(target, kind[5:] if isinstance(kind, str) and kind.startswith("list:") else None, scope)
            case ast.AugAssign(target=target):
                self._bind(target, None, scope)
            case ast.With(items=items):
                for item in items:
                    if item.optional_vars is not None:
                        self._bind(item.optional_vars, self.type_of(item.context_expr, scope), scope)
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="append"), args=[value]):
                kind = self.type_of(value, scope)
                if isinstance(kind, str):
                    self._bind(ast.Name(name), f"list:{kind}", scope)
            case ast.Attribute(value=ast.Name() | ast.Attribute() as value, attr=attribute) if attribute in DISTINCT:
                # Whatever has `set_dummy_tensors` is an Option, but for `self`: any class may have such names.
                known = self.type_of(value, scope) is not None or ast.unparse(value) == "self"
                if not known and root_of(value) not in ("np", "numpy", "torch"):
                    self._bind(value, DISTINCT[attribute], scope)
            case _ if (bound := bound_by(node)) is not None:
                self._bind(ast.Name(bound), None, scope)
            case _:
                pass

    def _import(self, module: str, line: int) -> None:
        found = _with_status(module)
        if found is not None and (found, line) not in self.imports:
            self.imports.append((found, line))

    def _bind(self, target: ast.expr, kind: Type, scope: Scope) -> None:
        if isinstance(target, (ast.Tuple, ast.List)):
            kinds = kind if isinstance(kind, tuple) and len(kind) == len(target.elts) else [None] * len(target.elts)
            for each, inner in zip(target.elts, kinds, strict=True):
                self._bind(each, inner, scope)
        elif isinstance(target, (ast.Name, ast.Attribute)):
            home, name = self._home(target, scope), ast.unparse(target)
            if kind is not None:
                home.types.setdefault(name, kind)
            if self.is_learned and name in home.types and home.types[name] != kind:
                home.mixed.add(name)

    def _home(self, target: ast.expr, scope: Scope) -> Scope:
        """Where a name is kept: `self.x` with the class."""
        while scope.own and root_of(target) not in scope.own and scope.parent is not None:
            scope = scope.parent
        owner = scope.owner
        return owner if owner is not None and root_of(target) == "self" and isinstance(target, ast.Attribute) else scope

    # -- types

    def type_of(self, node: ast.expr, scope: Scope) -> Type:
        """The type of an expression in a scope."""
        match node:
            case ast.Name(id=name):
                return self._named(name, scope)
            case ast.Attribute(value=value, attr=attribute):
                own = self._named(ast.unparse(node), self._home(node, scope))
                if own is not None:
                    return own
                base = self.type_of(value, scope)
                if base is None and root_of(node) == "self" and isinstance(value, ast.Name):
                    owner = scope.owner
                    base = f"new:{owner.name}" if owner is not None else None
                return self._attribute(base, attribute)
            case ast.Call(func=func):
                return self._called(self.type_of(func, scope))
            case ast.IfExp(body=body, orelse=orelse):
                return self.type_of(body, scope) or self.type_of(orelse, scope)
            case ast.Tuple(elts=elements):
                return tuple(self.type_of(each, scope) for each in elements)
            case ast.List(elts=[first, *_]) | ast.ListComp(elt=first):
                kind = self.type_of(first, self.scope_of.get(first, scope))
                return f"list:{kind}" if isinstance(kind, str) else None
            case ast.Subscript(value=value):
                kind = self.type_of(value, scope)
                return kind[5:] if isinstance(kind, str) and kind.startswith("list:") else None
            case _:
                return None

    def _named(self, name: str, scope: Scope | None) -> Type:
        scope = self._holder(name, scope)
        return None if scope is None else scope.types[name]

    def _holder(self, name: str, scope: Scope | None) -> Scope | None:
        """The scope that has the type of a name."""
        while scope is not None:
            if name in scope.types and (not isinstance(scope.node, ast.ClassDef) or name.startswith("self.")):
                return scope
            if name.partition(".")[0] in scope.own:
                return None
            scope = scope.parent
        return None

    def _is_mixed(self, node: ast.expr, scope: Scope) -> bool:
        """Whether a name may be something else than what its type says."""
        name, home = ast.unparse(node), self._home(node, scope)
        holder, inner = self._holder(name, home), home
        if holder is None:
            return False
        while inner is not holder and inner.parent is not None:
            if root_of(node) in inner.bound:
                return True
            inner = inner.parent
        return name in holder.mixed

    def _attribute(self, base: Type, attribute: str) -> Type:
        if not isinstance(base, str):
            return None
        if base.startswith("mod:"):
            return _member(base, attribute)
        if base in CLASSES:
            name = f"{base}.{attribute}"
            callable_ = name in RESULTS and attribute not in ("info",)
            return f"api:{name}" if callable_ or name not in RESULTS else RESULTS[name]
        if base.startswith("api:") and base[4:] in CLASSES:
            return f"api:{base[4:]}.{attribute}"
        if base.startswith("new:"):
            inner = f"{base[4:]}.{attribute}"
            if inner in self.scopes:
                return f"def:{inner}"
            owner = self.scopes.get(base[4:])
            return owner.types.get(f"self.{attribute}") if owner is not None else None
        return None

    def _called(self, func: Type) -> Type:
        if not isinstance(func, str):
            return None
        if func.startswith("api:"):
            return func[4:] if func[4:] in CLASSES else RESULTS.get(func[4:])
        if func.startswith("new-of:"):
            return f"new:{func[7:]}"
        if func.startswith("def:") and isinstance(scope := self.scopes.get(func[4:]), Scope):
            for node in ast.walk(scope.node):
                if isinstance(node, ast.Return) and node.value is not None and self.scope_of.get(node) is scope:
                    return self.type_of(node.value, scope)
        return None

    # -- uses

    def uses(self) -> Iterator[Use]:
        """Every name of the API, where it stands."""
        for module, line in self.imports:
            yield Use(PYTHON[module], module, Place(self.shown, line))
        for node, scope in self.scope_of.items():
            if isinstance(node, (ast.Attribute, ast.Name)) and isinstance(node.ctx, ast.Load):
                if isinstance(node, ast.Attribute):
                    base = self.type_of(node.value, scope)
                    kind = self._attribute(base, node.attr) if base is not None else None
                    if isinstance(base, str) and base in CLASSES:
                        kind = f"api:{base}.{node.attr}"
                    is_unknown = isinstance(kind, str) and kind.startswith("api:") and kind[4:] not in PYTHON
                    if is_unknown and self._is_mixed(node.value, scope):
                        continue  # of the other thing that the name is bound to
                else:
                    kind = self._named(node.id, scope)
                if isinstance(kind, str) and kind.startswith("api:") and not _private(kind):
                    yield Use(self._entry(kind[4:]), kind[4:], Place(self.shown, node.lineno))

    def _entry(self, name: str) -> Entry:
        owner, _, member = name.rpartition(".")
        if name in PYTHON:
            return PYTHON[name]
        return PYTHON[owner] if member.isupper() and owner in PYTHON else unknown(name)  # Status.OK


def _private(kind: str) -> bool:
    return kind.rpartition(".")[2].startswith("_")


def _module(name: str) -> str | None:
    """The type of an imported module of the API."""
    if name == "tcim_lite" or _with_status(name) is not None:
        return f"mod:{name}"
    last = name.removeprefix("tcim_lite.")
    last = _OTHER_MODULES.get(last, last)
    return f"mod:tcim_lite.{last}" if name != last and last in ("runtime", "dev_ctrl") else None


def _with_status(module: str) -> str | None:
    """The table's name of a module that has a status as a whole."""
    for name in (module, ".".join(module.split(".")[:2]), module.split(".")[0]):
        if name in PYTHON and name.split(".")[0] in ("hmatc", "pytcim", "tcim", "tcim_lite"):
            return name
    return None


def _member(module: str | None, name: str) -> str | None:
    """The type of a name of a module."""
    if module == "mod:tcim_lite":
        return "api:Module" if name == "Module" else _module(f"tcim_lite.{name}")
    if module in ("mod:tcim_lite.runtime", "mod:tcim_lite.dev_ctrl"):
        found = name if module.endswith("runtime") else f"dev_ctrl.{name}"
        return None if name.startswith("_") else f"api:{found}"
    return None
