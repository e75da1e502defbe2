"""Keys of `quantization_config`: those that a method has, and what their values may be."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeGuard

from ...common.errors import CompileError

WHERE = "quantization_config"
INSTEAD = "; use the original checkpoint in bf16, or a GGUF file"


class Rule(NamedTuple):
    """What a key may be."""

    expected: str
    fits: Callable[[Any], bool]


def one_of(*values: object) -> Rule:
    """Returns the rule of a key with a few values."""
    expected = " or ".join(str(value).lower() if isinstance(value, bool) else str(value) for value in values)
    return Rule(expected, lambda got: any(got == value and type(got) is type(value) for value in values))


def is_size(value: object) -> TypeGuard[int]:
    """Whether a value is a positive whole number that a tensor may have."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value <= 1 << 24


ANYTHING = Rule("anything", lambda _: True)  # of what says how it was made, or how another program runs it
FLAG = one_of(True, False)
SIZE = Rule("a positive integer", is_size)
NAMES = Rule("a list of names", lambda got: isinstance(got, list) and all(isinstance(name, str) for name in got))
BLOCK = Rule(
    "two positive integers", lambda got: isinstance(got, list) and len(got) == 2 and all(is_size(n) for n in got)
)


def check_keys(given: Mapping[str, Any], rules: Mapping[str, Rule], method: str, where: str = WHERE) -> None:
    """Checks the keys of a method; null counts as absent.

    Raises:
        CompileError: One is not known, or has another value.
    """
    for key, value in given.items():
        if value is None:
            continue
        if key not in rules:
            raise CompileError(
                f"{where}: {key}={value!r:.80} is not known of {method}, which has {', '.join(sorted(rules))}{INSTEAD}"
            )
        if not rules[key].fits(value):
            raise CompileError(
                f"{where}: {key}={value!r:.80} is not supported of {method}, expected {rules[key].expected}{INSTEAD}"
            )
