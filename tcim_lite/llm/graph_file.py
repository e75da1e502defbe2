"""What the file of a graph says of its ports, for who must not open a device."""

from __future__ import annotations

from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import tcim_lite.runtime as tcim
from tcim_lite import hmm


class _Port(NamedTuple):
    shape: tuple[int, ...]
    dtype: str


class GraphFile:
    """Answers questions about a graph as a module does, and runs nothing.

    Args:
        path: A `.hmm` for one device.

    Raises:
        HmmFormatError: It is none.
        OSError: It cannot be read.
    """

    def __init__(self, path: str | PathLike[str]):
        found = hmm.read(path)
        assert found.graph is not None
        values = found.graph.values
        self._message = found.custom_msg
        self._inputs = {values[number].name: _port_of(values[number]) for number in found.graph.inputs}
        self._outputs = {values[number].name: _port_of(values[number]) for number in found.graph.outputs}

    def get_custom_msg(self) -> str:
        """As of a module."""
        return self._message

    def get_num_inputs(self) -> int:
        """As of a module."""
        return len(self._inputs)

    def get_input_name(self, index: int) -> str:
        """As of a module."""
        return list(self._inputs)[index]

    def get_input_info(self, name: str) -> _Port:
        """Shape and dtype of an input."""
        return self._inputs[name]

    def get_output_name(self, index: int) -> str:
        """As of a module."""
        return list(self._outputs)[index]

    def get_output_info(self, name: str) -> _Port:
        """Shape and dtype of an output."""
        return self._outputs[name]


Load = Callable[[Path], Any]
"""Opens a graph: as a module, or as a `GraphFile`."""


def modules_on(weights: Any) -> Load:
    """Opens graphs as modules over a `WeightManager`."""
    return lambda path: tcim.load(str(path), option=tcim.Option(weights))


def _port_of(value: Any) -> _Port:
    return _Port(tuple(value.shape), value.dtype)
