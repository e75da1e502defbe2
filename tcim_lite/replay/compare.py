"""Two results compared: bit for bit, or within a tolerance."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["EXACT", "Tolerance", "difference"]


@dataclass(frozen=True)
class Tolerance:
    """What may differ. An element may be off by `absolute` + `relative` * the largest recorded magnitude.

    Attributes:
        absolute: in the unit of the values.
        relative: of the largest finite magnitude of the recorded tensor.
        cosine: the least cosine between both tensors, or None. Given alone, it is the only bound.
    """

    absolute: float = 0.0
    relative: float = 0.0
    cosine: float | None = None

    @classmethod
    def parse(cls, given: str) -> Tolerance:
        """From text such as "1e-3" (relative) or "abs=1e-3,rel=1e-2,cosine=0.999".

        Raises:
            ValueError: something else.
        """
        names = {"abs": "absolute", "rel": "relative", "cosine": "cosine"}
        values: dict[str, float] = {}
        for part in given.split(","):
            name, equals, number = part.strip().rpartition("=")
            key = names.get(name if equals else "rel")
            try:
                value = float(number)
            except ValueError:
                value = math.nan
            if key is None or key in values or not 0 <= value <= (1.0 if key == "cosine" else 3.5e38):
                raise ValueError(
                    f"tolerance {given!r:.80}: expected NUMBER or abs=NUMBER,rel=NUMBER,cosine=NUMBER, from 0 on, a "
                    "cosine up to 1"
                )
            values[key] = value
        return cls(**values)

    @property
    def exact(self) -> bool:
        """Whether nothing may differ."""
        return not self.absolute and not self.relative and self.cosine is None

    def __str__(self) -> str:
        parts = [("abs", self.absolute), ("rel", self.relative), ("cosine", self.cosine)]
        return ",".join(f"{name}={value:g}" for name, value in parts if value) or "none: bit for bit"


EXACT = Tolerance()


def difference(recorded: NDArray[Any], got: NDArray[Any], tolerance: Tolerance = EXACT) -> str | None:
    """How `got` differs from what was recorded, beyond the tolerance; None if it does not. NaN equals NaN."""
    if recorded.dtype != got.dtype or recorded.shape != got.shape:
        return f"{got.dtype} {list(got.shape)}, recorded was {recorded.dtype} {list(recorded.shape)}"
    if recorded.tobytes() == got.tobytes():
        return None
    wanted, found = (np.asarray(each, np.float64).reshape(-1) for each in (recorded, got))
    with np.errstate(invalid="ignore"):
        off = np.abs(wanted - found)
    same = (wanted == found) | (np.isnan(wanted) & np.isnan(found))
    off = np.where(same, 0.0, np.where(np.isnan(off), np.inf, off))
    magnitudes = np.abs(wanted[np.isfinite(wanted)])
    scale = float(magnitudes.max()) if magnitudes.size else 0.0
    bound = tolerance.absolute + tolerance.relative * scale
    cosine = _cosine(wanted, found)
    only_cosine = tolerance.cosine is not None and not tolerance.absolute and not tolerance.relative
    within = only_cosine or (not tolerance.exact and bool((off <= bound).all()))
    if within and (tolerance.cosine is None or cosine >= tolerance.cosine):
        return None
    differing = np.flatnonzero(off > (0.0 if only_cosine else bound))
    if differing.size == 0:  # only the signs of zeros, or bits of NaN
        differing = np.flatnonzero(_bits(recorded) != _bits(got))
    first, worst = int(differing[0]), int(off.argmax())
    place = [int(index) for index in np.unravel_index(first, recorded.shape)]
    return (
        f"{differing.size} of {off.size} elements differ, the first at {place}: {found[first]:.7g}, "
        f"recorded was {wanted[first]:.7g}; the largest error is {off[worst]:.3g} "
        f"(bound {bound:.3g}), cosine {cosine:.6f}"
    )


def _bits(array: NDArray[Any]) -> NDArray[Any]:
    return np.ascontiguousarray(array).reshape(-1).view(f"u{array.dtype.itemsize}")


def _cosine(one: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    """Of the finite elements; 1.0 for two zero tensors."""
    finite = np.isfinite(one) & np.isfinite(other)
    if not finite.all() and bool((np.isfinite(one) != np.isfinite(other)).any()):
        return math.nan
    one, other = one[finite], other[finite]
    lengths = float(np.linalg.norm(one) * np.linalg.norm(other))
    if lengths == 0:
        return 1.0 if not one.any() and not other.any() else 0.0
    return float(one @ other / lengths)
