"""RoiAlign: boxes whose places the network computes, their number fixed."""

from __future__ import annotations

import math

import numpy as np

from ..emit import Tensor, is_integer
from ..table import Call, Operand, lowers
from .elementwise import binary, number, unary
from .gather import gather
from .integers import kind_of, to_floats
from .matmul import product
from .microsoft import plain
from .reduce import reduced
from .sampling import by_axis, sampled, within
from .shape import strided


@lowers("RoiAlign")
def roi_align(call: Call) -> Tensor:
    """The mean of samples is a product with the weights of rows, then of columns: both axes count by themselves."""
    x, rois = call.floats(0), call.floats(1)
    if len(x.shape) != 4 or len(rois.shape) != 2 or rois.shape[1] != 4:
        raise call.node.unsupported(f"boxes {list(rois.shape)} in an input {list(x.shape)}")
    image, count = _images(call, rois.shape[0]), call.places(rois.shape[0])
    (batch, channels, height, width), mode = x.shape, call.attr("mode", "avg")
    sizes = [call.int_attr(f"output_{name}", 1) for name in ("height", "width")]
    if min(sizes) < 1 or mode not in ("avg", "max"):
        raise call.node.unsupported(f"mode {mode!r:.40} with a result of {sizes}")
    axes = [_Samples(call, rois, axis, size, out) for axis, size, out in ((1, height, sizes[0]), (0, width, sizes[1]))]
    if mode == "max":
        return _largest(call, x, image, axes)
    own = x if batch == 1 else gather(plain(call, "Gather", [x, image], axis=0))
    rows = call.reshape(own, (own.shape[0], channels * height, width))
    columns = product(call, rows, call.transpose(axes[1].shares(), (0, 2, 1)))
    shares = call.reshape(axes[0].shares(), (count, 1, sizes[0], height))
    return product(call, shares, call.reshape(columns, (count, channels, height, sizes[1])))


def _images(call: Call, count: int) -> Operand:
    """Of each box, which image of the batch it lies in."""
    image = call.operand(2)
    if tuple(image.shape) != (count,) or not is_integer(kind_of(image)):
        raise call.node.unsupported(f"batch_indices {list(image.shape)}, expected {count} integers")
    return image


class _Samples:
    """The samples of boxes along one axis, `most` of them in each of `out` parts."""

    def __init__(self, call: Call, rois: Tensor, column: int, size: int, out: int) -> None:
        self.call, self.size, self.out, self.boxes = call, size, out, rois.shape[0]
        default = "half_pixel" if call.node.opset >= 16 else "output_half_pixel"
        mode = call.attr("coordinate_transformation_mode", default)
        if mode not in ("half_pixel", "output_half_pixel"):
            raise call.node.unsupported(f"coordinate_transformation_mode {mode!r:.40}")
        scale = number(float(call.attr("spatial_scale", 1.0)))
        ends = [
            binary(call, "Mul", strided(call, rois, [0, i], [1, 1], [self.boxes, 1]), scale)
            for i in (column, column + 2)
        ]
        self.length = binary(call, "Sub", ends[1], ends[0])
        if mode == "half_pixel":
            self.start = binary(call, "Sub", ends[0], number(0.5))
        else:
            self.start, self.length = ends[0], binary(call, "Max", self.length, number(1))
        ratio = call.int_attr("sampling_ratio", 0)
        self.adaptive = ratio <= 0  # as many samples as the box has pixels, which are at most twice the image's
        self.most = -(-2 * size // out) if self.adaptive else ratio
        call.places(out * self.most)

    def places(self) -> tuple[Tensor, Tensor, Tensor | None]:
        """Places [boxes, out * most], 1 for those that count, and how many of each part do, [boxes, 1]."""
        call, part, sample = self.call, np.arange(self.out)[:, None], np.arange(self.most)
        counts = None
        if self.adaptive:
            counts = unary(call, "Ceil", binary(call, "Div", self.length, number(self.out)))
            counts = binary(call, "Max", binary(call, "Min", counts, number(self.most)), number(1))
            flat = np.broadcast_to(sample + 0.5, (self.out, self.most)).reshape(1, -1).astype(np.float32)
            along = binary(call, "Div", flat, counts)
            along = binary(call, "Add", along, np.repeat(part.reshape(-1), self.most).astype(np.float32))
            along = binary(call, "Mul", along, number(1 / self.out))
        else:
            share = (part + (sample + 0.5) / self.most) / self.out
            along = call.as_tensor(share.reshape(1, -1).astype(np.float32))
        at = binary(call, "Add", binary(call, "Mul", along, self.length), self.start)
        outside = binary(
            call, "Max", *(binary(call, "Less", *pair) for pair in ((at, number(-1)), (number(self.size), at)))
        )
        counted = unary(call, "Relu", binary(call, "Sub", number(1), outside))
        if counts is not None:
            first = np.broadcast_to(sample, (self.out, self.most)).reshape(1, -1).astype(np.float32)
            counted = binary(call, "Mul", counted, binary(call, "Less", first, counts))
            counted = binary(call, "Mul", counted, binary(call, "Less", number(0), self.length))
        at = binary(call, "Min", binary(call, "Max", at, number(0)), number(self.size - 1))
        return at, counted, counts

    def shares(self) -> Tensor:
        """How much of each element goes into each result: [boxes, out, size]."""
        call = self.call
        at, counted, counts = self.places()
        shape = (self.boxes, self.out, self.most)
        near = binary(call, "Sub", call.reshape(at, (*shape, 1)), np.arange(self.size, dtype=np.float32))
        near = unary(call, "Relu", binary(call, "Sub", number(1), unary(call, "Abs", near)))
        near = binary(call, "Mul", near, call.reshape(counted, (*shape, 1)))
        total = reduced(call, "ReduceSum", near, [2], False)
        if counts is None:
            return binary(call, "Mul", total, number(1 / self.most))
        return binary(call, "Div", total, call.reshape(counts, (self.boxes, 1, 1)))


def _largest(call: Call, x: Tensor, image: Operand, axes: list[_Samples]) -> Tensor:
    """The largest share of a pixel in any sample, as onnxruntime has it."""
    if axes[0].adaptive:
        raise call.node.unsupported("mode 'max' with as many samples as a box has pixels; set sampling_ratio")
    (batch, channels, height, width), boxes = x.shape, axes[0].boxes
    places, counted = zip(*(axis.places()[:2] for axis in axes), strict=True)
    # The images of a batch lie below each other, as one.
    below = to_floats(call, call.as_tensor(image)) if isinstance(image, Tensor) else np.asarray(image, np.float32)
    below = call.reshape(binary(call, "Mul", below, number(height)), (boxes, 1))
    tall = call.reshape(call.transpose(x, (1, 0, 2, 3)), (1, channels, batch * height, width))
    rows = binary(call, "Add", places[0], below)
    counts = [part.shape[1] for part in places]
    grid = (boxes, *counts)
    split = [
        call.op("Expand", [call.reshape(part, shape)], grid)
        for part, shape in ((places[1], (boxes, 1, counts[1])), (rows, (boxes, counts[0], 1)))
    ]
    at = call.op(
        "Concat", [call.reshape(part, (1, 1, math.prod(grid))) for part in split], (2, 1, math.prod(grid)), {"axis": 0}
    )
    y = sampled(call, tall, within(call, at, by_axis([batch * height, width])), False, combine="Max")
    y = call.reshape(y, (channels, *grid))
    shown = binary(
        call, "Mul", call.reshape(counted[0], (boxes, counts[0], 1)), call.reshape(counted[1], (boxes, 1, counts[1]))
    )
    y = binary(call, "Mul", y, shown)
    parts = [(axis.out, axis.most) for axis in axes]
    y = call.reshape(y, (channels, boxes, *parts[0], *parts[1]))
    return call.transpose(reduced(call, "ReduceMax", y, [3, 5], False), (1, 0, 2, 3))
