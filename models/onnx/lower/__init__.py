"""The lowerings; importing this fills `table.LOWERINGS`."""

from . import conv, elementwise, gather, matmul, norm, pool, reduce, resize, shape

__all__ = ["conv", "elementwise", "gather", "matmul", "norm", "pool", "reduce", "resize", "shape"]
