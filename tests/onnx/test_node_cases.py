"""onnx.backend.test's node cases, one test for each op that the compiler claims."""

from __future__ import annotations

from collections import defaultdict

import pytest

pytest.importorskip("onnx", reason="needs onnx")

import node_cases

from tcim_lite.models.onnx.table import LOWERINGS

CLAIMED = sorted(op for domain, op in LOWERINGS if not domain)
# Ops of the table without cases in scope; test_corners.py and test_optimised.py compare them with onnxruntime.
UNTRIED = {
    "ConcatFromSequence", "GlobalLpPool", "IsInf", "IsNaN", "SequenceAt", "SequenceConstruct", "SequenceEmpty",
    "SequenceErase", "SequenceInsert", "SequenceLength", "SimplifiedLayerNormalization", "SplitToSequence",
}  # fmt: skip


@pytest.fixture(scope="module")
def results():
    """The results of all cases by the ops in them."""
    by_op = defaultdict(list)
    for result in node_cases.results():
        for op in result.ops:
            by_op[op].append(result)
    return by_op


@pytest.mark.slow
def test_no_case_fails_or_passes_out_of_scope():
    """Also of other domains than ONNX's own."""
    wrong = [each for each in node_cases.results() if each.verdict not in ("pass", "out of scope")]
    assert not wrong


@pytest.mark.slow
@pytest.mark.parametrize("op", CLAIMED)
def test_every_case_in_scope_passes(results, op):
    wrong = [
        f"{each.verdict} {each.name}: {each.detail}"
        for each in results[op]
        if each.verdict not in ("pass", "out of scope")
    ]
    assert not wrong, "\n".join(wrong)
    passed = [each for each in results[op] if each.verdict == "pass"]
    assert bool(passed) != (op in UNTRIED), f"{len(passed)} cases of {op} pass"
