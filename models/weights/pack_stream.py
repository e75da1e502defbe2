"""Matrices to packed bytes, chunk by chunk on a few threads, so that memory holds a few chunks and not the model."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from .matrix import Matrix
from .packing import BLOCK, is_quantized, pack
from .quantize import QUANTIZERS, RANDOM_CODES

_CHUNK_WEIGHTS = 1 << 20  # 4 MiB of fp32 a thread: beyond that only memory grows
_CHUNK_ROWS = 2 * BLOCK  # a chunk ends where a gate block and its up block do
_FP16_MAX = 65504.0


def packed_chunks(
    matrix: Matrix, fmt: str, workers: ThreadPoolExecutor, on_saturated: Callable[[int], None]
) -> Iterator[NDArray[np.uint8]]:
    """Yields the packed bytes of `matrix` in `fmt`, in order; the same bytes however many workers there are.

    Args:
        matrix: [N, K]; K a multiple of 64 for the quantised formats.
        fmt: One of the linear formats of docs/hmm-format.md section 6.
        workers: Pool that reads, quantises and packs.
        on_saturated: Called with the number of weights of a chunk that were beyond fp16 and clamped (linear_f16).
    """

    def work(start: int, stop: int) -> NDArray[np.uint8]:
        rows = matrix.read(start, stop)
        if is_quantized(fmt):
            return pack(fmt, *QUANTIZERS[fmt](rows))
        if fmt == "linear_f16":
            half, saturated = to_fp16(rows)
            if saturated:
                on_saturated(saturated)
            return pack(fmt, half)
        return pack(fmt, rows)

    return _in_order(work, matrix.shape, workers)


def code_chunks(matrix: Matrix, inputs: int, workers: ThreadPoolExecutor) -> Iterator[NDArray[np.uint8]]:
    """Yields the packed bytes of a matrix of 4-bit codes (`CodeMatrix`, or merged from such) as linear_w4, in order.

    Args:
        matrix: [N, inputs + inputs / 32] bytes.
        inputs: K, a multiple of 64.
        workers: Pool that reads and packs.
    """

    def work(start: int, stop: int) -> NDArray[np.uint8]:
        rows = matrix.read(start, stop)
        scales = np.ascontiguousarray(rows[:, inputs:]).view(np.float16)
        return pack("linear_w4", rows[:, :inputs].view(np.int8), scales)

    return _in_order(work, matrix.shape, workers)


def random_chunks(
    shape: tuple[int, int], fmt: str, seed: Sequence[int], workers: ThreadPoolExecutor
) -> Iterator[NDArray[np.uint8]]:
    """Yields packed random codes and scales of a quantised format: mean 0, deviation near 0.02."""
    assert is_quantized(fmt)

    def work(start: int, stop: int) -> NDArray[np.uint8]:
        rng = np.random.default_rng([*seed, start])
        return pack(fmt, *RANDOM_CODES[fmt](rng, stop - start, shape[1]))

    return _in_order(work, shape, workers)


def to_fp16(rows: NDArray[np.float32]) -> tuple[NDArray[np.float16], int]:
    """Rounds to fp16; values beyond its range saturate at +-65504. Returns the result and how many saturated."""
    with np.errstate(over="ignore"):
        half = rows.astype(np.float16)
    beyond = np.isinf(half)
    count = int(np.count_nonzero(beyond))
    if count:
        half[beyond] = np.copysign(np.float16(_FP16_MAX), half[beyond])
    return half, count


def worker_pool() -> ThreadPoolExecutor:
    """Returns a pool with a thread for each CPU this process may use, at most 16."""
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return ThreadPoolExecutor(min(cpus, 16), thread_name_prefix="tcim-compile")


def row_chunks(shape: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yields (start, stop) of the row chunks of a matrix of this shape."""
    rows = max(_CHUNK_WEIGHTS // shape[1] // _CHUNK_ROWS, 1) * _CHUNK_ROWS
    for start in range(0, shape[0], rows):
        yield start, min(start + rows, shape[0])


def _in_order(
    work: Callable[[int, int], NDArray[np.uint8]], shape: tuple[int, int], workers: ThreadPoolExecutor
) -> Iterator[NDArray[np.uint8]]:
    window = workers._max_workers + 1
    pending: deque[Future[NDArray[np.uint8]]] = deque()
    try:
        for start, stop in row_chunks(shape):
            pending.append(workers.submit(work, start, stop))
            if len(pending) > window:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:
        for future in pending:
            future.cancel()
