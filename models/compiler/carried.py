"""Inputs and outputs of graphs for what linear attention hands from run to run, as the vendor's exports have them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tcim_lite.hmm import Role

from ..blocks.nets import Net
from ..contract import Contract
from ..graphs.builder import GraphBuilder
from ..graphs.values import Ref
from .graph_specs import GraphSpec

_CONV, _RECURRENT = "conv_state", "recurrent_state"


def is_carried_role(name: str) -> bool:
    """Whether a port of this role is such a state, or a part of one."""
    return name.startswith((_CONV, _RECURRENT))


@dataclass(frozen=True, slots=True)
class CarriedPorts:
    """Those of one batch slot: all layers of the first kind, then all of the second.

    Attributes:
        contract: Of the family.
        nets: Layers with states.
        spec: Of the graph.
        slot: Number of the batch slot.
        first: How many such layers are in the stages before; names count them all.
    """

    contract: Contract
    nets: Mapping[int, Net]
    spec: GraphSpec
    slot: int
    first: int = 0

    def add(self, builder: GraphBuilder) -> dict[int, tuple[Ref, ...]]:
        """Adds the inputs; returns by layer what their block takes. Columns of q, k and v are put together."""
        carried: dict[int, tuple[Ref, ...]] = {layer: () for layer in self.nets}
        for kind, port in enumerate(self.contract.carried):
            add = builder.state if self._is_in_place(port.role) else builder.input
            for number, (layer, net) in enumerate(self.nets.items(), self.first):
                rest = net.states[kind][2:]
                inputs = [
                    add(name.format(layer=number) + self._end, (1, size, *rest), role=Role(role, layer, self.slot))
                    for name, role, size in self._parts(port.name, port.role, net, kind)
                ]
                joined = f"layers.{layer}.delta.columns{self._end}"
                whole = inputs[0] if len(inputs) == 1 else builder.concat(joined, inputs, 1)
                carried[layer] += (whole,)
        return carried

    def names(self) -> dict[int, tuple[tuple[str, ...], ...]]:
        """By layer and kind what the states are called that a run hands on, one or one after each token."""
        ends = [f"_{token}" for token in range(self.spec.tokens)] if self.spec.each_state else [self._end]
        names: dict[int, tuple[tuple[str, ...], ...]] = {layer: () for layer in self.nets}
        for port, output in zip(self.contract.carried, self.contract.carried_outputs, strict=True):
            is_output = not self._is_split(port.role) and not self._is_in_place(port.role)
            for number, layer in enumerate(self.nets, self.first):
                name = output.format(layer=number) if is_output else f"layers.{layer}.delta.{port.role}"
                names[layer] += (tuple(name + end for end in ends),)
        return names

    def outputs(self, builder: GraphBuilder, carried_on: Mapping[int, tuple[tuple[Ref, ...], ...]]) -> dict[Ref, Role]:
        """The outputs in the order of the inputs, of what the layers gave; columns are cut as the inputs are."""
        outputs: dict[Ref, Role] = {}
        for kind, (port, output) in enumerate(zip(self.contract.carried, self.contract.carried_outputs, strict=True)):
            if self._is_in_place(port.role):
                continue
            for number, (layer, net) in enumerate(self.nets.items(), self.first):
                begin, states = 0, carried_on[layer][kind]
                for name, role, size in self._parts(output, port.role, net, kind):
                    for token, state in enumerate(states):
                        end = f"_{token}" if len(states) > 1 else ""
                        if self._is_split(port.role):
                            part = name.format(layer=number) + (end or self._end)
                            state = builder.part(part, state, 1, begin, begin + size)
                        outputs[state] = Role(role + end, layer, self.slot)
                    begin += size
        return outputs

    @property
    def _end(self) -> str:
        """What names of this slot end in."""
        return f"_batch_{self.slot}" if self.slot else ""

    def _is_split(self, role: str) -> bool:
        return self.spec.split_conv and role == _CONV

    def _is_in_place(self, role: str) -> bool:
        return self.spec.recurrent_in_place and role == _RECURRENT

    def _parts(self, name: str, role: str, net: Net, kind: int) -> Iterator[tuple[str, str, int]]:
        """Names, roles and extents of axis 1 of the ports that stand for one of this name and role."""
        if not self._is_split(role):
            yield name, role, net.states[kind][1]
            return
        for part, size in net.parts.items():
            yield name.replace("{layer}", f"{part}_{{layer}}"), f"{role}_{part}", size
