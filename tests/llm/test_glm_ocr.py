"""What is particular to GLM-OCR: positions of all axes in one input, and heads that turn in pairs of neighbours."""

from __future__ import annotations

import json
import os

import numpy as np
import pytest
import warm_python

import tcim_lite.runtime as rt
from tcim_lite.cli import main
from tcim_lite.errors import ArgumentError
from tcim_lite.llm import cache_names, lanes_of, load_pair
from tcim_lite.models.families import FAMILIES
from tcim_lite.models.weights.matrix import PairsApart

SIZES = {"prefill_length": 16, "context_length": 64}


@pytest.fixture(scope="module")
def modules(tiny_package):
    package = tiny_package("glm_ocr", **SIZES)
    return load_pair(package.prefill_path, package.decode_path, rt.WeightManager(0))


def logits(module, positions, current=16, valid=0) -> bytes:
    (lane,) = lanes_of(module)
    shape = module.get_input_info("input_1").shape
    module.set_input("input_1", np.random.default_rng(1).standard_normal(shape).astype(np.float16))
    module.set_input(lane.valid, valid)
    module.set_input(lane.current, current)
    module.set_input(lane.positions[0], positions)
    module.run(True)
    return module.get_output("logits").numpy().tobytes()


def counted() -> np.ndarray:
    """Positions of text [3, 1, 16]."""
    return np.tile(np.arange(16), (3, 1))[:, None].copy()


def test_inputs_are_those_of_the_vendor(modules):
    for module, tokens in zip(modules, (16, 1), strict=True):
        names = [module.get_input_name(i) for i in range(module.get_num_inputs())]
        assert names == ["input_1", "position_ids", "valid_length", "current_length", *cache_names(module)]
        info = module.get_input_info("position_ids")
        assert (info.shape, info.dtype) == ((3, 1, tokens), np.int32)


def test_every_axis_counts_and_types_of_numbers_do_not(modules):
    plain = logits(modules[0], counted())
    found = {plain}
    for axis in range(3):
        positions = counted()
        positions[axis] //= 2
        found.add(logits(modules[0], positions))
    assert len(found) == 4
    for kind in (np.int64, np.float16, np.float32):  # the vendor's demo has float16
        assert logits(modules[0], counted().astype(kind)) == plain


@pytest.mark.parametrize("axis", range(3))
@pytest.mark.parametrize("wrong", [64, -1])
def test_positions_that_the_graph_has_not_are_refused(modules, axis, wrong):
    positions = counted()
    positions[axis, 0, 4] = wrong
    message = rf"'position_ids' is {wrong} for token 4, expected 0 to 63, the positions that this graph has"
    with pytest.raises(ArgumentError, match=message):
        logits(modules[0], positions)
    assert logits(modules[0], positions, current=4)  # as padding it is nothing
    with pytest.raises(ArgumentError, match=f"'position_ids' is {wrong} for token 0, expected 0 to 63"):
        logits(modules[1], positions[:, :, 4:5], 1, 20)


@pytest.mark.parametrize(
    ("axis", "token", "says"),
    [(0, 4, "'position_ids' says 0 for token 4, behind 3"), (1, 4, "says 9 for token 4"), (2, 0, "says 9 for token 0")],
)
def test_strict_mode_reads_every_axis(tiny_package, axis, token, says):
    """S-206, which text and images do not find."""
    program = """
import json, sys, numpy as np, tcim_lite.runtime as rt
path, axis, token, value = sys.argv[1], *map(int, sys.argv[2:])
module = rt.load(path)
positions = np.tile(np.arange(16), (3, 1))[:, None].copy()
positions[1:, 0, 2:6] = [[2, 2, 3, 3], [2, 3, 2, 3]]
positions[0, 0, 2:6] = 2 if axis else [2, 3, 4, 5]
if token >= 0: positions[axis, 0, token] = value
module.set_input("input_1", np.zeros(module.get_input_info("input_1").shape, np.float16))
module.set_input("position_ids", positions)
module.set_input("valid_length", np.int32([0])); module.set_input("current_length", np.int32([8]))
module.run(True)
"""
    path, environment = tiny_package("glm_ocr", **SIZES).prefill_path, {**os.environ, "TCIM_LITE_STRICT": "error"}
    value = 0 if axis == 0 else 9
    good = warm_python.run("-c", program, path, axis, -1, 0, env=environment)
    assert good.returncode == 0, good.stderr
    bad = warm_python.run("-c", program, path, axis, token, value, env=environment)
    assert bad.returncode == 1
    assert "S-206" in bad.stderr
    assert says in bad.stderr


@pytest.mark.parametrize("window", [(0, 24), (3, 5), (7, 17), (16, 24)])
def test_pairs_are_put_apart_in_any_rows(window):
    """Heads of 8 rows, of which 6 turn: rows of the whole are rows of a part."""

    class Numbers:
        shape = (24, 2)

        def read(self, start, stop):
            return np.arange(2 * start, 2 * stop).reshape(-1, 2)

    order = np.concatenate([8 * head + np.array([0, 2, 4, 1, 3, 5, 6, 7]) for head in range(3)])
    start, stop = window
    np.testing.assert_array_equal(
        PairsApart(Numbers(), 8, 6).read(start, stop), Numbers().read(0, 24)[order][start:stop]
    )


def test_the_vision_graph_is_called_as_the_vendors_unless_asked(tmp_path):
    record = FAMILIES["glm_ocr"]
    vision = {**record.vision.tiny, "depth": 1, "patch_size": 14}
    (tmp_path / "config.json").write_text(json.dumps({**record.tiny_config, "vision_config": vision}))
    asked = ["--random-weights", "--vision", "--name", "glm-ocr-0.9b", "--prefill-length", "8", "-q"]
    assert main(["compile", str(tmp_path), "-o", str(tmp_path / "out"), *asked]) == 0
    assert not (tmp_path / "out" / "hmquant" / "mineru_visual_buckets.json").exists()
    module = rt.load(tmp_path / "out" / "glm-ocr-0.9b_visual_672x672x2.hmm")
    assert module.get_input_info("pixel_values").shape == (2304, 1176)
    assert module.get_output_info("image_embeds").shape == (576, 192)
