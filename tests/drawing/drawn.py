"""Graphs to draw, and what is found in a drawing."""

import random
from xml.etree import ElementTree

from tcim_lite import hmm
from tcim_lite.drawing import parts_of, svg


class Chain:
    """Ops one behind the other over names without any order in them; each list of kinds is a block."""

    def __init__(self):
        self.values = [hmm.Value("x", "input", "float16", (2, 3))]
        self.ops = []
        self.names = random.Random(5)

    def op(self, kind, inputs, **attributes):
        self.values.append(hmm.Value(f"{self.names.random()}", "intermediate", "float16", (2, 3)))
        self.ops.append(hmm.Op(kind, inputs, [len(self.values) - 1], attributes))
        return len(self.values) - 1

    def block(self, x, slope=0.1):
        y = self.op("Relu", [x])
        y = self.op("LeakyRelu", [y], alpha=slope)
        return self.op("Add", [x, self.op("Tanh", [y])])

    def graph(self, *outputs):
        return hmm.Graph("chain", self.values, self.ops, [0], outputs)


def drawn(graph, tmp_path, weights=(), **keywords):
    path = tmp_path / "m.hmm"
    hmm.write_model(path, graph, list(weights))
    return ElementTree.fromstring(svg(parts_of(path)[0], **keywords))


def of_class(root, name):
    return [element for element in root.iter() if name in element.get("class", "").split()]


def numbers(elements, key):
    return [int(element.get(key)) for element in elements]


def blocks(root):
    return [(*numbers([e], "data-start"), *numbers([e], "data-period"), *numbers([e], "data-count"))
            for e in of_class(root, "block")]  # fmt: skip
