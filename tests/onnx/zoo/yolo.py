"""Detectors of the YOLO kind: v5 with anchors, v8 without."""

from __future__ import annotations

import torch
from torch import nn

from .layers import conv_norm


def cbs(inputs: int, outputs: int, kernel: int = 1, stride: int = 1) -> nn.Sequential:
    """Conv, BatchNorm, SiLU."""
    return conv_norm(inputs, outputs, kernel, stride, act=nn.SiLU, eps=1e-3)


class Bottleneck(nn.Module):
    """Two convolutions, added to their input where wanted."""

    def __init__(self, channels: int, first: int, adds: bool) -> None:
        super().__init__()
        self.path, self.adds = nn.Sequential(cbs(channels, channels, first), cbs(channels, channels, 3)), adds

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x [N, C, H, W]."""
        return x + self.path(x) if self.adds else self.path(x)


class C3(nn.Module):
    """v5's block: bottlenecks in one of two halves."""

    def __init__(self, inputs: int, outputs: int, depth: int, adds: bool = True) -> None:
        super().__init__()
        half = outputs // 2
        self.left = nn.Sequential(cbs(inputs, half), *(Bottleneck(half, 1, adds) for _ in range(depth)))
        self.right, self.last = cbs(inputs, half), cbs(outputs, outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x [N, C, H, W]."""
        return self.last(torch.cat([self.left(x), self.right(x)], 1))


class C2f(nn.Module):
    """v8's block: every bottleneck's result is kept."""

    def __init__(self, inputs: int, outputs: int, depth: int, adds: bool = True) -> None:
        super().__init__()
        self.half = outputs // 2
        self.first, self.last = cbs(inputs, outputs), cbs((2 + depth) * self.half, outputs)
        self.blocks = nn.ModuleList(Bottleneck(self.half, 3, adds) for _ in range(depth))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x [N, C, H, W]."""
        parts = list(self.first(x).split((self.half, self.half), 1))
        for block in self.blocks:
            parts.append(block(parts[-1]))
        return self.last(torch.cat(parts, 1))


class Sppf(nn.Module):
    """The same max pool three times, all results side by side."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first, self.last = cbs(channels, channels // 2), cbs(2 * channels, channels)
        self.pool = nn.MaxPool2d(5, 1, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x [N, C, H, W]."""
        parts = [self.first(x)]
        for _ in range(3):
            parts.append(self.pool(parts[-1]))
        return self.last(torch.cat(parts, 1))


class Pyramid(nn.Module):
    """Backbone and path aggregation: features of strides 8, 16 and 32."""

    def __init__(self, version: int, width: int, depth: int) -> None:
        super().__init__()
        block = C3 if version == 5 else C2f
        w = [width * 2**i for i in range(5)]
        self.stem = nn.Sequential(cbs(3, w[0], 6 if version == 5 else 3, 2), cbs(w[0], w[1], 3, 2))
        if version == 5:
            self.stem[0][0].padding = (2, 2)
        self.stages = nn.ModuleList(
            nn.Sequential(block(w[i], w[i], (depth, 2 * depth, 3 * depth)[i - 1]), cbs(w[i], w[i + 1], 3, 2))
            for i in (1, 2, 3)
        )
        self.top = nn.Sequential(block(w[4], w[4], depth), Sppf(w[4]))
        self.up = nn.Upsample(scale_factor=2, mode="nearest")
        self.narrow = nn.ModuleList([cbs(w[4], w[3]), cbs(w[3], w[2])]) if version == 5 else None
        extra = (w[3], w[2]) if version == 5 else (w[4], w[3])
        self.merge = nn.ModuleList(
            [block(w[3] + extra[0], w[3], depth, False), block(w[2] + extra[1], w[2], depth, False)]
        )
        self.down = nn.ModuleList([cbs(w[2], w[2], 3, 2), cbs(w[3], w[3], 3, 2)])
        below = (w[2], w[3]) if version == 5 else (w[3], w[4])
        self.join = nn.ModuleList(
            [block(w[2] + below[0], w[3], depth, False), block(w[3] + below[1], w[4], depth, False)]
        )
        self.channels = w[2:]

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        """Three maps of an image [N, 3, H, W]; H and W are multiples of 32."""
        x = self.stem(x)
        kept = []
        for stage in self.stages:
            kept.append(stage[0](x))
            x = stage[1](kept[-1])
        x = self.top(x)
        sides = []
        for i in (0, 1):
            x = self.narrow[i](x) if self.narrow is not None else x
            sides.append(x)
            x = self.merge[i](torch.cat([self.up(x), kept[2 - i]], 1))
        maps = [x]
        for i in (0, 1):
            maps.append(self.join[i](torch.cat([self.down[i](maps[-1]), sides[1 - i]], 1)))
        return maps


class Yolo5(nn.Module):
    """Per stride [N, 3, H / stride, W / stride, 5 + classes], after the sigmoid, as the vendor's clipped model."""

    def __init__(self, width: int, depth: int, classes: int) -> None:
        super().__init__()
        self.body, self.numbers = Pyramid(5, width, depth), 5 + classes
        self.heads = nn.ModuleList(nn.Conv2d(channels, 3 * self.numbers, 1) for channels in self.body.channels)

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        """x [N, 3, H, W]."""
        found = []
        for head, features in zip(self.heads, self.body(x), strict=True):
            y = head(features)
            n, _, h, w = y.shape
            found.append(torch.sigmoid(y.view(n, 3, self.numbers, h, w).permute(0, 1, 3, 4, 2)))
        return found


class Yolo8(nn.Module):
    """Output [N, 4 + classes, anchors]: boxes by expectation over 16 bins, and the classes' sigmoids."""

    def __init__(self, body: nn.Module, classes: int) -> None:
        super().__init__()
        self.body, self.classes = body, classes
        sides = self.body.channels
        box, kind = max(16, sides[0] // 4, 64), max(sides[0], min(classes, 100))
        self.boxes = nn.ModuleList(
            nn.Sequential(cbs(c, box, 3), cbs(box, box, 3), nn.Conv2d(box, 64, 1)) for c in sides
        )
        self.kinds = nn.ModuleList(
            nn.Sequential(cbs(c, kind, 3), cbs(kind, kind, 3), nn.Conv2d(kind, classes, 1)) for c in sides
        )
        self.bins = nn.Conv2d(16, 1, 1, bias=False)
        self.bins.weight.data[:] = torch.arange(16.0).view(1, 16, 1, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x [N, 3, H, W]."""
        maps = self.body(x)
        rows = [
            torch.cat([box(m), kind(m)], 1).flatten(2)
            for box, kind, m in zip(self.boxes, self.kinds, maps, strict=True)
        ]
        distances, kinds = torch.cat(rows, 2).split((64, self.classes), 1)
        n, _, anchors = distances.shape
        sides = self.bins(distances.view(n, 4, 16, anchors).transpose(2, 1).softmax(1)).view(n, 4, anchors)
        points, strides = self._anchors(maps)
        low, high = points - sides[:, :2], points + sides[:, 2:]
        return torch.cat([torch.cat([(low + high) / 2, high - low], 1) * strides, torch.sigmoid(kinds)], 1)

    @staticmethod
    def _anchors(maps: list[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        points, strides = [], []
        for stride, features in zip((8, 16, 32), maps, strict=True):
            h, w = int(features.shape[2]), int(features.shape[3])
            y, x = torch.meshgrid(torch.arange(h) + 0.5, torch.arange(w) + 0.5, indexing="ij")
            points.append(torch.stack([x, y]).view(1, 2, -1))
            strides.append(torch.full((1, 1, h * w), float(stride)))
        return torch.cat(points, 2).to(maps[0].dtype), torch.cat(strides, 2).to(maps[0].dtype)


def yolov5(width: int = 32, depth: int = 1, classes: int = 80) -> nn.Module:
    """YOLOv5s has width 32 and depth 1."""
    return Yolo5(width, depth, classes)


def yolov8(width: int = 32, depth: int = 1, classes: int = 80) -> nn.Module:
    """YOLOv8s has width 32 and depth 1."""
    return Yolo8(Pyramid(8, width, depth), classes)
