"""The lowerings; importing this fills `table.LOWERINGS`."""

from . import conv, elementwise, matmul, norm, pool, reduce, resize, shape

__all__ = ["conv", "elementwise", "matmul", "norm", "pool", "reduce", "resize", "shape"]
