"""Builds a network with seeded weights, exports it to ONNX, and bounds the error of float32."""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import torch
from torch import nn

_UNIT = 2.0**-24  # the relative error of one float32 rounding
_NORMS = (nn.BatchNorm2d, nn.LayerNorm, nn.RMSNorm)


@dataclass(frozen=True)
class Case:
    """One size of a network: the shape of its input, and the arguments of its builder.

    Attributes:
        tokens: The input holds ids below this number; 0: it holds normal numbers.
    """

    shape: tuple[int, ...]
    args: tuple[Any, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    tokens: int = 0


@dataclass(frozen=True)
class Network:
    """A builder with its full and its small case."""

    builder: Callable[..., nn.Module]
    full: Case
    small: Case


def build(network: Network, case: Case) -> tuple[nn.Module, np.ndarray]:
    """The network with seeded weights, ready to run, and an input.

    Products keep the variance of what they read, and batch norms have scales and shifts of their own and the statistics
    of two inputs; those that end a residual path are small, as training makes them, else depth alone would amplify
    every rounding. So activations are as large as in a trained network, and the same weights come out every time.
    """
    rng = torch.Generator().manual_seed(3)
    with torch.random.fork_rng():
        torch.manual_seed(7)
        module = network.builder(*case.args, **case.options)
    for part in module.modules():
        if isinstance(part, (nn.Conv1d, nn.Conv2d, nn.Linear)) and part.weight.shape[0] > 1:
            part.weight.data.normal_(0, part.weight[0].numel() ** -0.5, generator=rng)
            if part.bias is not None:
                part.bias.data.normal_(0, 0.1, generator=rng)
        elif isinstance(part, (nn.BatchNorm2d, nn.LayerNorm)):
            low, high = (0.1, 0.4) if getattr(part, "ends_path", False) else (0.5, 1.5)
            part.weight.data.uniform_(low, high, generator=rng)
            part.bias.data.normal_(0, 0.2, generator=rng)
    norms = [part for part in module.modules() if isinstance(part, nn.BatchNorm2d)]
    if norms:
        for part in norms:
            part.momentum = 1.0
        module.train()
        with torch.no_grad():
            module(torch.randn(2, *case.shape[1:], generator=rng))
    module.eval()
    if case.tokens:
        return module, torch.randint(case.tokens, case.shape, generator=rng, dtype=torch.int64).numpy()
    return module, torch.randn(case.shape, generator=rng).numpy()


def export(module: nn.Module, x: np.ndarray, opset: int = 17, dynamo: bool = False) -> onnx.ModelProto:
    """The network as ONNX with the input "x". Batch norms stay nodes of their own where the exporter allows it."""
    buffer = io.BytesIO()
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        if dynamo:
            program = torch.onnx.export(
                module, (torch.from_numpy(x),), input_names=["x"], opset_version=opset, dynamo=True, verbose=False
            )
            return program.model_proto
        torch.onnx.export(
            module, (torch.from_numpy(x),), buffer, input_names=["x"], opset_version=opset, dynamo=False,
            training=torch.onnx.TrainingMode.PRESERVE, do_constant_folding=True,
        )  # fmt: skip
    return onnx.load_from_string(buffer.getvalue())


def float32_bounds(module: nn.Module, *x: np.ndarray) -> list[float]:
    """How far float32 may be from another float32 implementation, per output: the largest difference allowed.

    Roundings are modelled where they arise and carried through the network itself. A sum of K products in any order has
    an error of about sqrt(K) 2^-24 times the size of its result; a normalisation counts as its n elements. In float64,
    noise of that size is added to the result of every layer, and the outputs' largest change is taken over three draws.
    Doubled, because both sides have such an error, and functions between layers round too.
    """
    exact = [y.numpy() for y in _outputs(module.double(), *x)]
    bounds = [0.0] * len(exact)
    for seed in range(3):
        with _noise(module, seed):
            noisy = [y.numpy() for y in _outputs(module, *x)]
        bounds = [max(bound, 2 * float(np.abs(a - b).max())) for bound, a, b in zip(bounds, exact, noisy, strict=True)]
    module.float()
    return bounds


def _outputs(module: nn.Module, *x: np.ndarray) -> list[torch.Tensor]:
    values = [torch.from_numpy(each) for each in x]
    with torch.no_grad():
        result = module(*(value.double() if value.is_floating_point() else value for value in values))
    return list(result) if isinstance(result, (list, tuple)) else [result]


@contextlib.contextmanager
def _noise(module: nn.Module, seed: int) -> Iterator[None]:
    rng = torch.Generator().manual_seed(seed)

    def disturb(part: nn.Module, _: Any, y: torch.Tensor) -> torch.Tensor:
        terms = y.shape[-1] if isinstance(part, _NORMS) else part.weight[0].numel()
        if isinstance(part, nn.ConvTranspose1d):
            terms = part.weight[:, 0].numel() / part.stride[0]
        size = _UNIT * terms**0.5 * y.square().mean().sqrt()
        return y + size * torch.randn(y.shape, generator=rng, dtype=y.dtype)

    layers = (nn.Conv1d, nn.Conv2d, nn.ConvTranspose1d, nn.Linear, *_NORMS)
    hooks = [part.register_forward_hook(disturb) for part in module.modules() if isinstance(part, layers)]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
