"""From the bytes of a body to a request."""

from __future__ import annotations

import difflib
import re
import types
from collections.abc import Iterable, Iterator
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

import msgspec

from .errors import ApiError
from .other_fields import ignored_fields, neutral_fields, refused_fields

Body = TypeVar("Body", bound=msgspec.Struct)


def read(kind: type[Body], data: bytes) -> Body:
    """The request in a body.

    Raises:
        ApiError: It is not JSON, a field has another type than expected, or nobody knows the field.
    """
    try:
        found = msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
        raise ApiError(400, f"the body is not JSON: {_cause(error, data)}", code="invalid_json") from None
    if not isinstance(found, dict):
        raise ApiError(400, f"the body is a {type(found).__name__}; expected a JSON object", code="invalid_type")
    return _request(kind, found)


def read_fields(kind: type[Body], fields: Iterable[tuple[str, bytes]]) -> Body:
    """The request in the fields of a form, each a text; of a field of bytes, bytes.

    Raises:
        ApiError: A field comes twice or is no text, else as `read`.
    """
    types_of = {field.encode_name: field.type for field in msgspec.structs.fields(kind)}
    found: dict[str, Any] = {}
    for name, value in fields:
        try:
            given = value if types_of.get(name) is bytes else value.decode()
        except UnicodeDecodeError:
            raise ApiError(400, f"{name[:80]}: is no text in UTF-8", param=name[:80], code="invalid_type") from None
        if name.endswith("[]"):
            found.setdefault(name, []).append(given)
        elif name in found:
            raise ApiError(400, f"{name[:80]}: comes twice", param=name[:80], code="invalid_type")
        else:
            found[name] = given
    return _request(kind, found, are_texts=True)


def _request(kind: type[Body], found: dict[str, Any], *, are_texts: bool = False) -> Body:
    _check_names(kind, found)
    try:
        values = {name: _whole(kind, name, value) for name, value in found.items()}
        return msgspec.convert(values, kind, strict=not are_texts)
    except (msgspec.ValidationError, RecursionError, OverflowError) as error:
        at = re.search(r"`\$\.?(.+)`$", str(error))
        missing = re.search(r"missing required field `(\w+)`", str(error))
        param = at[1] if at else missing[1] if missing else None
        allowed = _values(kind, at[1]) if at and "enum value" in str(error) else []
        expected = f"; expected {', '.join(allowed)}" if allowed else ""
        raise ApiError(400, f"{error}{expected}", param=param, code="invalid_type") from None


def _whole(kind: type[msgspec.Struct], name: str, value: Any) -> Any:
    """A number like 5.0, as some clients write 5, as an integer where a field takes one."""
    if isinstance(value, float) and value.is_integer():
        leaves = {
            leaf
            for field in msgspec.structs.fields(kind)
            if field.encode_name == name
            for leaf in _leaves([field.type])
        }
        if int in leaves and float not in leaves:
            return int(value)
    return value


def _cause(error: Exception, data: bytes) -> str:
    """What is wrong with a body; for half of a character msgspec says that data was truncated."""
    if "truncated" in str(error) and re.search(rb"\\u[dD][89a-fA-F]", data):
        return f"{error}, or a text has half of a surrogate pair, such as \\ud83d: it was cut within a character"
    return str(error)


def _check_names(kind: type[msgspec.Struct], found: dict[str, Any]) -> None:
    """Refuses fields that a request of that kind has not, but for values that change nothing.

    Raises:
        ApiError: 400.
    """
    names = {field.encode_name for field in msgspec.structs.fields(kind)}
    refused, neutral = refused_fields(kind), neutral_fields(kind)
    for name in found.keys() - names - ignored_fields(kind):
        if name in neutral:
            if _is_one_of(found[name], neutral[name]):
                continue
            values = ", ".join(repr(value) for value in neutral[name][1:])
            reason = refused.get(name, f"not supported; leave it out{f', or send {values}' if values else ''}")
            raise ApiError(400, f"{name}: {reason}", param=name, code="unsupported_parameter")
        near = difflib.get_close_matches(name[:80], names, 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise ApiError(
            400, f"unrecognized request argument: {name[:80]}{hint}", param=name[:80], code="unknown_parameter"
        )


def _is_one_of(value: Any, allowed: tuple[Any, ...]) -> bool:
    """Whether a value is among those allowed, as JSON compares: 0 is 0.0, but not false."""
    return any(value == other and isinstance(value, bool) == isinstance(other, bool) for other in allowed)


def _values(kind: type[msgspec.Struct], path: str) -> list[str]:
    """What a field of a few values may be, by its place in a body, such as "messages[0].role"."""
    found: list[Any] = [kind]
    for name in re.findall(r"\w+", re.sub(r"\[[^\]]*\]", "", path)):
        structs = [at for at in found if isinstance(at, type) and issubclass(at, msgspec.Struct)]
        fields = (field for struct in structs for field in msgspec.structs.fields(struct))
        found = list(_leaves(field.type for field in fields if field.encode_name.removesuffix("[]") == name))
    return [str(value) for at in found if get_origin(at) is Literal for value in get_args(at)]


def _leaves(kinds: Iterable[Any]) -> Iterator[Any]:
    """The types that a list or union is made of."""
    for kind in kinds:
        if get_origin(kind) in (Union, types.UnionType, list):
            yield from _leaves(get_args(kind))
        else:
            yield kind
