"""CRC-32C (Castagnoli, as iSCSI) with numpy.

The register is linear over GF(2), so the words of a buffer are dealt out to lanes like cards: lane l takes words
l, l + L, l + 2L, ... One step moves every lane over L words of zeros, which is two lookups in tables of 2^16 entries,
and adds the next row of L words. Rows are contiguous, and zeros in front change nothing while the register is zero, so
a buffer of any length is padded at the front. In the end halves of the lanes are folded onto each other until few are
left, which a table moves over what is behind each of them at once.
"""

from __future__ import annotations

import functools

import numpy as np

_POLYNOMIAL = 0x82F63B78  # bit-reversed
_FEW_LANES = 1 << 7  # whose last tables have half a megabyte


def crc32c(data: object, seed: int = 0) -> int:
    """Returns the CRC-32C of a bytes-like object or C-contiguous array; `seed` is the CRC of what came before."""
    view = memoryview(data)  # type: ignore[arg-type]
    buffer = np.frombuffer(view, np.uint8) if view.nbytes else np.empty(0, np.uint8)
    register = seed ^ 0xFFFFFFFF
    for begin in range(0, buffer.size, 1 << 24):  # bounds the padded copy
        register = _advance(register, buffer[begin : begin + (1 << 24)])
    return register ^ 0xFFFFFFFF


def _advance(register: int, buffer: np.ndarray) -> int:
    if buffer.size < 512:
        table = _byte_table()
        for byte in buffer.tolist():
            register = table[(register ^ byte) & 0xFF] ^ (register >> 8)
        return register
    num_lanes = 1 << 14 if buffer.size >= 1 << 19 else 1 << 10 if buffer.size >= 1 << 13 else _FEW_LANES
    row_bytes = 4 * num_lanes
    first_bytes = buffer.size % row_bytes or row_bytes
    first = np.zeros(row_bytes, np.uint8)
    first[row_bytes - first_bytes :] = buffer[:first_bytes]
    # The register goes onto the first four bytes of data; they may cross into the second row.
    start = np.frombuffer(register.to_bytes(4, "little"), np.uint8)
    spill = max(4 - first_bytes, 0)
    first[row_bytes - first_bytes : row_bytes - first_bytes + 4 - spill] ^= start[: 4 - spill]
    rest = buffer[first_bytes:]
    if spill:
        rest = rest.copy()
        rest[:spill] ^= start[4 - spill :]
    lanes = first.view("<u4").astype(np.uint32)

    low, high = _wide_tables(row_bytes)
    index = np.empty(num_lanes, np.intp)
    scratch = np.empty(num_lanes, np.uint32)
    for row in rest.view(np.uint8).reshape(-1, row_bytes):
        np.right_shift(lanes, 16, out=index, casting="unsafe")
        np.take(high, index, out=scratch, mode="clip")
        np.bitwise_and(lanes, 0xFFFF, out=index, casting="unsafe")
        np.take(low, index, out=lanes, mode="clip")
        lanes ^= scratch
        lanes ^= np.frombuffer(row, "<u4")
    while lanes.size > _FEW_LANES:
        half = lanes.size // 2
        lanes = _moved(lanes[:half], 4 * half) ^ lanes[half:]
    tables, places = _last_tables()
    return int(np.bitwise_xor.reduce(tables[places + lanes.astype("<u4").view(np.uint8)]))


@functools.cache
def _byte_table() -> tuple[int, ...]:
    table = []
    for register in range(256):
        for _ in range(8):
            register = (register >> 1) ^ (_POLYNOMIAL if register & 1 else 0)
        table.append(register)
    return tuple(table)


@functools.cache
def _zeros_operator(num_bytes: int) -> np.ndarray:
    """Where each bit of the register goes over `num_bytes` (a power of two) zero bytes: [32] uint32 columns."""
    if num_bytes == 1:
        bits = 1 << np.arange(32, dtype=np.uint32)
        table = np.array(_byte_table(), np.uint32)
        return table[bits & 0xFF] ^ (bits >> 8)
    half = _zeros_operator(num_bytes // 2)
    return _apply(half, half)


def _apply(operator: np.ndarray, registers: np.ndarray) -> np.ndarray:
    result = np.zeros_like(registers)
    for bit in range(32):
        result ^= np.where((registers >> np.uint32(bit)) & np.uint32(1), operator[bit], np.uint32(0))
    return result


def _moved(registers: np.ndarray, num_bytes: int) -> np.ndarray:
    """Registers behind `num_bytes` more zero bytes; a lookup for each of their bytes."""
    moved = np.zeros_like(registers)
    for shift, table in zip((0, 8, 16, 24), _narrow_tables(num_bytes), strict=True):
        moved ^= table[registers >> np.uint32(shift) & np.uint32(0xFF)]
    return moved


@functools.cache
def _narrow_tables(num_bytes: int) -> list[np.ndarray]:
    """The zeros operator for each byte of the register, the low one first."""
    operator = _zeros_operator(num_bytes)
    return [_table(operator[first : first + 8]) for first in range(0, 32, 8)]


@functools.cache
def _last_tables() -> tuple[np.ndarray, np.ndarray]:
    """The zeros operator for each byte of each of the few lanes, over its own word and those behind; where each begins.

    The operators for 1 to n words give those for n + 1 to 2n.
    """
    operators = _zeros_operator(4)[None]
    while len(operators) < _FEW_LANES:
        operators = np.concatenate([operators, _apply(_zeros_operator(4 * len(operators)), operators)])
    tables = _table(operators[::-1].reshape(_FEW_LANES * 4, 8))
    return tables.reshape(-1), np.arange(0, tables.size, 256)


@functools.cache
def _wide_tables(num_bytes: int) -> tuple[np.ndarray, np.ndarray]:
    """The zeros operator for the low and the high 16 bits of the register."""
    operator = _zeros_operator(num_bytes)
    return _table(operator[:16]), _table(operator[16:])


def _table(columns: np.ndarray) -> np.ndarray:
    """What an operator makes of every value of the bits that these columns are for: the last axis."""
    table = np.zeros((*columns.shape[:-1], 1), np.uint32)
    for bit in range(columns.shape[-1]):
        table = np.concatenate([table, table ^ columns[..., bit : bit + 1]], axis=-1)
    return table
