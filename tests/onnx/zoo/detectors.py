"""Detectors of later YOLO kinds, of the blocks that set each apart: small enough for each run of the tests."""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
from torch import nn

from .layers import conv_norm
from .yolo import C3, Bottleneck, Sppf, Yolo8, cbs

Block = Callable[[int, int], nn.Module]


class Body(nn.Module):
    """Backbone and path aggregation, as `Pyramid`, of any blocks: features of strides 8, 16 and 32."""

    def __init__(
        self,
        width: int,
        block: Block,
        down: Block | None = None,
        top: nn.Module | None = None,
        stem: Block | None = None,
    ) -> None:
        super().__init__()
        w = [width * 2**i for i in range(5)]
        down = down or (lambda inputs, outputs: cbs(inputs, outputs, 3, 2))
        self.stem = nn.Sequential(stem(3, w[0]) if stem else cbs(3, w[0], 3, 2), cbs(w[0], w[1], 3, 2))
        self.stages = nn.ModuleList(nn.Sequential(block(w[i], w[i]), down(w[i], w[i + 1])) for i in (1, 2, 3))
        self.top, self.up = top or Sppf(w[4]), nn.Upsample(scale_factor=2, mode="nearest")
        self.merge = nn.ModuleList([block(w[4] + w[3], w[3]), block(w[3] + w[2], w[2])])
        self.down = nn.ModuleList([down(w[2], w[2]), down(w[3], w[3])])
        self.join = nn.ModuleList([block(w[2] + w[3], w[3]), block(w[3] + w[4], w[4])])
        self.channels = w[2:]

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        """Three maps of an image [N, 3, H, W]; H and W are multiples of 32."""
        x, kept = self.stem(x), []
        for stage in self.stages:
            kept.append(stage[0](x))
            x = stage[1](kept[-1])
        x = self.top(x)
        middle = self.merge[0](torch.cat([self.up(x), kept[2]], 1))
        maps = [self.merge[1](torch.cat([self.up(middle), kept[1]], 1))]
        for i, side in enumerate((middle, x)):
            maps.append(self.join[i](torch.cat([self.down[i](maps[-1]), side], 1)))
        return maps


class Anchored(nn.Module):
    """Output [N, boxes, numbers]: v5's and v7's boxes of three anchors, decoded; with faces also five points each."""

    def __init__(self, body: Body, numbers: int, faces: bool = False) -> None:
        super().__init__()
        self.body, self.numbers, self.faces = body, numbers, faces
        self.heads = nn.ModuleList(nn.Conv2d(channels, 3 * numbers, 1) for channels in body.channels)
        self.anchors = torch.tensor([10.0, 13, 16, 30, 33, 23, 30, 61, 62, 45, 59, 119, 116, 90, 156, 198, 373, 326])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x [N, 3, H, W]."""
        found = []
        for i, (head, features) in enumerate(zip(self.heads, self.body(x), strict=True)):
            (n, _, h, w), stride = features.shape, 8 * 2**i
            y = head(features).view(n, 3, self.numbers, h, w).permute(0, 1, 3, 4, 2)
            anchors = self.anchors.to(y.dtype).view(3, 1, 3, 1, 1, 2)[i]
            rows, cols = torch.meshgrid(torch.arange(h), torch.arange(w), indexing="ij")
            grid = torch.stack([cols, rows], -1).view(1, 1, h, w, 2).to(y.dtype)
            xy, wh = torch.sigmoid(y[..., :2]) * 2 - 0.5 + grid, (torch.sigmoid(y[..., 2:4]) * 2) ** 2
            parts = [xy * stride, wh * anchors, torch.sigmoid(y[..., 4:5])]
            if self.faces:
                pairs = y[..., 5:15].view(n, 3, h, w, 5, 2) * anchors[..., None, :] + grid[..., None, :] * stride
                parts.append(pairs.flatten(4))
            parts.append(torch.sigmoid(y[..., 15 if self.faces else 5 :]))
            found.append(torch.cat(parts, -1).view(n, -1, self.numbers))
        return torch.cat(found, 1)


class Elan(nn.Module):
    """v7's block: every second convolution of a chain is kept."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        half = outputs // 2
        self.first, self.second = cbs(inputs, half), cbs(inputs, half)
        self.chain = nn.ModuleList(nn.Sequential(cbs(half, half, 3), cbs(half, half, 3)) for _ in range(2))
        self.last = cbs(4 * half, outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x [N, C, H, W]."""
        parts = [self.first(x), self.second(x)]
        for link in self.chain:
            parts.append(link(parts[-1]))
        return self.last(torch.cat(parts[::-1], 1))


class Halved(nn.Module):
    """v7's downsampling: half of the channels by a pool, half by a convolution; v9 shares the channels out first."""

    def __init__(self, inputs: int, outputs: int, shared: bool = False) -> None:
        super().__init__()
        self.shared, each = shared, inputs // 2 if shared else inputs
        self.mean = nn.AvgPool2d(2, 1) if shared else nn.Identity()
        self.pooled = nn.Sequential(nn.MaxPool2d(3, 2, 1) if shared else nn.MaxPool2d(2, 2), cbs(each, outputs // 2))
        self.strided = cbs(each, outputs // 2, 3, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x [N, C, H, W]."""
        left, right = self.mean(x).chunk(2, 1) if self.shared else (x, x)
        return torch.cat([self.strided(left), self.pooled(right)], 1)


class SppCsp(nn.Module):
    """v7's pools of three sizes, beside a convolution."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.left, self.right = (
            nn.Sequential(cbs(channels, channels), cbs(channels, channels, 3)),
            cbs(channels, channels),
        )
        self.pools = nn.ModuleList(nn.MaxPool2d(k, 1, k // 2) for k in (5, 9, 13))
        self.middle = nn.Sequential(cbs(4 * channels, channels), cbs(channels, channels, 3))
        self.last = cbs(2 * channels, channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x [N, C, H, W]."""
        y = self.left(x)
        y = torch.cat([y, *(pool(y) for pool in self.pools)], 1)
        return self.last(torch.cat([self.middle(y), self.right(x)], 1))


class RepElan(nn.Module):
    """v9's block: parts that go through bottlenecks of two convolutions side by side."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        half = outputs // 2
        self.first, self.last = cbs(inputs, outputs), cbs(4 * half, outputs)
        self.chain = nn.ModuleList(nn.Sequential(C3(half, half, 1), cbs(half, half, 3)) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x [N, C, H, W]."""
        parts = list(self.first(x).chunk(2, 1))
        for link in self.chain:
            parts.append(link(parts[-1]))
        return self.last(torch.cat(parts, 1))


class Focus(nn.Module):
    """X's first layer: every second pixel of both axes as a channel."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.conv = cbs(4 * inputs, outputs, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x [N, C, H, W]."""
        return self.conv(torch.cat([x[..., i::2, j::2] for j in (0, 1) for i in (0, 1)], 1))


class YoloX(nn.Module):
    """Output [N, places, 5 + classes]: boxes relative to their place, and sigmoids."""

    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        self.body = Body(width, lambda inputs, outputs: C3(inputs, outputs, 1), stem=Focus)
        c = self.body.channels
        self.stems = nn.ModuleList(cbs(each, width) for each in c)
        self.kinds = nn.ModuleList(nn.Sequential(cbs(width, width, 3), nn.Conv2d(width, classes, 1)) for _ in c)
        self.boxes = nn.ModuleList(cbs(width, width, 3) for _ in c)
        self.sides = nn.ModuleList(nn.Conv2d(width, 4, 1) for _ in c)
        self.things = nn.ModuleList(nn.Conv2d(width, 1, 1) for _ in c)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x [N, 3, H, W]."""
        found = []
        for i, features in enumerate(self.body(x)):
            y = self.stems[i](features)
            box = self.boxes[i](y)
            parts = [self.sides[i](box), self.things[i](box).sigmoid(), self.kinds[i](y).sigmoid()]
            found.append(torch.cat(parts, 1).flatten(2))
        return torch.cat(found, 2).permute(0, 2, 1)


class Attention(nn.Module):
    """Over the places of a map, or of each of `areas` strips of it; values also go through a depthwise convolution."""

    def __init__(self, channels: int, heads: int, areas: int = 1, short_keys: bool = False) -> None:
        super().__init__()
        self.heads, self.areas, self.size = heads, areas, channels // heads
        self.keys = self.size // 2 if short_keys else self.size
        self.qkv = conv_norm(channels, heads * (2 * self.keys + self.size), act=None)
        self.places = conv_norm(channels, channels, 3, groups=channels, act=None)
        self.last = conv_norm(channels, channels, act=None)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x [N, C, H, W]."""
        n, c, h, w = x.shape
        strips = self.qkv(x).flatten(2).transpose(1, 2).reshape(n * self.areas, h * w // self.areas, -1)
        heads = strips.view(*strips.shape[:2], self.heads, -1).permute(0, 2, 3, 1)
        q, k, v = heads.split([self.keys, self.keys, self.size], 2)
        y = v @ ((q.transpose(-2, -1) * self.keys**-0.5) @ k).softmax(-1).transpose(-2, -1)
        y, v = (part.permute(0, 3, 1, 2).reshape(n, h, w, c).permute(0, 3, 1, 2) for part in (y, v))
        return self.last(y + self.places(v))


class Attentive(nn.Module):
    """Attention and an MLP of 1x1 convolutions, each added to what it reads."""

    def __init__(self, channels: int, heads: int, areas: int = 1, short_keys: bool = False) -> None:
        super().__init__()
        self.attention = Attention(channels, heads, areas, short_keys)
        self.mlp = nn.Sequential(cbs(channels, 2 * channels), conv_norm(2 * channels, channels, act=None))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x [N, C, H, W]."""
        return (x := x + self.attention(x)) + self.mlp(x)


class Psa(nn.Module):
    """v10's and 11's top: half of the channels attend."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        half = channels // 2
        self.first, self.last = nn.Sequential(Sppf(channels), cbs(channels, channels)), cbs(channels, channels)
        self.blocks = Attentive(half, max(1, half // 32), short_keys=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x [N, C, H, W]."""
        left, right = self.first(x).chunk(2, 1)
        return self.last(torch.cat([left, self.blocks(right)], 1))


class Cib(nn.Module):
    """v10's block: depthwise convolutions between pointwise ones, in one part of C2f."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        half = outputs // 2
        self.first, self.last = cbs(inputs, outputs), cbs(3 * half, outputs)
        deep = functools.partial(conv_norm, act=nn.SiLU)
        first, last = deep(half, half, 3, groups=half), deep(half, half, 3, groups=half)
        wide = deep(outputs, outputs, 7, groups=outputs)
        self.path = nn.Sequential(first, cbs(half, outputs), wide, cbs(outputs, half), last)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x [N, C, H, W]."""
        left, right = self.first(x).chunk(2, 1)
        return self.last(torch.cat([left, right, right + self.path(right)], 1))


class Areas(nn.Module):
    """12's block: attention of strips, in what goes on through it."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        half = outputs // 2
        self.first, self.last = cbs(inputs, half), cbs(3 * half, outputs)
        self.blocks = nn.ModuleList([Attentive(half, max(1, half // 16), areas=4), Bottleneck(half, 3, True)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x [N, C, H, W]; H * W is a multiple of 4."""
        parts = [self.first(x)]
        for block in self.blocks:
            parts.append(block(parts[-1]))
        return self.last(torch.cat(parts, 1))


class Best(nn.Module):
    """The `most` best of a detector's boxes, [N, most, 6]: sides, score, class."""

    def __init__(self, detector: nn.Module, most: int) -> None:
        super().__init__()
        self.detector, self.most = detector, most

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x [N, 3, H, W]."""
        boxes, scores = self.detector(x).transpose(1, 2).split([4, self.detector.classes], -1)
        low, size = boxes[..., :2], boxes[..., 2:] / 2
        boxes = torch.cat([low - size, low + size], -1)
        index = scores.amax(-1).topk(self.most)[1].unsqueeze(-1)
        boxes = boxes.gather(1, index.repeat(1, 1, 4))
        scores, chosen = scores.gather(1, index.repeat(1, 1, scores.shape[-1])).flatten(1).topk(self.most)
        rows, kind = torch.arange(scores.shape[0])[:, None], chosen % self.detector.classes
        box = boxes[rows, chosen // self.detector.classes]
        return torch.cat([box, scores[..., None], kind[..., None].to(box.dtype)], -1)


DETECTORS = {
    "yolov5_face": lambda width: Anchored(Body(width, lambda i, o: C3(i, o, 1)), 16, faces=True),
    "yolov7": lambda width: Anchored(Body(width, Elan, Halved, SppCsp(16 * width)), 8),
    "yolov9": lambda width: Yolo8(Body(width, RepElan, lambda i, o: Halved(i, o, shared=True)), 3),
    "yolox": lambda width: YoloX(width, 3),
    "yolov10": lambda width: Best(Yolo8(Body(width, Cib, top=Psa(16 * width)), 3), 12),
    "yolo12": lambda width: Yolo8(Body(width, Areas), 3),
}
