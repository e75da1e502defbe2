"""Gears whose merges are not the checkpoint's see an image as larger ones do."""

from __future__ import annotations

import json

import numpy as np
import pytest

pytestmark = pytest.mark.oracle
pytest.importorskip("transformers", reason="the oracle")
from tower_features import image

from tcim_lite.cli import main
from tcim_lite.llm.vision import VisionTower
from tcim_lite.models.families import FAMILIES


@pytest.mark.parametrize("size", [(1, 6), (6, 1)])
def test_gears_of_other_merges_turn_the_longest_image(tmp_path, size):
    """Their tables of rotations reach to its last patch, so a gear sees what a larger one sees."""
    family = FAMILIES["qwen3_5"]
    config = {**family.tiny_config, "vision_config": {**family.vision.tiny, "spatial_merge_size": 3}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    options = ("--random-weights", "--quant", "float32", "--prefill-length", "8", "--context-length", "16", "-q")
    found = []
    for gear in ("6", "30"):
        assert main(["compile", str(tmp_path), "-o", str(tmp_path / gear), "--vision", gear, *options]) == 0
        tower = VisionTower(tmp_path / gear, "qwen3_5")
        found += tower.see(image(*(side * tower.cell for side in size)))
    assert np.abs(found[0] - found[1]).max() <= 1e-5 * np.abs(found[1]).max()
