"""Roles and aliases of inputs and outputs, the ports section (docs/hmm-format.md section 5.2)."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import replace

from ..errors import HmmFormatError
from . import layout
from .cursor import Cursor
from .graph import Graph, Role, Value
from .graph_section import encode_text

_NUMBERS = struct.Struct("<ii")
_MIN_PORT_BYTES = 16  # an empty role, two numbers, no alias
_NONE = -1


def encode_ports(graphs: Sequence[Graph]) -> bytes:
    """Returns the bytes of a ports section, none if no input or output has a role or an alias.

    Raises:
        ValueError: roles or aliases that section 5.2 does not allow, or that differ between the parts.
    """
    for graph in graphs:
        ports = {*graph.inputs, *graph.outputs}
        for id_, value in enumerate(graph.values):
            if id_ not in ports and (value.role or value.aliases):
                raise ValueError(
                    f"graph {graph.name!r}: '{value.name}' has a role or an alias and is no input or output"
                )
    described = [[[(value.role, value.aliases) for value in values] for values in _ports_of(graph)] for graph in graphs]
    if any(other != described[0] for other in described):
        raise ValueError(f"graph {graphs[0].name!r}: roles and aliases differ between the parts")
    if not any(role or aliases for ports in described[0] for role, aliases in ports):
        return b""
    first = _ports_of(graphs[0])
    _check(first, ValueError, f"graph {graphs[0].name!r}")
    return b"".join(
        len(values).to_bytes(4, "little") + b"".join(_encode_port(value) for value in values) for values in first
    )


def decode_ports(data: bytes | memoryview, label: str, graphs: Sequence[Graph]) -> list[Graph]:
    """Returns the graphs with the roles and aliases of a ports section.

    Raises:
        HmmFormatError: anything that section 5.2 does not allow.
    """
    cursor = Cursor(memoryview(data), label)
    ports = []
    for what, ids in (("inputs", graphs[0].inputs), ("outputs", graphs[0].outputs)):
        count = cursor.count(layout.MAX_VALUES, _MIN_PORT_BYTES, what)
        if count != len(ids):
            raise HmmFormatError(f"{label} describes {count} {what}, the graph has {len(ids)}")
        ports.append([_decode_port(cursor, graphs[0].values[id_].name) for id_ in ids])
    cursor.end()
    named = []
    for graph in graphs:
        values = list(graph.values)
        for ids, described in zip((graph.inputs, graph.outputs), ports, strict=True):
            for id_, (role, aliases) in zip(ids, described, strict=True):
                values[id_] = replace(values[id_], role=role, aliases=aliases)
        named.append(replace(graph, values=values))
    _check(_ports_of(named[0]), HmmFormatError, label)
    return named


def _ports_of(graph: Graph) -> tuple[list[Value], list[Value]]:
    return [graph.values[id_] for id_ in graph.inputs], [graph.values[id_] for id_ in graph.outputs]


def _encode_port(value: Value) -> bytes:
    role = value.role or Role("")
    numbers = (_NONE if number is None else number for number in (role.layer, role.slot))
    aliases = b"".join(encode_text(alias) for alias in value.aliases)
    return encode_text(role.name) + _NUMBERS.pack(*numbers) + len(value.aliases).to_bytes(4, "little") + aliases


def _decode_port(cursor: Cursor, name: str) -> tuple[Role | None, list[str]]:
    role = cursor.text(layout.MAX_NAME_BYTES, f"the role of '{name}'")
    numbers = [None if n == _NONE else n for n in cursor.unpack(_NUMBERS, f"layer and slot of '{name}'")]
    count = cursor.count(layout.MAX_ALIASES, 4, f"aliases of '{name}'")
    aliases = [cursor.text(layout.MAX_NAME_BYTES, f"an alias of '{name}'") for _ in range(count)]
    return Role(role, *numbers) if role or numbers != [None, None] else None, aliases


def _check(ports: Sequence[Sequence[Value]], error: Callable[[str], Exception], label: str) -> None:
    for values in ports:
        names = {value.name for value in values}
        roles: set[Role] = set()
        for value in values:
            if value.role is not None:
                _check_role(value, value.role, error, label)
                if value.role in roles:
                    raise error(f"{label}: '{value.name}' has {_describe(value.role)}, which another one has already")
                roles.add(value.role)
            if len(value.aliases) > layout.MAX_ALIASES:
                raise error(
                    f"{label}: '{value.name}' has {len(value.aliases)} aliases, at most {layout.MAX_ALIASES} fit"
                )
            for alias in value.aliases:
                if not alias or alias in names:
                    raise error(f"{label}: alias '{alias}' of '{value.name}' is empty or taken")
                names.add(alias)


def _check_role(value: Value, role: Role, error: Callable[[str], Exception], label: str) -> None:
    """Roles that a reader may act on describe what the graph has; of others only the numbers are checked."""
    numbers = [number for number in (role.layer, role.slot) if number is not None]
    if not role.name or any(not 0 <= number < 1 << 31 for number in numbers):
        raise error(f"{label}: '{value.name}' has {_describe(role)}; expected a name, and numbers from 0 on or -1")
    if role.name in ("k_cache", "v_cache", "latent_cache"):
        fits, expected = value.kind == "state" and role.layer is not None, "a state of some layer"
    elif role.name in ("valid_length", "current_length", "head_number"):
        fits, expected = (value.kind, value.dtype, value.shape) == ("input", "int32", (1,)), "an input int32 [1]"
    elif role.name == "position_ids":
        fits = (value.kind, value.dtype, value.shape[:-1]) == ("input", "int32", (1,))
        expected = "an input int32 [1, T]"
    elif role.name in ("local_attention_mask", "global_attention_mask"):
        fits = value.kind == "input" and value.dtype in ("float16", "float32") and value.shape[:-2] == (1, 1)
        expected = "a float input [1, 1, T, S]"
    else:
        return
    if not fits:
        what = f"{value.kind} {value.dtype} {list(value.shape)}"
        raise error(f"{label}: '{value.name}', {what}, has {_describe(role)}; expected {expected}")


def _describe(role: Role) -> str:
    layer, slot = (_NONE if number is None else number for number in (role.layer, role.slot))
    return f"role '{role.name}', layer {layer}, slot {slot}"
