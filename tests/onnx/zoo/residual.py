"""ResNet, its dilated form, and RegNet."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from .layers import SqueezeExcite, classifier, conv_norm


class Residual(nn.Module):
    """relu(path(x) + shortcut(x))."""

    def __init__(self, path: nn.Module, shortcut: nn.Module) -> None:
        super().__init__()
        self.path, self.shortcut = path, shortcut

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x [N, C, H, W]."""
        return torch.relu(self.path(x) + self.shortcut(x))


def _shortcut(inputs: int, outputs: int, stride: int) -> nn.Module:
    return nn.Identity() if inputs == outputs and stride == 1 else conv_norm(inputs, outputs, 1, stride, act=None)


def basic_block(inputs: int, outputs: int, stride: int, dilation: int) -> Residual:
    """Two 3x3 convolutions."""
    path = nn.Sequential(conv_norm(inputs, outputs, 3, stride), conv_norm(outputs, outputs, 3, act=None))
    return Residual(path, _shortcut(inputs, outputs, stride))


def bottleneck(inputs: int, outputs: int, stride: int, dilation: int) -> Residual:
    """1x1, 3x3 and 1x1 convolutions; the middle has a quarter of the channels."""
    hidden = outputs // 4
    path = nn.Sequential(
        conv_norm(inputs, hidden),
        conv_norm(hidden, hidden, 3, stride, dilation=dilation),
        conv_norm(hidden, outputs, act=None),
    )
    return Residual(path, _shortcut(inputs, outputs, stride))


def trunk(block: str, depths: Sequence[int], width: int, dilated: bool = False) -> tuple[nn.Sequential, int]:
    """Stem and four stages, and how many channels they give; dilated: the last two stages keep the resolution."""
    stages: list[nn.Module] = [conv_norm(3, width, 7, 2), nn.MaxPool2d(3, 2, 1)]
    make, growth = (basic_block, 1) if block == "basic" else (bottleneck, 4)
    channels = width
    for stage, depth in enumerate(depths):
        outputs = width * growth * 2**stage
        for index in range(depth):
            keeps = dilated and stage >= 2
            stride = 2 if index == 0 and stage > 0 and not keeps else 1
            stages.append(make(channels, outputs, stride, 2 ** (stage - 1) if keeps else 1))
            channels = outputs
    return nn.Sequential(*stages), channels


def resnet(block: str, depths: Sequence[int], width: int = 64, classes: int = 1000) -> nn.Module:
    """ResNet-18 is ("basic", [2, 2, 2, 2]), ResNet-50 ("bottleneck", [3, 4, 6, 3])."""
    body, channels = trunk(block, depths, width)
    return nn.Sequential(body, classifier(channels, classes))


def regnet_y(depths: Sequence[int], widths: Sequence[int], group: int, classes: int = 1000) -> nn.Module:
    """RegNetY: bottlenecks of full width with grouped 3x3 convolutions and squeeze-excitation."""
    blocks: list[nn.Module] = [conv_norm(3, 32, 3, 2)]
    channels = 32
    for depth, width in zip(depths, widths, strict=True):
        for index in range(depth):
            stride = 2 if index == 0 else 1
            path = nn.Sequential(
                conv_norm(channels, width),
                conv_norm(width, width, 3, stride, width // group),
                SqueezeExcite(width, max(channels // 4, 4), nn.ReLU, nn.Sigmoid),
                conv_norm(width, width, act=None),
            )
            blocks.append(Residual(path, _shortcut(channels, width, stride)))
            channels = width
    return nn.Sequential(*blocks, classifier(channels, classes))


class DeepLab(nn.Module):
    """DeepLabV3: a dilated ResNet, atrous pyramid pooling and logits at the size of the image."""

    def __init__(self, depths: Sequence[int], width: int, hidden: int, classes: int) -> None:
        super().__init__()
        self.body, channels = trunk("bottleneck", depths, width, dilated=True)
        self.branches = nn.ModuleList(
            [conv_norm(channels, hidden), *(conv_norm(channels, hidden, 3, dilation=rate) for rate in (12, 24, 36))]
        )
        self.pooled = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(channels, hidden, 1), nn.ReLU())
        self.project = conv_norm(5 * hidden, hidden)
        self.head = nn.Sequential(conv_norm(hidden, hidden, 3), nn.Conv2d(hidden, classes, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits [N, classes, H, W] of an image [N, 3, H, W]."""
        features = self.body(x)
        size = features.shape[-2:]
        pooled = nn.functional.interpolate(self.pooled(features), size=size, mode="bilinear", align_corners=False)
        joined = torch.cat([*(branch(features) for branch in self.branches), pooled], 1)
        logits = self.head(self.project(joined))
        return nn.functional.interpolate(logits, size=x.shape[-2:], mode="bilinear", align_corners=False)


def deeplab(depths: Sequence[int], width: int = 64, hidden: int = 256, classes: int = 21) -> nn.Module:
    """DeepLabV3 over a ResNet of bottlenecks."""
    return DeepLab(depths, width, hidden, classes)
