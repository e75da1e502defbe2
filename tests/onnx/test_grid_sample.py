"""Samples of images at constant and computed places, and grids of affine maps, against onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest

RNG = np.random.default_rng(12)
X = RNG.normal(size=(2, 3, 5, 6)).astype(np.float32)
GRID = RNG.uniform(-1.4, 1.4, (2, 4, 7, 2)).astype(np.float32)
SAMPLES = [
    {"mode": mode, "padding_mode": padding, "align_corners": aligned}
    for mode in ("bilinear", "nearest")
    for padding in ("zeros", "border", "reflection")
    for aligned in (0, 1)
] + [{"mode": "bicubic"}, {"mode": "bicubic", "align_corners": 1}]


@pytest.mark.parametrize("attributes", SAMPLES)
def test_samples_at_constant_places(attributes, make_model, run_here, run_there):
    for grid in (GRID, np.stack([GRID[0]] * 2)):  # one for each image, and one for all
        model = make_model([("GridSample", ["x", "g"], ["y"], attributes)], {"x": X.shape}, ["y"], {"g": grid})
        np.testing.assert_allclose(run_here(model, {"x": X})["y"], run_there(model, {"x": X})["y"], atol=2e-5)


def test_samples_at_constant_places_of_many_images(make_model, run_here, run_there):
    """As optical flow looks up the first costs: an image and a grid for each pixel."""
    x, grid = RNG.normal(size=(100, 1, 4, 5)), RNG.uniform(-1.1, 1.1, (100, 3, 3, 2))
    model = make_model([("GridSample", ["x", "g"], ["y"], {})], {"x": x.shape}, ["y"], {"g": grid.astype(np.float32)})
    feeds = {"x": x.astype(np.float32)}
    np.testing.assert_allclose(run_here(model, feeds)["y"], run_there(model, feeds)["y"], atol=2e-5)


@pytest.mark.parametrize("attributes", SAMPLES[:-2])
def test_samples_at_computed_places(attributes, make_model, run_here, run_there):
    model = make_model([("GridSample", ["x", "g"], ["y"], attributes)], {"x": X.shape, "g": GRID.shape}, ["y"])
    feeds = {"x": X, "g": GRID * 1.5}
    np.testing.assert_allclose(run_here(model, feeds)["y"], run_there(model, feeds)["y"], atol=2e-5)


def test_samples_at_computed_places_of_a_volume(make_model, run_here, run_there):
    """And axes of one element, whose reflections all meet in it."""
    volume, grid = RNG.normal(size=(2, 3, 4, 1, 5)).astype(np.float32), RNG.uniform(-2, 2, (2, 2, 3, 2, 3))
    how = {"mode": "linear", "padding_mode": "reflection", "align_corners": 1}
    shapes = {"x": volume.shape, "g": grid.shape}
    model = make_model([("GridSample", ["x", "g"], ["y"], how)], shapes, ["y"], opset=20)
    feeds = {"x": volume, "g": grid.astype(np.float32)}
    np.testing.assert_allclose(run_here(model, feeds)["y"], run_there(model, feeds)["y"], atol=2e-5)


@pytest.mark.parametrize("aligned", [0, 1])
def test_affine_grids_of_computed_matrices(aligned, make_model, run_here, run_there):
    node = ("AffineGrid", ["x", "s"], ["y"], {"align_corners": aligned})
    theta = RNG.normal(size=(2, 2, 3)).astype(np.float32)
    model = make_model([node], {"x": theta.shape}, ["y"], {"s": np.array([2, 1, 3, 4])}, opset=20)
    np.testing.assert_allclose(run_here(model, {"x": theta})["y"], run_there(model, {"x": theta})["y"], atol=1e-6)
