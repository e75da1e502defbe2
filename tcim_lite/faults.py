"""Faults on purpose: a lost or hanging device, no memory, a flipped bit ([fault injection](../fault-injection.md)).

Extra: not in the vendor's API. `TCIM_LITE_FAULTS=rules.toml` does the same from outside, for C++ programs too. In
tests, the fixture `tcim_faults` of the package's pytest plugin is `inject` that ends with the test.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tcim_lite import _core, layers
from tcim_lite._core import FiredFault as FiredFault

__all__ = ["FiredFault", "Injection", "inject", "rules_text"]

Rule = Mapping[str, str | int | float | bool]


def rules_text(rules: Sequence[Rule]) -> str:
    """The rules as a file that `TCIM_LITE_FAULTS` may name.

    Raises:
        TypeError: a value that is no str, int, float or bool.
    """
    blocks = ("\n".join(["[[fault]]", *(f"{key} = {_value(value)}" for key, value in rule.items())]) for rule in rules)
    return "\n\n".join(blocks) + "\n"


class Injection:
    """Rules that are in force until `stop`, or until the end of a `with` block."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self.rules = list(rules)
        self._fired: list[FiredFault] = []
        layers.enable("faults", rules=rules_text(self.rules))

    @property
    def fired(self) -> list[FiredFault]:
        """What has happened so far, at most 100 times per rule between two looks.

        A fault has `rule` (its number, from 1), `place` ("rules:1"), `kind`, `call`, `device` and `text`.
        """
        self._fired += _core.take_fired_faults()
        return self._fired

    @property
    def unfired(self) -> list[Rule]:
        """The rules that have not done anything yet."""
        fired = {fault.rule for fault in self.fired}
        return [rule for number, rule in enumerate(self.rules, 1) if number not in fired]

    def stop(self) -> None:
        """Ends it: devices answer again at full speed, and flipped bits of weights are restored."""
        _ = self.fired
        layers.disable("faults")

    def __enter__(self) -> Injection:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def inject(*rules: Rule, **rule: str | int | float | bool) -> Injection:
    """Puts rules in force, in place of all that were: `with inject(kind="hang", nth=3, timeout_s=0.2) as injected:`.

    Args:
        rules: each with the keys of a rule in a file.
        rule: the keys of one more.

    Raises:
        ArgumentError: an invalid rule; the message counts lines of `rules_text`.
        TypeError: a value that is no str, int, float or bool.
    """
    return Injection([*rules, rule] if rule else rules)


def _value(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str):
        escapes = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r"})
        return f'"{value.translate(escapes)}"'
    raise TypeError(f"a rule has the value {value!r}: expected a str, int, float or bool")
