"""The two networks in torch. Both take [N, 3, side, side] float32 and are exported with the batch left open."""

import onnx
import torch
from onnx import numpy_helper
from pictures import CLASSIFIER_SIDE, DETECTOR_SIDE
from shapes import CLASSES
from torch import nn


def convolution(inputs, outputs, kernel=3, stride=1):
    """Convolution, batch norm and SiLU."""
    convolve = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False)
    return nn.Sequential(convolve, nn.BatchNorm2d(outputs), nn.SiLU())


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


class Classifier(nn.Module):
    """The detector's layers up to stride 16, their maxima over the picture, and a Linear layer.

    [N, 3, 64, 64], RGB less ImageNet's mean by its deviation, to logits [N, 10]. There is no batch norm: that of the
    detector is part of its exported convolutions, which this network begins with.
    """

    side = CLASSIFIER_SIDE

    def __init__(self):
        super().__init__()
        detector = Detector()
        self.features = nn.Sequential(detector.stem, detector.middle, detector.deep)
        for block in self.features.modules():
            if isinstance(block, nn.Sequential) and len(block) == 3 and isinstance(block[1], nn.BatchNorm2d):
                old = block[0]
                sizes = (old.in_channels, old.out_channels, old.kernel_size, old.stride, old.padding)
                block[0], block[1] = nn.Conv2d(*sizes), nn.Identity()
        self.head = nn.Sequential(nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.Linear(96, len(CLASSES)))

    @torch.no_grad()
    def begin_with(self, detector_file, mean, deviation):
        """Takes the convolutions of an exported detector; `mean` and `deviation` [3] are those of this one's input."""
        graph = onnx.load(detector_file).graph
        constants = {each.name: numpy_helper.to_array(each) for each in graph.initializer}
        nodes = [node for node in graph.node if node.op_type == "Conv"]  # in the order in which the network runs them
        ours = [module for module in self.features.modules() if isinstance(module, nn.Conv2d)]
        for module, node in zip(ours, nodes, strict=False):
            for parameter, name in zip((module.weight, module.bias), node.input[1:], strict=True):
                assert tuple(parameter.shape) == constants[name].shape, node.name
                parameter.copy_(torch.tensor(constants[name]))
        first = ours[0]
        first.bias += (first.weight * torch.tensor(mean).reshape(1, 3, 1, 1)).sum((1, 2, 3))
        first.weight *= torch.tensor(deviation).reshape(1, 3, 1, 1)

    def forward(self, x):
        return self.head(self.features(x))
