"""What stands around the expert of pi0.5: Linears of actions, and what makes its condition of a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from ..onnx.network_builder import Tensor, TensorNetwork
from ..weights.spec import RandomTensors
from .pi05 import Policy

if TYPE_CHECKING:
    import onnx

_LINEARS = ("action_in_proj", "action_out_proj", "time_mlp_in", "time_mlp_out")


def shapes(actions: int, hidden: int) -> dict[str, tuple[int, ...]]:
    """Returns the shapes of their tensors, by name."""
    sizes: dict[str, tuple[int, ...]] = dict.fromkeys(_LINEARS, (hidden, hidden))
    sizes["action_in_proj"] = (hidden, actions)
    sizes["action_out_proj"] = (actions, hidden)
    return {f"{name}.weight": size for name, size in sizes.items()} | {
        f"{name}.bias": size[:1] for name, size in sizes.items()
    }


def action_tensors(policy: Policy, sizes: Mapping[str, tuple[int, ...]], seed: int) -> Callable[[str], Tensor]:
    """Returns what reads one of them, or draws it."""
    if (store := policy.store) is not None:
        return lambda name: store.read(policy.name(name))
    random = RandomTensors(seed)

    def drawn(name: str) -> Tensor:
        rows, *columns = sizes[name]
        return random.matrix(name, (rows, *(columns or [1]))).read(0, rows).reshape(sizes[name])

    return drawn


def linear_network(name: str, given: str, shape: tuple[int, ...], tensor: Callable[[str], Tensor]) -> onnx.ModelProto:
    """Rows of actions, or of what the expert gives, through the Linear `NAME` -> `NAME_out`."""
    net = TensorNetwork(name, tensor)
    x = net.linear(net.input(given, shape), *(tensor(f"{name}.{what}") for what in ("weight", "bias")))
    return net.build([net.op("Identity", x, result=f"{name}_out")])


def time_network(hidden: int, tensor: Callable[[str], Tensor]) -> onnx.ModelProto:
    """The waves of a time, [1, H] -> the condition of the expert's norms."""
    net = TensorNetwork("time_mlp", tensor)
    x = net.input("time_emb", (1, hidden))
    for name, result in (("time_mlp_in", ""), ("time_mlp_out", "time_mlp_out")):
        x = net.linear(x, *(tensor(f"{name}.{what}") for what in ("weight", "bias")))
        x = net.op("Mul", x, net.op("Sigmoid", x), result=result)
    return net.build([x])
