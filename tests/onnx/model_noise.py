"""What roundings of a size alone do to a network: its cosine with noise in every quantised layer, without our compiler.

    python tests/onnx/model_noise.py [--only TEXT] [--small]

In float64 torch, every convolution and product that the compiler quantises gets Gaussian noise, of a size relative to
its result: w8a8 rounds weights and activations by 0.89 % rms each (normal data), float16 by 0.02 %. Where that gives
the cosine which docs/onnx.md has, the network amplifies roundings; a mistake of the compiler or of a kernel would show
as a lower one there.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import nn
from zoo import NETWORKS, build

SIZES = {"float16": 2**0.5 * 2e-4, "w8a8h1_sefp": 2**0.5 * 8.9e-3}
_QUANTISED = 64  # terms of an output from which on it is quantised


@contextlib.contextmanager
def noise(module: nn.Module, relative: float, seed: int) -> Iterator[None]:
    """Gaussian noise in the result of every layer that has at least 64 terms and one group."""
    rng = torch.Generator().manual_seed(seed)

    def disturb(_: nn.Module, __: Any, y: torch.Tensor) -> torch.Tensor:
        return y + relative * y.square().mean().sqrt() * torch.randn(y.shape, generator=rng, dtype=y.dtype)

    layers = [part for part in module.modules() if isinstance(part, (nn.Conv1d, nn.Conv2d, nn.Linear))]
    hooks = [
        part.register_forward_hook(disturb)
        for part in layers
        if getattr(part, "groups", 1) == 1 and part.weight[0].numel() >= _QUANTISED
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def cosines(name: str, small: bool, profile: str, draws: int = 2) -> list[list[float]]:
    """Per draw, the cosine of each output with the exact one."""
    network = NETWORKS[name]
    module, x = build(network, network.small if small else network.full)
    module.double()
    value = torch.from_numpy(x)
    value = value.double() if value.is_floating_point() else value

    def run() -> list[np.ndarray]:
        with torch.no_grad():
            result = module(value)
        return [y.numpy().ravel() for y in (result if isinstance(result, (list, tuple)) else [result])]

    exact, found = run(), []
    for seed in range(draws):
        with noise(module, SIZES[profile], seed):
            noisy = run()
        found.append([float(a @ b / np.linalg.norm(a) / np.linalg.norm(b)) for a, b in zip(exact, noisy, strict=True)])
    return found


def main() -> int:
    """Prints the cosines."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", metavar="TEXT", help="networks whose name contains TEXT")
    parser.add_argument("--small", action="store_true", help="the small cases")
    args = parser.parse_args()
    torch.set_num_threads(2)
    for name in NETWORKS:
        for profile in SIZES if args.only in name else ():
            shown = "; ".join(" / ".join(f"{c:.7f}" for c in draw) for draw in cosines(name, args.small, profile))
            print(f"{name:22} {profile:12} {shown}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
