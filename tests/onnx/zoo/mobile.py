"""Inverted residuals: MobileNet v2 and v3, EfficientNet."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from .layers import SqueezeExcite, conv_norm, even


class Inverted(nn.Module):
    """Expand, depthwise, optional squeeze-excitation, project; added to the input where the shapes agree."""

    def __init__(
        self,
        inputs: int,
        hidden: int,
        outputs: int,
        kernel: int,
        stride: int,
        act: type[nn.Module],
        squeeze: SqueezeExcite | None = None,
        eps: float = 1e-5,
    ) -> None:
        super().__init__()
        parts: list[nn.Module] = [conv_norm(inputs, hidden, act=act, eps=eps)] if hidden != inputs else []
        parts.append(conv_norm(hidden, hidden, kernel, stride, hidden, act, eps=eps))
        parts += [squeeze] if squeeze is not None else []
        parts.append(conv_norm(hidden, outputs, act=None, eps=eps))
        self.path, self.adds = nn.Sequential(*parts), inputs == outputs and stride == 1

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x [N, C, H, W]."""
        return x + self.path(x) if self.adds else self.path(x)


# expansion, channels, repeats, stride
V2 = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))


def mobilenet_v2(
    stages: Sequence[tuple[int, int, int, int]] = V2, width: float = 1.0, classes: int = 1000
) -> nn.Module:
    """MobileNet v2: ReLU6."""
    channels, last = even(32 * width), even(1280 * max(width, 1.0)) if width >= 1 else 64
    parts: list[nn.Module] = [conv_norm(3, channels, 3, 2, act=nn.ReLU6)]
    for expansion, outputs, repeats, stride in stages:
        for index in range(repeats):
            out = even(outputs * width)
            parts.append(Inverted(channels, channels * expansion, out, 3, stride if index == 0 else 1, nn.ReLU6))
            channels = out
    parts += [conv_norm(channels, last, act=nn.ReLU6), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(last, classes)]
    return nn.Sequential(*parts)


# kernel, hidden, channels, squeeze-excitation, hard swish, stride
V3 = (
    (3, 16, 16, False, False, 1), (3, 64, 24, False, False, 2), (3, 72, 24, False, False, 1),
    (5, 72, 40, True, False, 2), (5, 120, 40, True, False, 1), (5, 120, 40, True, False, 1),
    (3, 240, 80, False, True, 2), (3, 200, 80, False, True, 1), (3, 184, 80, False, True, 1),
    (3, 184, 80, False, True, 1), (3, 480, 112, True, True, 1), (3, 672, 112, True, True, 1),
    (5, 672, 160, True, True, 2), (5, 960, 160, True, True, 1), (5, 960, 160, True, True, 1),
)  # fmt: skip


def mobilenet_v3(
    blocks: Sequence[tuple[int, int, int, bool, bool, int]] = V3, last: int = 1280, classes: int = 1000
) -> nn.Module:
    """MobileNet v3, large: hard swish, squeeze-excitation with a hard sigmoid."""
    parts: list[nn.Module] = [conv_norm(3, 16, 3, 2, act=nn.Hardswish, eps=1e-3)]
    channels = 16
    for kernel, hidden, outputs, squeezes, swish, stride in blocks:
        squeeze = SqueezeExcite(hidden, even(hidden / 4), nn.ReLU, nn.Hardsigmoid) if squeezes else None
        act = nn.Hardswish if swish else nn.ReLU
        parts.append(Inverted(channels, hidden, outputs, kernel, stride, act, squeeze, 1e-3))
        channels = outputs
    parts += [conv_norm(channels, 6 * channels, act=nn.Hardswish, eps=1e-3), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    parts += [nn.Linear(6 * channels, last), nn.Hardswish(), nn.Linear(last, classes)]
    return nn.Sequential(*parts)


# expansion, channels, repeats, stride, kernel
B0 = (
    (1, 16, 1, 1, 3), (6, 24, 2, 2, 3), (6, 40, 2, 2, 5), (6, 80, 3, 2, 3), (6, 112, 3, 1, 5), (6, 192, 4, 2, 5),
    (6, 320, 1, 1, 3),
)  # fmt: skip


def efficientnet(
    stages: Sequence[tuple[int, int, int, int, int]] = B0, last: int = 1280, classes: int = 1000
) -> nn.Module:
    """EfficientNet: SiLU, squeeze-excitation by a quarter of a block's input channels."""
    parts: list[nn.Module] = [conv_norm(3, 32, 3, 2, act=nn.SiLU)]
    channels = 32
    for expansion, outputs, repeats, stride, kernel in stages:
        for index in range(repeats):
            hidden = channels * expansion
            squeeze = SqueezeExcite(hidden, max(channels // 4, 4), nn.SiLU, nn.Sigmoid)
            parts.append(Inverted(channels, hidden, outputs, kernel, stride if index == 0 else 1, nn.SiLU, squeeze))
            channels = outputs
    parts += [conv_norm(channels, last, act=nn.SiLU), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(last, classes)]
    return nn.Sequential(*parts)
