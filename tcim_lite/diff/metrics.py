"""How far two tensors are apart."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .folder import Array

_LARGEST = 65504.0  # of float16: what the vendor's golden check takes for infinity


@dataclass(frozen=True, slots=True)
class Difference:
    """Of one tensor from another that is right.

    Attributes:
        differing: Elements that are not equal; NaN equals NaN.
        elements: All elements.
        cosine: Of both, flattened, in float64, infinities as the largest float16; NaN if one holds a NaN.
        largest: The largest error.
        steps: The largest error in steps of the format: distances between neighbouring numbers of the coarser dtype of
            both, at the right value, or at the root mean square of all where that is larger.
        relative: Euclidean norm of the error over that of the right tensor.
    """

    differing: int
    elements: int
    cosine: float
    largest: float
    steps: float
    relative: float

    @property
    def equal(self) -> bool:
        """Whether there is no difference at all."""
        return self.differing == 0


def difference(right: Array, other: Array) -> Difference | None:
    """Compares two tensors; None if their shapes differ."""
    if right.shape != other.shape:
        return None
    same = (right == other) | ((right != right) & (other != other))
    differing = int(same.size - np.count_nonzero(same))
    if differing == 0:
        return Difference(0, right.size, 1.0, 0.0, 0.0, 0.0)
    a, b = _numbers(right), _numbers(other)
    error = np.abs(a - b)
    norm_a, norm_b, norm = (float(np.linalg.norm(x)) for x in (a, b, error))
    product = norm_a * norm_b
    cosine = float(a @ b) / product if product else float(norm_a == norm_b)
    coarse = min(right.dtype, other.dtype, key=lambda dtype: dtype.itemsize)
    steps = 0.0
    if coarse.kind == "f":
        size = np.maximum(np.abs(a), norm_a / np.sqrt(a.size))
        step = np.spacing(np.clip(size, 0.0, _LARGEST).astype(coarse)).astype(np.float64)
        steps = float(np.max(error / step))
    relative = norm / norm_a if norm_a else float("inf")
    if np.isnan(norm):
        relative = float("inf")
    return Difference(differing, right.size, cosine, float(np.max(error)), steps, relative)


def _numbers(array: Array) -> Array:
    flat = array.astype(np.float64).reshape(-1)
    return np.asarray(np.clip(flat, -_LARGEST, _LARGEST)) if np.isinf(flat).any() else flat
