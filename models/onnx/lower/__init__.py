"""The lowerings; importing this fills `table.LOWERINGS`."""

from . import conv, einsum, elementwise, gather, matmul, norm, pool, reduce, resize, shape

__all__ = ["conv", "einsum", "elementwise", "gather", "matmul", "norm", "pool", "reduce", "resize", "shape"]
