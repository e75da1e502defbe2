"""What is folded, and where boxes and lines go."""

import random

import pytest
from drawn import Chain, blocks, drawn, numbers, of_class

from tcim_lite import hmm
from tcim_lite.drawing.fold import Repeat, fold
from tcim_lite.drawing.geometry import Box, Wire
from tcim_lite.drawing.layered import place


def test_equal_structure_is_folded_whatever_the_names(tmp_path):
    chain, x = Chain(), 0
    for _ in range(9):
        x = chain.block(x)
    root = drawn(chain.graph(x), tmp_path)
    assert blocks(root) == [(0, 4, 9)]
    assert len(of_class(root, "op")) == 4


def test_an_attribute_that_differs_ends_a_block(tmp_path):
    chain, x = Chain(), 0
    for slope in (0.1, 0.1, 0.1, 0.2, 0.1, 0.1, 0.1, 0.1):
        x = chain.block(x, slope)
    assert blocks(drawn(chain.graph(x), tmp_path)) == [(0, 4, 3), (16, 4, 4)]


def test_a_wire_that_differs_ends_a_block(tmp_path):
    chain, x = Chain(), 0
    for number in range(8):
        before = x
        x = chain.block(x)
        if number == 3:  # the same ops, but the Add reads another value
            chain.ops[-1] = hmm.Op("Add", [before, before], chain.ops[-1].outputs)
    assert blocks(drawn(chain.graph(x), tmp_path)) == [(0, 4, 3), (16, 4, 4)]


def test_blocks_that_read_other_blocks_at_different_distances_are_not_folded(tmp_path):
    rng, chain, made = random.Random(2), Chain(), [0]
    for _ in range(40):
        made.append(chain.block(made[max(len(made) - rng.randrange(1, 5), 0)]))
    few = blocks(drawn(chain.graph(made[-1]), tmp_path))
    assert all(count < 8 for _, _, count in few)
    chain, made = Chain(), [0]
    for number in range(40):
        made.append(chain.block(made[max(number - 3, 0)]))
    assert blocks(drawn(chain.graph(made[-1]), tmp_path)) == [(0, 4, 40)]


def test_blocks_inside_blocks_are_folded(tmp_path):
    chain, x = Chain(), 0
    for _ in range(3):
        for _ in range(4):
            x = chain.block(x)
        x = chain.op("Sqrt", [x])
    root = drawn(chain.graph(x), tmp_path)
    assert blocks(root) == [(0, 17, 3), (0, 4, 4)]
    assert sorted(numbers(of_class(root, "op"), "data-op")) == [0, 1, 2, 3, 16]


def test_a_block_is_cut_where_one_value_is_handed_on(tmp_path):
    """The Exp in front looks like one inside, so the row of equal ops begins before the first block does."""
    chain = Chain()
    x = chain.op("Tanh", [0])
    for _ in range(6):
        y = chain.op("Relu", [x])
        z = chain.op("Tanh", [y])
        x = chain.op("Add", [chain.op("Mul", [y, z]), x])
    assert [item.start for item in fold(chain.graph(x)) if isinstance(item, Repeat)] == [1]


@pytest.mark.parametrize("seed", range(30))
def test_folding_loses_and_invents_nothing(seed):
    """Unfolded again, all ops are there once, and an occurrence does what the first one does."""
    rng, chain = random.Random(seed), Chain()
    made = [0]
    for _ in range(rng.randrange(1, 8)):
        kinds = [
            (rng.choice(("Relu", "Add", "Tanh")), rng.randrange(1, 6), rng.randrange(1, 6))
            for _ in range(rng.randrange(1, 6))
        ]
        for _ in range(rng.randrange(1, 9)):
            for kind, a, b in kinds:
                back = [made[max(len(made) - n, 0)] for n in ((a, b) if kind == "Add" else (a,))]
                made.append(chain.op(kind, back))
    read = {id_ for op in chain.ops for id_ in op.inputs}
    graph = chain.graph(*(id_ for id_ in made[1:] if id_ not in read))

    def spread(items, shift=0):
        for item in items:
            if isinstance(item, int):
                yield item + shift
            else:
                assert item.count >= 2
                for number in range(item.count):
                    yield from spread(item.body, shift + number * item.period)

    def check(items):
        for item in items:
            if isinstance(item, Repeat):
                check(item.body)
                for start in range(item.start + item.period, item.stop, item.period):
                    renamed = {}
                    for one, other in zip(
                        graph.ops[item.start :], graph.ops[start : start + item.period], strict=False
                    ):
                        assert (one.kind, one.attributes) == (other.kind, other.attributes)
                        for a, b in zip((*one.inputs, *one.outputs), (*other.inputs, *other.outputs), strict=True):
                            assert renamed.setdefault(a, b) == b

    items = fold(graph)
    assert list(spread(items)) == list(range(len(graph.ops)))
    check(items)


@pytest.mark.parametrize("seed", range(20))
def test_boxes_do_not_overlap_and_lines_lead_down(seed):
    rng = random.Random(seed)
    boxes = [Box(rng.uniform(20, 300), rng.uniform(10, 200)) for _ in range(60)]
    wires = [Wire(a, b, (a, 0), 5.0) for b in range(1, 60) for a in {rng.randrange(max(0, b - 9), b) for _ in range(2)}]
    placed = place(boxes, wires)
    around = [(x, y, x + box.width, y + box.height) for x, y, box in zip(placed.x, placed.y, boxes, strict=True)]
    for index, (left, top, right, bottom) in enumerate(around):
        assert left >= -0.01
        assert right <= placed.width + 0.01
        assert bottom <= placed.height + 0.01
        for other in around[:index]:
            assert right <= other[0] or other[2] <= left or bottom <= other[1] or other[3] <= top
    assert all(around[wire.source][3] < around[wire.target][1] for wire in wires)
    assert set(placed.paths) == {wire.group for wire in wires}
    assert sum(map(len, placed.tips.values())) == len(wires)


def test_a_line_past_very_many_ranks_is_cut_and_marked_at_both_ends(tmp_path):
    chain, x = Chain(), 0
    for number in range(90):
        y = chain.op(("Relu", "Tanh", "Sqrt")[number * number % 3], [x])
        x = chain.op(("Add", "Mul")[number * number % 7 % 2], [x, y])
    x = chain.op("Sub", [x, chain.ops[0].outputs[0]])
    root = drawn(chain.graph(x), tmp_path, folded=False)
    marks = [text.text for text in root.iter() if text.text in ("1 \N{DOWNWARDS ARROW}", "\N{DOWNWARDS ARROW} 1")]
    assert sorted(marks) == ["1 \N{DOWNWARDS ARROW}", "\N{DOWNWARDS ARROW} 1"]


def test_a_graph_without_ops_is_drawn(tmp_path):
    values = [hmm.Value("x", "input", "float16", (2, 3)), hmm.Value("n", "input", "int32", (1,))]
    for inputs in [], [0], [0, 1]:
        root = drawn(hmm.Graph("empty", values[: len(inputs)], [], inputs, []), tmp_path)
        assert len(of_class(root, "end")) == len(inputs)


def test_layers_one_below_the_other_do_not_drift_to_a_side(tmp_path):
    """The value that is handed on passes each layer on its right."""
    chain, x = Chain(), 0
    for _ in range(20):
        a, b, c = (chain.op(kind, [chain.op("Relu", [x])]) for kind in ("Tanh", "Sqrt", "Exp"))
        x = chain.op("Add", [x, chain.op("Mul", [chain.op("Mul", [a, b]), c])])
    one, many = (drawn(chain.graph(x), tmp_path, folded=folded) for folded in (True, False))
    assert float(many.get("width")) <= float(one.get("width"))


@pytest.mark.slow
def test_ten_thousand_ops_are_drawn(tmp_path):
    rng, chain, x = random.Random(3), Chain(), 0
    for _ in range(5000):
        x = chain.op(rng.choice(("Relu", "Tanh", "Sqrt")), [x])
        x = chain.op("Add", [x, max(1, x - rng.randrange(1, 12))])
    root = drawn(chain.graph(x), tmp_path)
    folded_away = sum((count - 1) * period for _, period, count in blocks(root))
    assert len(of_class(root, "op")) + folded_away == len(chain.ops)
