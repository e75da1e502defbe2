"""Linears whose inputs and outputs are kept between bounds that the checkpoint has."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..family import Tensors, plain
from ..graphs.encoder_builder import EncoderBuilder
from ..graphs.values import Ref
from ..weights.roles import Role
from .weights import Weight

_BOUNDS = ("input_min", "input_max", "output_min", "output_max")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClippedLinear:
    """A Linear without a bias.

    Attributes:
        role: Of its weight.
        outputs: Rows.
        inputs: Columns.
        clipped: There are bounds.
    """

    role: Role
    outputs: int
    inputs: int
    clipped: bool

    def weights(self) -> Iterator[Weight]:
        yield Weight(self.role, (self.outputs,), self.inputs)
        if self.clipped:
            for which in _BOUNDS:
                yield Weight(_bound(self.role, which), (1,))

    def lower(self, builder: EncoderBuilder, name: str, x: Ref, layer: int) -> Ref:
        """[.., inputs] -> [.., outputs]."""
        if not self.clipped:
            return builder.linear(name, x, self.role.name_of(layer))
        y = builder.linear(f"{name}.whole", self._kept(builder, f"{name}.input", x, layer), self.role.name_of(layer))
        return self._kept(builder, name, y, layer, "output")

    def _kept(self, builder: EncoderBuilder, name: str, x: Ref, layer: int, side: str = "input") -> Ref:
        least, most = (builder.weight(_bound(self.role, f"{side}_{end}").name_of(layer)) for end in ("min", "max"))
        return builder.repeated("Min", name, builder.repeated("Max", f"{name}.from_below", x, least), most)


def clipped_tensors(role: Role, name: str) -> dict[Role, Tensors]:
    """Where the numbers of one come from, as transformers calls them in a module `name`."""
    found = {role: plain(f"{name}.linear.weight")}
    return found | {_bound(role, which): plain(f"{name}.{which}") for which in _BOUNDS}


def _bound(role: Role, which: str) -> Role:
    name = f"{role.name.removesuffix('.weight')}.{which}"
    return Role(f"{role.id}.{which}", name, "least" if which.endswith("min") else "most")
