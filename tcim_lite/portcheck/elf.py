"""Which names of the API a compiled program imports: the undefined dynamic symbols of an ELF file, 64 bits."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator

from .api import CPP, unknown
from .findings import Place, Use

_DYNSYM = 11


def is_elf(head: bytes) -> bool:
    """Whether a file that begins so is an ELF file."""
    return head[:4] == b"\x7fELF"


def uses(content: bytes, shown: str) -> Iterator[Use]:
    """The functions of `tcim::` that the program takes from the runtime, and headers of C functions, each once.

    Raises:
        ValueError: Damage, or no 64-bit little-endian file.
    """
    for name in sorted({named for symbol in undefined(content) if (named := api_name(symbol))}):
        yield Use(CPP.get(name) or unknown(name), name, Place(shown, 0))


def undefined(content: bytes) -> Iterator[str]:
    """The names of undefined dynamic symbols.

    Raises:
        ValueError: Damage, or no 64-bit little-endian file.
    """
    try:
        if content[4:6] != b"\x02\x01":
            raise ValueError("no 64-bit little-endian ELF file")
        (table,) = struct.unpack_from("<Q", content, 40)
        size, count = struct.unpack_from("<HH", content, 58)
        sections = [struct.unpack_from("<IIQQQQIIQQ", content, table + index * size) for index in range(count)]
        for _, kind, _, _, offset, length, link, _, _, entry in sections:
            if kind != _DYNSYM or not entry:
                continue
            strings = sections[link][4]
            for at in range(offset, min(offset + length, len(content)), entry):
                name, _, _, section, _, _ = struct.unpack_from("<IBBHQQ", content, at)
                if section == 0 and name:
                    end = content.index(b"\0", strings + name)
                    yield content[strings + name : end].decode("ascii", "replace")
    except (struct.error, IndexError, OverflowError) as error:
        raise ValueError(f"a damaged ELF file ({error})") from None


def api_name(symbol: str) -> str:
    """The table's name of a mangled function of `tcim::`: "Module::Run"; the header of a C function; "" for others.

    Destructors, assignments and other operators are part of their class.
    """
    if symbol.startswith(("hm_sys_", "hm_fw_")):
        return "hm_sys.h"
    if re.fullmatch(r"tcim_\w+_impl|tcim_(un)?load_library", symbol):
        return "tcim_c_api.h"
    found = re.match(r"_ZN?K?(4tcim.*)", symbol)
    if found is None:
        return ""
    parts, rest = [], found[1]
    while number := re.match(r"\d+", rest):
        length = int(number[0])
        parts.append(rest[number.end() : number.end() + length])
        rest = rest[number.end() + length :]
    parts = parts[1:]
    if not parts or parts[0] == "internal":
        return ""
    return "::".join(parts)
