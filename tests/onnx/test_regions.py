"""RoiAlign, MaxPool with places, MaxUnpool and cubic GridSample at computed places, against onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest

from tcim_lite.errors import TcimError
from tcim_lite.models.onnx import onnx_bytes

RNG = np.random.default_rng(3)
X = RNG.normal(size=(2, 3, 9, 12)).astype(np.float32)
# Inside, across each end, with no extent, upside down, and outside.
BOXES = np.float32([[2, 3, 17, 15], [-4, 1, 9, 30], [12, 2, 12, 2], [15, 12, 4, 5], [40, 40, 60, 60], [0, 0, 24, 18]])
IMAGES = np.array([0, 1, 1, 0, 1, 0])
ROI = {"output_height": 3, "output_width": 2, "spatial_scale": 0.5}
CORNERS = {"coordinate_transformation_mode": "output_half_pixel"}


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize(
    "attributes",
    [{"sampling_ratio": 2}, {"sampling_ratio": 3, **CORNERS}, {}, CORNERS, {"sampling_ratio": 2, "mode": "max"}],
    ids=["samples", "corners", "adaptive", "adaptive corners", "max"],
)
def test_roi_align_at_computed_boxes(attributes, batch, make_model, run_here, run_there):
    node = ("RoiAlign", ["x", "boxes", "images"], ["y"], {**ROI, **attributes})
    feeds = {"x": X[:batch], "boxes": BOXES}
    images = {"images": IMAGES * (batch > 1)}
    model = make_model([node], {name: array.shape for name, array in feeds.items()}, ["y"], images)
    np.testing.assert_allclose(run_here(model, feeds)["y"], run_there(model, feeds)["y"], atol=2e-6)


def test_roi_align_takes_images_of_a_batch_at_run_time(make_model, run_here, run_there):
    node = ("RoiAlign", ["x", "boxes", "images"], ["y"], {**ROI, "sampling_ratio": 2})
    model = make_model([node], {"x": X.shape, "boxes": BOXES.shape, "images": IMAGES.shape}, ["y"])
    model.graph.input[2].type.tensor_type.elem_type = 7
    feeds = {"x": X, "boxes": BOXES, "images": IMAGES}
    got = run_here(model, feeds | {"images": IMAGES.astype(np.int32)})["y"]
    np.testing.assert_allclose(got, run_there(model, feeds)["y"], atol=2e-6)


POOLS = {
    "side by side": {"kernel_shape": [2, 2], "strides": [2, 2]},
    "overlapping": {"kernel_shape": [3, 3], "strides": [2, 1], "pads": [1, 1, 1, 1]},
    "dilated": {"kernel_shape": [2, 3], "dilations": [2, 2], "pads": [0, 2, 1, 1], "ceil_mode": 1, "strides": [1, 2]},
    "by columns": {"kernel_shape": [3, 2], "strides": [3, 2], "storage_order": 1},
}


@pytest.mark.parametrize("pool", POOLS)
def test_max_pool_gives_the_places_of_its_elements(pool, make_model, run_here, run_there):
    x = np.round(X * 2) - 4  # equal neighbours, of which the first counts, and all below the padding's 0
    model = make_model([("MaxPool", ["x"], ["y", "at"], POOLS[pool])], {"x": x.shape}, ["y", "at"])
    model.graph.output[1].type.tensor_type.elem_type = 7
    here, there = run_here(model, {"x": x}), run_there(model, {"x": x})
    np.testing.assert_array_equal(here["y"], there["y"])
    np.testing.assert_array_equal(here["at"], there["at"])


@pytest.mark.parametrize("pool", ["side by side", "overlapping"])
def test_max_unpool_puts_elements_back(pool, make_model, run_here, run_there):
    nodes = [
        ("MaxPool", ["x"], ["m", "at"], POOLS[pool]),
        ("Sub", ["m", "one"], ["n"], {}),
        ("MaxUnpool", ["n", "at"], ["y"], POOLS[pool]),
    ]
    x = X if pool == "overlapping" else X[:, :, :8]
    model = make_model(nodes, {"x": x.shape}, ["y"], {"one": np.float32(1)})
    np.testing.assert_array_equal(run_here(model, {"x": x})["y"], run_there(model, {"x": x})["y"])


@pytest.mark.parametrize("aligned", [0, 1])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
def test_a_cubic_grid_may_be_computed(padding, aligned, make_model, run_here, run_there):
    feeds = {"x": X, "g": RNG.uniform(-1.4, 1.4, (2, 4, 5, 2)).astype(np.float32)}
    what = {"mode": "bicubic", "padding_mode": padding, "align_corners": aligned}
    model = make_model([("GridSample", ["x", "g"], ["y"], what)], {n: a.shape for n, a in feeds.items()}, ["y"], {}, 16)
    np.testing.assert_allclose(run_here(model, feeds)["y"], run_there(model, feeds)["y"], atol=4e-6)


REFUSED = {
    "set sampling_ratio": ("RoiAlign", ["x", "b", "i"], {"mode": "max"}, {"b": BOXES, "i": IMAGES}),
    "expected 6 integers": ("RoiAlign", ["x", "b", "i"], {}, {"b": BOXES, "i": np.array([0])}),
    "an axis of 8589934592 elements": (
        "RoiAlign", ["x", "b", "i"], {"output_height": 2, "sampling_ratio": 2**32}, {"b": BOXES, "i": IMAGES},
    ),
    "expected at least [2, 3, 18, 24]": (
        "MaxUnpool", ["x", "i", "s"], POOLS["side by side"],
        {"i": np.zeros(X.shape, np.int64), "s": np.array([2, 3, 9, 9])},
    ),
}  # fmt: skip


@pytest.mark.parametrize("message", REFUSED)
def test_what_does_not_fit_is_refused(message, make_model):
    op, operands, attributes, constants = REFUSED[message]
    model = make_model([(op, operands, ["y"], attributes)], {"x": X.shape}, ["y"], constants)
    with pytest.raises(TcimError) as error:
        onnx_bytes(model, "float32")
    assert message in str(error.value)
