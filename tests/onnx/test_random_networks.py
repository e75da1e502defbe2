"""Random networks: however the planner fuses steps and lays values out, the bits are those of each step on its own."""

from __future__ import annotations

import numpy as np
import pytest

from tcim_lite.models.onnx import onnx_bytes
from tcim_lite.runtime import Module, Option


class RandomNetwork:
    """The nodes of a network of convolutions, and what shape each value has.

    Channels are often whole blocks of 16, later values are used more often than early ones, and nothing that is read
    is an output: else most values would lie in planes.
    """

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.nodes, self.constants = [], {}
        self.channels = self.pick([16, 32], [32, 48], [16, 48], [16, 66], [17, 24])
        batch, plane = self.pick(1, 1, 1, 1, 1, 2), self.pick((28, 31), (32, 32), (17, 40))
        self.shapes = {"x": (batch, self.pick(3, 48), *plane), "y": (batch, self.channels[0], *plane)}
        self.feeds = {name: self.rng.standard_normal(shape, np.float32) for name, shape in self.shapes.items()}
        steps = [self.conv, self.depthwise, self.concat] * 4 + [self.add_convs, self.add, self.dense] * 3
        steps += [self.activate, self.pool, self.resize, self.split, self.squeeze, self.inverted]
        for _ in range(self.rng.integers(4, 12)):
            self.pick(*steps)(self.value())
        for name in self.unread():
            self.conv(name)
        self.ends = self.unread()

    def unread(self) -> list[str]:
        read = {name for _op, inputs, *_ in self.nodes for name in inputs}
        return [name for name in self.shapes if name not in read and name not in self.feeds]

    def pick(self, *options):
        return options[self.rng.integers(len(options))]

    def either_way(self, *names: str) -> list[str]:
        return [names[i] for i in self.rng.permutation(len(names))]

    def value(self, end: tuple[int, ...] = ()) -> str:
        """A value with planes, whose shape ends so."""
        fit = [name for name, shape in self.shapes.items() if shape[4 - len(end) :] == end and shape[2] > 1]
        return fit[-min(self.rng.geometric(0.3), len(fit))]

    def constant(self, array: np.ndarray) -> str:
        name = f"constant{len(self.constants)}"
        self.constants[name] = array
        return name

    def node(self, op: str, inputs: list[str], *shapes: tuple[int, ...], **attributes) -> str:
        outputs = [f"v{len(self.shapes) + i}" for i in range(len(shapes))]
        self.nodes.append((op, inputs, outputs, attributes))
        self.shapes.update(zip(outputs, shapes, strict=True))
        return outputs[0]

    def conv(self, x: str, outputs: int = 0, side: int = 0, group: int = 1, stride: int = 1) -> str:
        batch, inputs, height, width = self.shapes[x]
        outputs, side = outputs or self.pick(*self.channels), side or self.pick(1, 1, 3)
        dilation = self.pick(1, 1, 1, 2)
        weight = self.rng.standard_normal((outputs, inputs // group, side, side), np.float32)
        inputs = [x, self.constant(weight / np.sqrt(np.float32(weight[0].size)))]
        space = {"pads": [side // 2 * dilation] * 4, "strides": [stride] * 2, "dilations": [dilation] * 2}
        return self.node(
            "Conv", inputs, (batch, outputs, -(-height // stride), -(-width // stride)), group=group, **space
        )

    def depthwise(self, x: str, stride: int = 0) -> str:
        channels = self.shapes[x][1]
        return self.conv(x, channels, self.pick(3, 3, 5), channels, stride or self.pick(1, 1, 1, 2))

    def deeper(self, x: str) -> str:
        return self.pick(self.conv, lambda x: self.depthwise(x, 1))(x)

    def concat(self, x: str, *others: str) -> str:
        _, _, *plane = self.shapes[x]
        names = self.either_way(x, *(others or [self.pick(self.deeper(x), self.value(tuple(plane)))]))
        shape = (self.shapes[x][0], sum(self.shapes[name][1] for name in names), *plane)
        return self.node("Concat", names, shape, axis=1)

    def dense(self, x: str) -> str:
        y = self.conv(x)
        for _ in range(2):
            y = self.concat(y, self.deeper(y))
        return self.conv(y)

    def add(self, x: str) -> str:
        return self.node("Add", [x, self.value(self.shapes[x])], self.shapes[x])

    def add_convs(self, x: str) -> str:
        deep = self.depthwise(x)
        _, channels, *plane = self.shapes[deep]
        wide = self.conv(self.value(tuple(plane)), channels)
        return self.node("Add", self.either_way(deep, wide), self.shapes[deep])

    def activate(self, x: str) -> str:
        return self.node(self.pick("Relu", "Sigmoid", "HardSwish"), [x], self.shapes[x])

    def pool(self, x: str) -> str:
        batch, channels, height, width = self.shapes[x]
        shape, op = (batch, channels, (height + 1) // 2, (width + 1) // 2), self.pick("MaxPool", "AveragePool")
        return self.node(op, [x], shape, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])

    def resize(self, x: str) -> str:
        x = self.pool(x)
        batch, channels, height, width = self.shapes[x]
        scales = self.constant(np.array([1, 1, 2, 2], np.float32))
        return self.node("Resize", [x, "", scales], (batch, channels, 2 * height, 2 * width), mode="nearest")

    def split(self, x: str) -> str:
        batch, channels, *plane = self.shapes[x]
        sizes = [channels // 2, channels - channels // 2]
        return self.node("Split", [x, self.constant(np.array(sizes))], *((batch, n, *plane) for n in sizes), axis=1)

    def squeeze(self, x: str) -> str:
        batch, channels, *_ = self.shapes[x]
        mean = self.node("GlobalAveragePool", [x], (batch, channels, 1, 1))
        gate = self.node("Sigmoid", [self.conv(self.conv(mean, 8, 1), channels, 1)], (batch, channels, 1, 1))
        return self.node("Mul", self.either_way(x, gate), self.shapes[x])

    def inverted(self, x: str) -> str:
        y = self.conv(self.activate(self.depthwise(self.activate(self.conv(x, 48, 1)), 1)), self.shapes[x][1], 1)
        return self.node("Add", self.either_way(x, y), self.shapes[x])


def run(data: bytes, feeds: dict[str, np.ndarray], ends: list[str], taps: list[str]) -> dict[str, np.ndarray]:
    module = Module.load(data, Option().set_taps(taps))
    assert bool(module.taps()) == bool(taps)
    for name, array in feeds.items():
        module.set_input(name, array)
    module.run(sync=True)
    return {name: module.get_output(name).numpy().astype(np.float32) for name in ends}


@pytest.mark.parametrize("seed", range(40))
def test_bits_are_those_of_a_run_that_stores_every_value(make_model, run_there, seed):
    network = RandomNetwork(seed)
    feeds, ends = network.feeds, network.ends
    model = make_model(network.nodes, {name: feed.shape for name, feed in feeds.items()}, ends, network.constants)
    there = run_there(model, feeds)
    # A value in another's place differs by as much as the values; sums in another order do by a few of 2^-24 a layer,
    # and roundings to float16 by a few of 2^-11.
    for quant, error in (("float32", 1e-4), ("float16", 0.05)):
        data = onnx_bytes(model, quant)
        found, wanted = (run(data, feeds, ends, taps) for taps in ([], ["*"]))  # nothing is fused across a tap
        for name in ends:
            np.testing.assert_array_equal(found[name], wanted[name], err_msg=f"{name}, {quant}")
            np.testing.assert_allclose(found[name], there[name], rtol=0, atol=error * np.abs(there[name]).max())
