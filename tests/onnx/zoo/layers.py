"""Building blocks that several networks share."""

from __future__ import annotations

import torch
from torch import nn


def conv_norm(
    inputs: int,
    outputs: int,
    kernel: int = 1,
    stride: int = 1,
    groups: int = 1,
    act: type[nn.Module] | None = nn.ReLU,
    dilation: int = 1,
    eps: float = 1e-5,
) -> nn.Sequential:
    """Conv without bias, BatchNorm and an activation, padded so that stride 1 keeps the size."""
    pad = (kernel - 1) // 2 * dilation
    conv = nn.Conv2d(inputs, outputs, kernel, stride, pad, dilation, groups, bias=False)
    norm = nn.BatchNorm2d(outputs, eps)
    norm.ends_path = act is None
    parts: list[nn.Module] = [conv, norm]
    return nn.Sequential(*parts, *([act()] if act is not None else []))


class SqueezeExcite(nn.Module):
    """Channels times a gate that a bottleneck computes from their means."""

    def __init__(self, channels: int, hidden: int, act: type[nn.Module], gate: type[nn.Module]) -> None:
        super().__init__()
        self.gate = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Conv2d(channels, hidden, 1), act(), nn.Conv2d(hidden, channels, 1), gate()
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x [N, C, H, W], gated."""
        return x * self.gate(x)


def classifier(channels: int, classes: int) -> nn.Sequential:
    """Means over the image, then one Linear."""
    return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes))


def even(value: float, divisor: int = 8) -> int:
    """The multiple of `divisor` nearest to a number of channels, at most a tenth below it."""
    rounded = max(divisor, int(value + divisor / 2) // divisor * divisor)
    return rounded if rounded >= 0.9 * value else rounded + divisor
