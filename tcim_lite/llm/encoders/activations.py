"""From the score of a cross encoder to a rank."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray


def sigmoid(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """1 / (1 + e^-x) of each number."""
    with np.errstate(over="ignore"):  # of a large negative one, whose result is 0
        return np.asarray(1 / (1 + np.exp(-values)))


# By the names of torch's modules, in lower case.
ACTIVATIONS: Mapping[str, Callable[[NDArray[np.float64]], NDArray[np.float64]]] = {
    "identity": lambda values: values,
    "sigmoid": sigmoid,
    "tanh": np.tanh,
}
