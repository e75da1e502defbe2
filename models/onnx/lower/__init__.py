"""The lowerings; importing this fills `table.LOWERINGS`."""

from . import (
    bits,
    codes,
    col2im,
    conv,
    curves,
    deform,
    einsum,
    elementwise,
    fused,
    gather,
    grid,
    matmul,
    microsoft,
    nbits,
    norm,
    one_hot,
    pool,
    quantised,
    recurrent,
    reduce,
    resize,
    scatter,
    sequences,
    shape,
    spectrum,
)

__all__ = [
    "bits", "codes", "col2im", "conv", "curves", "deform", "einsum", "elementwise", "fused", "gather", "grid", "matmul",
    "microsoft", "nbits", "norm", "one_hot", "pool", "quantised", "recurrent", "reduce", "resize", "scatter",
    "sequences", "shape", "spectrum",
]  # fmt: skip
