"""Col2Im: each element of the image is a sum of elements of blocks at constant places."""

from __future__ import annotations

import math

import numpy as np

from ..emit import Tensor
from ..table import Call, lowers
from .resize import MAX_TAPS
from .shape import take
from .window import Axis, of_rank, places_of


@lowers("Col2Im")
def col2im(call: Call) -> Tensor:
    x, image, block = call.floats(0), call.ints(1, "the image's shape"), call.ints(2, "the block's shape")
    rank, taps = len(image), math.prod(block)
    strides, dilations = of_rank(call, "strides", rank, 1), of_rank(call, "dilations", rank, 1)
    pads = of_rank(call, "pads", 2 * rank, 0)
    if min(*image, *block, *strides, *dilations) < 1 or len(block) != rank or len(x.shape) != 3 or x.shape[1] % taps:
        raise call.node.unsupported(f"an input {list(x.shape)} in blocks of {block} for an image of {image}")
    room = [image[i] + pads[i] + pads[i + rank] - (block[i] - 1) * dilations[i] - 1 for i in range(rank)]
    counts = [size // stride + 1 for size, stride in zip(room, strides, strict=True)]
    if math.prod(counts) != x.shape[2] or min(room) < 0:
        raise call.node.unsupported(f"{x.shape[2]} blocks, expected {counts} on the axes of the image")
    if taps * x.shape[2] > MAX_TAPS:
        raise call.node.unsupported(f"{taps * x.shape[2]} elements in the blocks of a channel; the limit is {MAX_TAPS}")
    numbers = zip(image, counts, block, strides, pads[:rank], pads[rank:], dilations, strict=True)
    places, inside = places_of([Axis(*axis) for axis in numbers], [1] * rank)
    elements = np.flatnonzero(inside)
    elements = elements[np.argsort(places.reshape(-1)[elements], kind="stable")]
    places = places.reshape(-1)[elements]
    nth = np.arange(len(places)) - np.searchsorted(places, places)  # of those of one place
    most = int(nth.max()) + 1
    if math.prod(image) * most > 4 * MAX_TAPS:
        raise call.node.unsupported(
            f"sums of {most} elements for an image of {image}; the limit is {4 * MAX_TAPS} in all"
        )
    call.stores(math.prod(image) * most)
    indices, weights = np.zeros((math.prod(image), most), np.int64), np.zeros((math.prod(image), most))
    indices[places, nth], weights[places, nth] = elements, 1
    flat = call.reshape(x, (x.shape[0], x.shape[1] // taps, taps * x.shape[2]))
    if weights.all() and indices.shape[1] == 1:
        y = take(call, flat, indices[:, 0], 2)
    else:
        tables = [call.emit.weight(indices, "int32"), call.emit.weight(weights, "float32")]
        y = call.op("Resample", [flat, *tables], (*flat.shape[:2], len(indices)), {"axis": 2})
    return call.reshape(y, (*flat.shape[:2], *image))
