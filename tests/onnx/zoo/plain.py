"""VGG, SqueezeNet and DenseNet."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn


def vgg(depths: Sequence[int], width: int = 64, hidden: int = 4096, classes: int = 1000) -> nn.Module:
    """3x3 convolutions with a max pool behind each stage, then three Linears over 7x7; VGG-11 is [1, 1, 2, 2, 2]."""
    parts: list[nn.Module] = []
    channels = 3
    for stage, depth in enumerate(depths):
        for _ in range(depth):
            outputs = width * 2 ** min(stage, 3)
            parts += [nn.Conv2d(channels, outputs, 3, padding=1), nn.ReLU()]
            channels = outputs
        parts.append(nn.MaxPool2d(2))
    parts += [nn.Flatten(), nn.Linear(channels * 49, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU()]
    return nn.Sequential(*parts, nn.Linear(hidden, classes))


class Fire(nn.Module):
    """A narrow 1x1 convolution, then 1x1 and 3x3 side by side."""

    def __init__(self, inputs: int, squeeze: int, expand: int) -> None:
        super().__init__()
        self.squeeze = nn.Sequential(nn.Conv2d(inputs, squeeze, 1), nn.ReLU())
        self.one, self.three = nn.Conv2d(squeeze, expand, 1), nn.Conv2d(squeeze, expand, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x [N, C, H, W]."""
        x = self.squeeze(x)
        return torch.cat([torch.relu(self.one(x)), torch.relu(self.three(x))], 1)


def squeezenet(fires: Sequence[Sequence[int]], stem: int = 64, classes: int = 1000) -> nn.Module:
    """SqueezeNet 1.1: `fires` are the squeezed widths between two max pools; expansions are 4 times as wide."""
    parts: list[nn.Module] = [nn.Conv2d(3, stem, 3, 2), nn.ReLU(), nn.MaxPool2d(3, 2, ceil_mode=True)]
    channels = stem
    for index, run in enumerate(fires):
        parts += [nn.MaxPool2d(3, 2, ceil_mode=True)] if index else []
        for squeeze in run:
            parts.append(Fire(channels, squeeze, 4 * squeeze))
            channels = 8 * squeeze
    parts += [nn.Conv2d(channels, classes, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*parts)


class Dense(nn.Module):
    """Batch norm before each convolution, and the input in front of the result."""

    def __init__(self, inputs: int, growth: int) -> None:
        super().__init__()
        self.path = nn.Sequential(
            nn.BatchNorm2d(inputs), nn.ReLU(), nn.Conv2d(inputs, 4 * growth, 1, bias=False),
            nn.BatchNorm2d(4 * growth), nn.ReLU(), nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False),
        )  # fmt: skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x [N, C, H, W]; the result has `growth` channels more."""
        return torch.cat([x, self.path(x)], 1)


def densenet(depths: Sequence[int], growth: int = 32, classes: int = 1000) -> nn.Module:
    """DenseNet-121 is [6, 12, 24, 16]."""
    channels = 2 * growth
    parts: list[nn.Module] = [
        nn.Conv2d(3, channels, 7, 2, 3, bias=False), nn.BatchNorm2d(channels), nn.ReLU(), nn.MaxPool2d(3, 2, 1)
    ]  # fmt: skip
    for stage, depth in enumerate(depths):
        for _ in range(depth):
            parts.append(Dense(channels, growth))
            channels += growth
        parts += [nn.BatchNorm2d(channels), nn.ReLU()]
        if stage + 1 < len(depths):
            parts += [nn.Conv2d(channels, channels // 2, 1, bias=False), nn.AvgPool2d(2)]
            channels //= 2
    return nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes))
