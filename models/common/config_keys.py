"""Keys of `config.json`, declared by the families as data and read by one reader."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

from .errors import CompileError

_MAX_FLOAT = 3.4e38
_LAYER = re.compile("[0-9]{1,8}")
# Far above any real model; a typing error should not fill the memory.
_MAX_SIZE = 1 << 24
_MAX_LAYERS = 1 << 12  # or experts: each has tensors of its own

_Value: TypeAlias = (
    "int | float | bool | str | tuple[int, ...] | tuple[float, ...] | tuple[str, ...] | Mapping[Any, Any]"
)
# A value, or a function of the keys that were read before.
Default: TypeAlias = "_Value | Callable[[Mapping[str, Any]], _Value] | None"


@dataclass(frozen=True, slots=True)
class Key:
    """One key.

    Attributes:
        name: In `config.json`.
        kind: `size` is a positive integer, `size_or_auto` such or "auto", `number` a positive number, `flag` true or
            false, `layer` the number of a layer, `until` such or -1 for the last, `layers` a list of such, `sizes` a
            list of positive integers, `numbers` one of positive numbers, `amounts` one of such or 0, `names` a list of
            texts, `choice` a text or a flag, `optional` a positive number or none, `count` a whole number from 0 on,
            `same_size` a positive integer or a list of it for each layer, `by_layer` an object of objects by layer, or
            none, `object` any object.
        absent: Its value where the file does not have the key; None where the file must have it.
        null: Its value where the file says null; None where null is an error.
        also: Another name of the key; of files that have both it counts, as in transformers.
    """

    name: str
    kind: Literal[
        "size",
        "size_or_auto",
        "number",
        "flag",
        "layer",
        "until",
        "layers",
        "sizes",
        "numbers",
        "amounts",
        "same_size",
        "names",
        "choice",
        "optional",
        "count",
        "by_layer",
        "object",
    ] = "size"
    absent: Default = None
    null: Default = None
    also: str = ""


@dataclass(frozen=True, slots=True)
class Only:
    """A key that would change the arithmetic; any value but `value`, or one of `also`, which mean the same, is refused.

    Absent counts as `value`.
    """

    name: str
    value: Any
    also: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyValues:
    """What `read_keys` has read: the value of each key, by its name."""

    values: Mapping[str, Any]

    def __getitem__(self, key: str) -> Any:
        return self.values[key]


def read_keys(
    keys: Sequence[Key | Only], raw: Mapping[str, Any], family: str, spelled: Mapping[str, str] = MappingProxyType({})
) -> dict[str, Any]:
    """Returns the values of all `Key`s in their order; of two with one name the later counts.

    Messages call a key as `spelled` says that the file does.

    Raises:
        CompileError: A value that is missing, malformed, or not supported by `family`.
    """
    values: dict[str, Any] = {}
    for key in {key.name: key for key in keys}.values():
        if isinstance(key, Key):
            other = key.also in raw and (key.name not in raw or raw[key.also] is not None)
            name = key.also if other else key.name
            values[key.name] = _READERS[key.kind](spelled.get(name, name), _value(key, name, raw, values))
        elif (got := raw.get(key.name, key.value)) != key.value and got not in key.also:
            name = spelled.get(key.name, key.name)
            raise CompileError(f"{name}={got!r} is not supported; {family} is compiled with {key.value!r} only")
    return values


def _value(key: Key, name: str, raw: Mapping[str, Any], values: Mapping[str, Any]) -> Any:
    """That of the key, which the file calls `name`."""
    value = raw.get(name, key.absent)
    if value is None and name in raw:
        value = key.null
    return value(values) if callable(value) else value


def size(name: str, value: Any) -> int:
    """Returns `value` if it can be the size of something."""
    if value is None:
        raise CompileError(f"config.json has no {name!r}")
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise CompileError(f"config.json: {name} must be a positive integer, got {value!r}")
    most = _MAX_LAYERS if name.endswith(("layers", "depth", "experts")) else _MAX_SIZE
    if value > most:
        raise CompileError(f"config.json: {name} must be at most {most}, got {value}")
    return value


def size_or_auto(name: str, value: Any) -> int | str:
    """Returns `value` if it can be the size of something, or is "auto"."""
    return "auto" if value == "auto" else size(name, value)


def positive(name: str, value: Any) -> float:
    """Returns `value` if it is a positive number that fp32 can hold."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < _MAX_FLOAT:
        raise CompileError(f"config.json: {name} must be a positive number in the range of float32, got {value!r:.40}")
    return float(value)


def flag(name: str, value: Any) -> bool:
    """Returns `value` if it is true or false."""
    if not isinstance(value, bool):
        raise CompileError(f"config.json: {name} must be true or false, got {value!r}")
    return value


def layer(name: str, value: Any) -> int:
    """Returns `value` if it is the number of a layer."""
    if type(value) is not int or not 0 <= value <= _MAX_SIZE:
        raise CompileError(f"config.json: {name} must be the number of a layer, 0 for the first, got {value!r:.40}")
    return value


def until(name: str, value: Any) -> int:
    """Returns `value` if it is the number of a layer, or -1 for the last."""
    return -1 if type(value) is int and value == -1 else layer(name, value)


def layers(name: str, value: Any) -> list[int]:
    """Returns `value` if it is a list of numbers of layers."""
    if not isinstance(value, (list, tuple)) or not all(type(item) is int and item >= 0 for item in value):
        raise CompileError(f"config.json: {name} must be a list of layers, got {value!r:.80}")
    return list(value)


def sizes(name: str, value: Any) -> list[int]:
    """Returns `value` if it is a list of sizes."""
    return [size(f"each of {name}", item) for item in _items(name, value, "positive integers")]


def numbers(name: str, value: Any) -> list[float]:
    """Returns `value` if it is a list of positive numbers."""
    return [positive(f"each of {name}", item) for item in _items(name, value, "positive numbers")]


def amounts(name: str, value: Any) -> list[float]:
    """Returns `value` if it is a list of numbers that are 0 or positive."""
    items = _items(name, value, "numbers from 0 on")
    return [0.0 if type(item) in (int, float) and item == 0 else positive(f"each of {name}", item) for item in items]


def _items(name: str, value: Any, what: str) -> Sequence[Any]:
    if not isinstance(value, (list, tuple)):
        raise CompileError(f"config.json: {name} must be a list of {what}, got {value!r:.80}")
    return value


def same_size(name: str, value: Any) -> int:
    """Returns `value` if it is a size, or the one that a list of equal ones has."""
    if not isinstance(value, list):
        return size(name, value)
    if not value or any(item != value[0] for item in value):
        raise CompileError(f"config.json: {name} must be the same for all layers, got {value!r:.80}")
    return size(f"each of {name}", value[0])


def choice(name: str, value: Any) -> str | bool:
    """Returns `value` if it is a text or a flag."""
    if not isinstance(value, (str, bool)):
        raise CompileError(f"config.json: {name} must be a text, true or false, got {value!r:.80}")
    return value


def names(name: str, value: Any) -> list[str]:
    """Returns `value` if it is a list of texts."""
    if not isinstance(value, (list, tuple)) or not all(isinstance(item, str) for item in value):
        raise CompileError(f"config.json: {name} must be a list of texts, got {value!r:.80}")
    return list(value)


def optional(name: str, value: Any) -> float | None:
    """Returns `value` if it is a positive number that fp32 can hold, or None."""
    return None if value is None else positive(name, value)


def count(name: str, value: Any) -> int:
    """Returns `value` if it can be how many there are of something, none too."""
    return 0 if type(value) is int and value == 0 else size(name, value)


def by_layer(name: str, value: Any) -> dict[int, dict[str, Any]] | None:
    """Returns `value` if it is an object that has objects by the number of a layer, or None."""
    if value is None:
        return None
    fits = isinstance(value, Mapping) and all(
        _LAYER.fullmatch(str(layer)) and isinstance(part, Mapping) for layer, part in value.items()
    )
    if not fits:
        raise CompileError(f"config.json: {name} must have an object for each of some layers, got {value!r:.80}")
    return {int(layer): dict(part) for layer, part in value.items()}


def object_of(name: str, value: Any) -> Mapping[str, Any]:
    """Returns `value` if it is an object."""
    if not isinstance(value, Mapping):
        raise CompileError(f"config.json: {name} must be an object, got {value!r:.80}")
    return value


_READERS: dict[str, Callable[[str, Any], Any]] = {
    "size": size,
    "size_or_auto": size_or_auto,
    "number": positive,
    "flag": flag,
    "layer": layer,
    "until": until,
    "layers": layers,
    "sizes": sizes,
    "numbers": numbers,
    "amounts": amounts,
    "same_size": same_size,
    "names": names,
    "choice": choice,
    "optional": optional,
    "count": count,
    "by_layer": by_layer,
    "object": object_of,
}
