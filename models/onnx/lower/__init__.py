"""The lowerings; importing this fills `table.LOWERINGS`."""

from . import conv, curves, einsum, elementwise, gather, matmul, norm, pool, recurrent, reduce, resize, shape

__all__ = [
    "conv", "curves", "einsum", "elementwise", "gather", "matmul", "norm", "pool", "recurrent", "reduce", "resize",
    "shape",
]  # fmt: skip
