"""The vision tower of Gemma 4 against transformers in float32, with the inputs that the vendor's processor makes."""

import json

import numpy as np
import pytest
from llm_packages import compile_package
from PIL import Image

import tcim_lite.runtime as rt
from tcim_lite.models.families import FAMILIES

torch = pytest.importorskip("torch", reason="the oracle needs torch: pip install 'tcim-lite[test]'")
transformers = pytest.importorskip("transformers", reason="the oracle needs transformers")

from transformers.models.gemma4.image_processing_pil_gemma4 import Gemma4ImageProcessorPil

pytestmark = pytest.mark.oracle

FAMILY = FAMILIES["gemma4"]
TEXT = {
    **{key: value for key, value in FAMILY.tiny.items() if key != "sliding_window_pattern"},
    "num_hidden_layers": 2,
    "layer_types": ["sliding_attention", "full_attention"],
    "global_head_dim": 128,
}
TOKENS, KERNEL = 12, 3
PATCHES = TOKENS * KERNEL**2


def random_model(**vision):
    torch.manual_seed(3)
    config = transformers.Gemma4Config(
        text_config=TEXT, vision_config={**FAMILY.vision.tiny, **vision}, audio_config=None, image_token_id=7
    )
    model = transformers.Gemma4ForConditionalGeneration._from_config(config, attn_implementation="eager").float().eval()
    with torch.no_grad():
        for name, tensor in (*model.named_parameters(), *model.named_buffers()):
            if "norm" in name and name.endswith("weight"):
                tensor.add_(torch.randn_like(tensor) * 0.2)
            elif "position_embedding_table" in name or name.endswith("std_bias"):
                tensor.copy_(torch.randn_like(tensor))
            elif name.endswith("std_scale"):
                tensor.copy_(torch.rand_like(tensor) + 0.5)
            elif "vision" in name and name.endswith(("_min", "_max")):  # some of the numbers are beyond
                tensor.copy_((torch.rand([]) + 0.5) * (-0.3 if name.endswith("_min") else 0.3))
    return model


def inputs_of(columns, rows):
    """Patches of an image of so many tokens, and padding behind them."""
    rng = np.random.default_rng(columns)
    places = np.full((PATCHES, 2), -1, np.int64)
    count = columns * rows * KERNEL**2
    row, column = np.divmod(np.arange(count), columns * KERNEL)
    places[:count] = np.stack((column, row), axis=1)
    pixels = np.zeros((1, PATCHES, 192), np.float32)
    pixels[0, :count] = rng.random((count, 192))
    pooling = np.zeros((1, TOKENS, PATCHES), np.float32)
    pooling[0, row // KERNEL * columns + column // KERNEL, np.arange(count)] = 1 / KERNEL**2
    mask = np.where(np.arange(PATCHES) < count, 0, -65504).astype(np.float32).reshape(1, 1, 1, -1)
    return {
        "pixel_values": pixels,
        "attention_mask": mask,
        "pooling_matrix": pooling,
        "pixel_position_ids": np.maximum(places, 0).astype(np.int32)[None],
    }, places[None]


@pytest.mark.parametrize("changes", [{}, {"standardize": False}, {"use_clipped_linears": True}])
def test_the_tower_agrees_with_transformers(tmp_path, changes):
    model = random_model(**changes)
    model.save_pretrained(tmp_path / "hf")
    options = {"quant": "float32", "prefill_length": 8, "context_length": 32, "vision": str(TOKENS)}
    package = compile_package(tmp_path / "hf", tmp_path / "out", **options)
    tower = rt.load(package.folder / "gemma4_visual.hmm")
    names = [tower.get_input_name(index) for index in range(tower.get_num_inputs())]
    assert names == ["pixel_values", "attention_mask", "pooling_matrix", "pixel_position_ids"]
    assert json.loads(tower.get_custom_msg())["tokens"] == TOKENS
    for columns, rows in ((4, 3), (2, 3), (1, 1)):
        inputs, places = inputs_of(columns, rows)
        for name, value in inputs.items():
            tower.set_input(name, value)
        tower.run(sync=True)
        got = tower.get_output(tower.get_output_name(0)).numpy()
        assert got.shape == (1, TOKENS, 192)
        with torch.no_grad():
            features = model.model.get_image_features(
                torch.from_numpy(inputs["pixel_values"]), torch.from_numpy(places)
            ).pooler_output
        want = torch.cat(list(features)).numpy()
        assert want.shape == (columns * rows, 192)
        # As docs/numerics.md section 9: rounding of fp32 over the longest reduction of each layer.
        bound = 64 * 2**-24 * (192 * 2) ** 0.5
        assert np.abs(got[0, : columns * rows] - want).max() <= bound * np.abs(want).max()


@pytest.mark.parametrize(
    ("asked", "grid", "kernel"),
    [("448x448", (16, 16), 1), ("300x900", (9, 28), 1), ("384x384", (48, 48), 3), ("60x4000", (2, 136), 1)],
)
def test_images_of_one_size(tmp_path, asked, grid, kernel):
    """By their patches alone, which the processor of transformers makes."""
    model = random_model(position_embedding_size=200)
    model.save_pretrained(tmp_path / "hf")
    options = {"quant": "float32", "prefill_length": 8, "context_length": 32, "vision": asked}
    package = compile_package(tmp_path / "hf", tmp_path / "out", **options)
    height, width = map(int, asked.split("x"))
    tower = rt.load(package.folder / f"gemma4_visual_{width}x{height}.hmm")
    assert (package.folder / "gemma4_visual.hmm").is_file()
    processor = Gemma4ImageProcessorPil(patch_size=8, max_soft_tokens=280, pooling_kernel_size=kernel)
    pixels = np.random.default_rng(1).integers(0, 256, (height, width, 3), np.uint8)
    made = processor(Image.fromarray(pixels), return_tensors="np")
    count = grid[0] * grid[1]
    places = made["image_position_ids"][:, :count]
    np.testing.assert_array_equal(places[0, -1], (grid[1] - 1, grid[0] - 1))
    assert (made["image_position_ids"][:, count:] == -1).all()
    assert tower.get_num_inputs() == 1
    assert tower.get_input_info("pixel_values").shape == (1, count, 192)
    said = json.loads(tower.get_custom_msg())
    assert (said["patches"], said["tokens"]) == (count, count // kernel**2)
    tower.set_input("pixel_values", made["pixel_values"][:, :count])
    tower.run(sync=True)
    got = tower.get_output("image_embeds").numpy()
    model = random_model(position_embedding_size=200, pooling_kernel_size=kernel)  # weights as before
    if kernel == 1:  # where nothing is pooled, transformers keeps the padding instead of the patches
        pooler = model.model.vision_tower.pooler

        def kept(*operands, forward=pooler.forward, **others):
            tokens, padding = forward(*operands, **others)
            return tokens, ~padding

        pooler.forward = kept
    with torch.no_grad():
        features = model.model.get_image_features(
            torch.from_numpy(made["pixel_values"]), torch.from_numpy(made["image_position_ids"])
        ).pooler_output
    want = torch.cat(list(features)).numpy()
    assert got.shape == (1, count // kernel**2, 192)
    bound = 64 * 2**-24 * (192 * 2) ** 0.5
    assert np.abs(got[0] - want).max() <= bound * np.abs(want).max()
