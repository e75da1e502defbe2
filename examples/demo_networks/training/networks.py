"""The two networks in torch. Both take [N, 3, side, side] float32 and are exported with the batch left open."""

import torch
from pictures import CLASSIFIER_SIDE, DETECTOR_SIDE
from shapes import CLASSES
from torch import nn


def convolution(inputs, outputs, kernel=3, stride=1, activation=nn.SiLU):
    """Convolution and batch norm, then `activation` unless that is None."""
    layers = [nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False), nn.BatchNorm2d(outputs)]
    return nn.Sequential(*layers, *([activation()] if activation else []))


class Residual(nn.Module):
    """relu(two 3x3 convolutions + the input), as in ResNet."""

    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.first = convolution(inputs, outputs, 3, stride, nn.ReLU)
        self.second = convolution(outputs, outputs, 3, 1, None)
        self.shortcut = convolution(inputs, outputs, 1, stride, None)

    def forward(self, x):
        return torch.relu(self.second(self.first(x)) + self.shortcut(x))


class Classifier(nn.Module):
    """A small ResNet: [N, 3, 64, 64], RGB less ImageNet's mean by its deviation, to logits [N, 10]."""

    side = CLASSIFIER_SIDE

    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            convolution(3, 24, 3, 2, nn.ReLU),
            Residual(24, 32, 1),
            Residual(32, 64, 2),
            Residual(64, 96, 2),
        )
        self.head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(96, len(CLASSES)))
        # For training only: what each of the 8x8 cells shows, a class or, last, nothing.
        self.cells = nn.Conv2d(96, len(CLASSES) + 1, 1)

    def raw(self, x):
        """Logits [N, 10] and those of the cells [N, 11, 8, 8]."""
        features = self.features(x)
        return self.head(features), self.cells(features)

    def forward(self, x):
        return self.head(self.features(x))


class Split(nn.Module):
    """A 1x1 convolution cut in two halves; one goes on through a pair of 3x3 convolutions, and all parts are joined."""

    def __init__(self, inputs, outputs, add):
        super().__init__()
        half = outputs // 2
        self.add = add
        self.enter = convolution(inputs, 2 * half, 1)
        self.pair = nn.Sequential(convolution(half, half), convolution(half, half))
        self.leave = convolution(3 * half, outputs, 1)

    def forward(self, x):
        kept, worked = self.enter(x).chunk(2, 1)
        new = self.pair(worked)
        return self.leave(torch.cat([kept, worked, worked + new if self.add else new], 1))


class PyramidPool(nn.Module):
    """The input beside its maxima over 5, 9 and 13 pixels."""

    def __init__(self, channels):
        super().__init__()
        self.enter = convolution(channels, channels // 2, 1)
        self.pool = nn.MaxPool2d(5, 1, 2)
        self.leave = convolution(2 * channels, channels, 1)

    def forward(self, x):
        parts = [self.enter(x)]
        for _ in range(3):
            parts.append(self.pool(parts[-1]))
        return self.leave(torch.cat(parts, 1))


class Head(nn.Module):
    """Of one stride: class scores before the sigmoid, and the distances from a cell's middle to the four sides."""

    def __init__(self, channels):
        super().__init__()
        self.scores = nn.Sequential(convolution(channels, channels), nn.Conv2d(channels, len(CLASSES), 1))
        self.sides = nn.Sequential(convolution(channels, channels), nn.Conv2d(channels, 4, 1), nn.Softplus())
        nn.init.constant_(self.scores[1].bias, -4.0)  # shapes are rare: begin with scores of 2 %

    def forward(self, x):
        return self.scores(x).flatten(2), self.sides(x).flatten(2)


class Detector(nn.Module):
    """A small network of the YOLO kind, without anchors: [N, 3, 160, 160], RGB from 0 to 1, to [N, 14, 500].

    Columns are the cells of stride 8 and then of stride 16; rows are x, y (the middle), width and height in pixels,
    and the ten class scores from 0 to 1, as YOLOv8's export has them.
    """

    side = DETECTOR_SIDE
    strides = (8, 16)

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(convolution(3, 16, 3, 2), convolution(16, 32, 3, 2), Split(32, 32, add=True))
        self.middle = nn.Sequential(convolution(32, 64, 3, 2), Split(64, 64, add=True))
        self.deep = nn.Sequential(convolution(64, 96, 3, 2), Split(96, 96, add=True), PyramidPool(96))
        self.up = nn.Upsample(scale_factor=2, mode="nearest")
        self.fine = Split(96 + 64, 64, add=False)
        self.down = convolution(64, 64, 3, 2)
        self.coarse = Split(64 + 96, 96, add=False)
        self.heads = nn.ModuleList([Head(64), Head(96)])
        cells, strides = [], []
        for stride in self.strides:
            middle = (torch.arange(self.side // stride) + 0.5) * stride
            y, x = torch.meshgrid(middle, middle, indexing="ij")
            cells.append(torch.stack([x.flatten(), y.flatten()]))
            strides.append(torch.full((1, len(middle) ** 2), float(stride)))
        self.register_buffer("cells", torch.cat(cells, 1), persistent=False)  # [2, 500] pixels
        self.register_buffer("cell_strides", torch.cat(strides, 1), persistent=False)  # [1, 500]

    def raw(self, x):
        """Scores [N, 10, 500] before the sigmoid, and corners [N, 4, 500] (x1, y1, x2, y2) in pixels."""
        middle = self.middle(self.stem(x))
        deep = self.deep(middle)
        fine = self.fine(torch.cat([self.up(deep), middle], 1))
        coarse = self.coarse(torch.cat([self.down(fine), deep], 1))
        scores, sides = zip(*(head(level) for head, level in zip(self.heads, (fine, coarse), strict=True)), strict=True)
        near, far = (torch.cat(sides, 2) * self.cell_strides).chunk(2, 1)
        return torch.cat(scores, 2), torch.cat([self.cells - near, self.cells + far], 1)

    def forward(self, x):
        scores, corners = self.raw(x)
        low, high = corners.chunk(2, 1)
        return torch.cat([(low + high) / 2, high - low, torch.sigmoid(scores)], 1)
