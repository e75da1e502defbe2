"""Which inputs a refused node would have to have as constants: switches and sizes that a file leaves to its caller."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ..common.errors import CompileError
from .errors import shown
from .network import Network, Port
from .survey import Survey, survey

_MOST_ELEMENTS = 8  # of such an input
_MOST_INPUTS = 4
_MOST_NUMBERS = 2

ReadWith = Callable[[Mapping[str, tuple[float, ...]]], Network]


@dataclass(frozen=True)
class Deciding:
    """Inputs of which each, as a constant, makes the first node supported that is not; or all together.

    Attributes:
        inputs: With a number that does.
    """

    inputs: tuple[tuple[Port, float], ...]

    def __str__(self) -> str:
        options = (
            f"--constant {shown(port.name)}={','.join([f'{number:g}'] * math.prod(port.shape))}"
            for port, number in self.inputs
        )
        names = ", ".join(f"'{shown(port.name)}'" for port, _ in self.inputs)
        return f"with a constant instead of the input {names} it is supported, such as {' '.join(options)}"


def deciding_inputs(read_with: ReadWith) -> Deciding | None:
    """None if constants do not help, or may not be meant, because the inputs are large or many.

    Args:
        read_with: Reads the model with constants instead of some inputs.
    """
    network = read_with({})
    found = survey(network)
    ports = [port for port in network.inputs if _may_decide(port)]
    numbers = {port.name: _compared(network, found, port.name) for port in ports}
    refused = _labels(network, found)
    if not refused or not 0 < len(ports) <= _MOST_INPUTS:
        return None

    def helps(pairs: Sequence[tuple[Port, float]]) -> bool:
        try:
            fixed = read_with({port.name: (number,) for port, number in pairs})
            return refused[0] not in _labels(fixed, survey(fixed))
        except CompileError:
            return False

    tried = ([pair for pair in ((port, number) for number in numbers[port.name]) if helps([pair])] for port in ports)
    alone = [found[0] for found in tried if found]
    together = [(port, 1.0) for port in ports]
    if not alone and not (len(together) > 1 and helps(together)):
        return None
    return Deciding(tuple(alone or together))


def _may_decide(port: Port) -> bool:
    """Whether an input may be a switch or a size; integers of rank 2 are sizes of each image of a batch."""
    is_integer = port.dtype.startswith(("int", "uint"))
    return len(port.shape) <= (2 if is_integer else 1) and math.prod(port.shape) <= _MOST_ELEMENTS


def _compared(network: Network, found: Survey, name: str) -> list[float]:
    """Numbers to try: those with which the network compares a value, and 1."""
    numbers = []
    for node in network.nodes:
        if node.op == "Equal" and name in node.inputs:
            others = (found.values.get(other) for other in node.inputs if other != name)
            numbers += [float(one.reshape(-1)[0]) for one in others if isinstance(one, np.ndarray) and one.size == 1]
    return [*dict.fromkeys(numbers[:_MOST_NUMBERS]), 1.0]


def _labels(network: Network, found: Survey) -> list[str]:
    """The nodes that cannot be lowered, in their order."""
    return [node.label for node in network.nodes if id(node) in found.refused]
