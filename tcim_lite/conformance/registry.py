"""Finds the cases: functions named test_* in the modules of cases/, and the CASEs of cpp/."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

FOLDER = Path(__file__).parent
TIERS = ("quick", "full", "llm", "stress")
# What a tier runs; every case has one of the names.
RUNS = {"quick": {"quick"}, "full": {"quick", "full"}, "llm": {"llm"}, "stress": {"stress"}}
SECONDS = 60.0
Version = tuple[int, int]  # (major, minor) of the first line of get_version()
_F = TypeVar("_F", bound=Callable[..., object])


@dataclass(frozen=True)
class Case:
    """One case: `function(**arguments, and fixtures of the Kit)`."""

    id: str  # group::test_c07_what_it_says[argument]
    function: Callable[..., object]
    arguments: dict[str, Any] = field(hash=False)
    tier: str
    seconds: float  # the watchdog's patience
    since: Version = (0, 0)  # the API versions it is about, `before` excluded
    before: Version = (99, 0)

    @property
    def group(self) -> str:
        """Cases of one group run one after another in one process."""
        return self.id.partition("::")[0]

    @property
    def corner(self) -> int | None:
        """The number of the corner of the contract that it tests."""
        match = re.match(r"\w+::test_c(\d\d)_", self.id)
        return int(match.group(1)) if match else None

    def is_about(self, version: Version) -> bool:
        """Whether a runtime of this API version is held to it."""
        return self.since <= version < self.before

    @property
    def title(self) -> str:
        """`C-07 a dummy has an info but no memory`."""
        name = self.id.partition("::")[2].removeprefix("test_")
        name, bracket, argument = name.partition("[")
        name = re.sub(r"^c(\d\d)_", r"C-\1 ", name).replace("_", " ")
        return name + (" " + bracket + argument if bracket else "")


def each(name: str, values: Iterable[Any]) -> Callable[[_F], _F]:
    """The function is one case for every value of the argument."""

    def mark(function: _F) -> _F:
        marks = function.__dict__.setdefault("conformance_each", [])
        marks.insert(0, (name, list(values)))
        return function

    return mark


def tier(name: str) -> Callable[[_F], _F]:
    """The function's tier; without it the module's TIER, without that `quick`."""
    assert name in TIERS

    def mark(function: _F) -> _F:
        function.__dict__["conformance_tier"] = name
        return function

    return mark


def seconds(limit: float) -> Callable[[_F], _F]:
    """How long the function may take before it counts as hanging."""

    def mark(function: _F) -> _F:
        function.__dict__["conformance_seconds"] = limit
        return function

    return mark


def versions(*, since: Version = Case.since, before: Version = Case.before) -> Callable[[_F], _F]:
    """The function is about runtimes of these API versions, `before` excluded: public evidence says they differ."""

    def mark(function: _F) -> _F:
        function.__dict__["conformance_versions"] = (since, before)
        return function

    return mark


def all_cases() -> list[Case]:
    """Every case, in the order of the modules' names and of the functions in them."""
    found: list[Case] = []
    for path in sorted((FOLDER / "cases").glob("*.py")):
        if path.stem != "__init__":
            found += _cases_of(importlib.import_module(f".cases.{path.stem}", __package__), path.stem)
    assert len({case.id for case in found}) == len(found), "two cases have one id"
    return found


def selected(cases: Iterable[Case], tier_name: str, words: Iterable[str] = ()) -> list[Case]:
    """The cases of a tier; with `words`, of any tier, those that have one of them in `group::test_x C-07 title`."""
    words = list(words)
    if words:
        return [case for case in cases if any(word in f"{case.id} {case.title}" for word in words)]
    return [case for case in cases if case.tier in RUNS[tier_name]]


def _cases_of(module: ModuleType, group: str) -> list[Case]:
    found = []
    for name, function in list(vars(module).items()):
        if not name.startswith("test_") or not inspect.isfunction(function):
            continue
        marks = vars(function)
        since, before = marks.get("conformance_versions", (Case.since, Case.before))
        combinations: list[tuple[str, dict[str, Any]]] = [("", {})]
        for argument, values in marks.get("conformance_each", []):
            combinations = [
                (f"{text}-{label}" if text else label, {**arguments, argument: value})
                for text, arguments in combinations
                for label, value in zip(_labels(values), values, strict=True)
            ]
        for text, arguments in combinations:
            found.append(
                Case(
                    id=f"{group}::{name}" + (f"[{text}]" if text else ""),
                    function=function,
                    arguments=arguments,
                    tier=marks.get("conformance_tier", getattr(module, "TIER", "quick")),
                    seconds=marks.get("conformance_seconds", SECONDS),
                    since=since,
                    before=before,
                )
            )
    return found


def _labels(values: list[Any]) -> list[str]:
    labels = []
    for number, value in enumerate(values):
        if isinstance(value, tuple):
            labels.append(str(value[0]))
        elif callable(value):
            labels.append(getattr(value, "__name__", str(number)))
        else:
            labels.append(str(value))
    return labels if len(set(labels)) == len(labels) else [str(number) for number in range(len(values))]
