"""Names and shapes of the tensors of blocks of networks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

Shapes: TypeAlias = Iterator[tuple[str, tuple[int, ...]]]


def linear_shapes(name: str, outputs: int, inputs: int) -> Shapes:
    yield f"{name}.weight", (outputs, inputs)
    yield f"{name}.bias", (outputs,)


def conv_shapes(name: str, outputs: int, inputs: int, taps: int) -> Shapes:
    yield f"{name}.weight", (outputs, inputs, taps)
    yield f"{name}.bias", (outputs,)


def up_shapes(name: str, inputs: int, outputs: int, taps: int) -> Shapes:
    yield f"{name}.weight", (inputs, outputs, taps)
    yield f"{name}.bias", (outputs,)


def snake_shapes(name: str, channels: int) -> Shapes:
    yield f"{name}.alpha", (channels,)
    yield f"{name}.beta", (channels,)
