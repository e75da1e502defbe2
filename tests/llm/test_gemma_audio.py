"""The encoder of sounds of Gemma 4 against transformers in float32, with inputs as the vendor's processor has them."""

import json

import numpy as np
import pytest
from llm_packages import compile_package
from tiny_sounds import GEMMA4 as SOUND

import tcim_lite.runtime as rt
from tcim_lite.models.families import FAMILIES

torch = pytest.importorskip("torch", reason="the oracle needs torch: pip install 'tcim-lite[test]'")
transformers = pytest.importorskip("transformers", reason="the oracle needs transformers")

pytestmark = pytest.mark.oracle

FAMILY = FAMILIES["gemma4"]
TEXT = {
    **{key: value for key, value in FAMILY.tiny.items() if key != "sliding_window_pattern"},
    "num_hidden_layers": 2,
    "layer_types": ["sliding_attention", "full_attention"],
}
FRAMES, BLOCK = 124, 12  # 31 rows, in three blocks
OPTIONS = {"quant": "float32", "prefill_length": 8, "context_length": 32, "audio_frames": FRAMES}


def random_model(text=TEXT, tokens=None, **sound):
    torch.manual_seed(3)
    config = transformers.Gemma4Config(
        text_config=text,
        audio_config={**SOUND, **sound},
        vision_config=FAMILY.vision.tiny,
        **(tokens or {"image_token_id": 7}),
    )
    model = transformers.Gemma4ForConditionalGeneration._from_config(config, attn_implementation="eager").float().eval()
    with torch.no_grad():
        for name, tensor in (*model.named_parameters(), *model.named_buffers()):
            if "audio" not in name:
                continue
            if name.endswith(("_min", "_max")):  # some of the numbers are beyond
                tensor.copy_((torch.rand([]) + 0.5) * (-1 if name.endswith("_min") else 1))
            elif "norm" in name and name.endswith("weight"):
                tensor.add_(torch.randn_like(tensor) * 0.2)
            elif name.endswith(("per_dim_scale", "output_proj.bias")):
                tensor.copy_(torch.randn_like(tensor))
            elif tensor.dim() > 1 and name.endswith("weight"):
                tensor.copy_(torch.randn_like(tensor) * tensor[0].numel() ** -0.5)
    return model


def attention_mask(sounding, left, right):
    """As the vendor's processor makes it: of each block of rows, what each sees of those around the block."""
    rows = sounding[::4]
    blocks = -(-len(rows) // BLOCK)
    mask = np.full((1, 1, blocks, BLOCK, left - 1 + BLOCK + right), -65504, np.float32)
    for block, row, column in np.ndindex(mask.shape[2:]):
        query, key = block * BLOCK + row, block * BLOCK - (left - 1) + column
        there = max(query, key) < len(rows) and key >= 0 and rows[query] and rows[key]
        if there and (0 <= query - key < left - 1 or 0 < key - query < right):
            mask[0, 0, block, row, column] = 0
    return mask


@pytest.mark.parametrize(
    "sound",
    [
        {},
        {"use_clipped_linears": False, "attention_logit_cap": 2.0},
        {"attention_context_right": 4, "attention_context_left": 7, "conv_kernel_size": 3, "residual_weight": 0.25},
        {"rms_norm_eps": 0.1},
    ],
)
def test_the_encoder_agrees_with_transformers(tmp_path, sound):
    model = random_model(**sound)
    model.save_pretrained(tmp_path / "hf")
    package = compile_package(tmp_path / "hf", tmp_path / "out", **OPTIONS)
    encoder = rt.load(package.folder / "gemma4_audio.hmm")
    names = [encoder.get_input_name(index) for index in range(encoder.get_num_inputs())]
    assert names == ["input_features", "input_features_mask", "audio_attention_mask"]
    assert [encoder.get_output_name(index) for index in range(2)] == ["audio_embeds", "audio_embeds_mask"]
    config = model.config.audio_config
    features = np.random.default_rng(0).standard_normal((1, FRAMES, 128)).astype(np.float32)
    for frames in (FRAMES, 90, 5):
        sounding = np.arange(FRAMES) < frames
        mask = attention_mask(sounding, config.attention_context_left, config.attention_context_right)
        for name, value in zip(names, (features, sounding.astype(np.float32)[None], mask), strict=True):
            encoder.set_input(name, value)
        encoder.run(sync=True)
        got, kept = (encoder.get_output(encoder.get_output_name(index)).numpy()[0] for index in range(2))
        with torch.no_grad():
            found = model.model.get_audio_features(torch.from_numpy(features), torch.from_numpy(sounding)[None])
        rows = found.attention_mask[0].numpy()
        np.testing.assert_array_equal(kept.astype(bool), rows)
        want = found.pooler_output[0].numpy()[rows]
        assert got.shape == (FRAMES // 4, 192)
        # As docs/numerics.md section 9: rounding of fp32 over the longest reduction of each layer; the scores of up to
        # 50 before their tanh keep of it what the cap leaves.
        bound = 64 * 2**-24 * (1152 * 2) ** 0.5
        assert np.abs(got[rows] - want).max() <= bound * np.abs(want).max()


def test_in_float16(tmp_path):
    """As the vendor's programs feed it. Not a derived bound: what roundings leave of such scores and clips."""
    model = random_model()
    model.save_pretrained(tmp_path / "hf")
    package = compile_package(tmp_path / "hf", tmp_path / "out", **{**OPTIONS, "quant": "float16"})
    encoder, sounding = rt.load(package.folder / "gemma4_audio.hmm"), np.ones(FRAMES, bool)
    features = np.random.default_rng(0).standard_normal((1, FRAMES, 128)).astype(np.float16)
    encoder.set_input("input_features", features)
    encoder.set_input("input_features_mask", sounding.astype(np.float16)[None])
    encoder.set_input("audio_attention_mask", attention_mask(sounding, 13, 0).astype(np.float16))
    encoder.run(sync=True)
    with torch.no_grad():
        given = torch.from_numpy(features).float(), torch.from_numpy(sounding)[None]
        want = model.model.get_audio_features(*given).pooler_output[0].numpy()
    got = encoder.get_output("audio_embeds").numpy()[0].astype(np.float32)
    assert np.linalg.norm(got - want) / np.linalg.norm(want) < 0.02


@pytest.mark.parametrize("quant", ["float32", "float16"])
def test_bounds_that_keep_nothing_are_as_none(tmp_path, quant):
    """Infinite, as transformers makes them where a checkpoint has none, or beyond float16."""
    model, got = random_model(), []
    given = (
        np.random.default_rng(0).standard_normal((1, FRAMES, 128)),
        np.ones((1, FRAMES)),
        np.zeros((1, 1, 3, 12, 24)),
    )
    for most in (float("inf"), 1e30, None):
        with torch.no_grad():
            for name, bound in model.named_buffers():
                if name.endswith(("_min", "_max")):
                    bound.fill_(-(most or 0) if name.endswith("_min") else most or 0)
        model.config.audio_config.use_clipped_linears = most is not None
        model.save_pretrained(tmp_path / "hf")
        package = compile_package(tmp_path / "hf", tmp_path / str(most), **{**OPTIONS, "quant": quant})
        encoder = rt.load(package.folder / "gemma4_audio.hmm")
        for index, values in enumerate(given):
            encoder.set_input(encoder.get_input_name(index), values)
        encoder.run(sync=True)
        got.append(encoder.get_output("audio_embeds").numpy())
    np.testing.assert_array_equal(got[0], got[2])
    np.testing.assert_array_equal(got[1], got[2])
    assert got[2].std() > 0


def test_random_weights_make_rows_that_differ(tmp_path):
    """Random bounds of Linears leave room between them."""
    (tmp_path / "config.json").write_text(json.dumps({**FAMILY.tiny_config, "audio_config": SOUND}))
    package = compile_package(tmp_path, tmp_path / "out", random_weights=True, **OPTIONS)
    encoder, config = rt.load(package.folder / "gemma4_audio.hmm"), transformers.Gemma4AudioConfig()
    sounding = np.ones(FRAMES, np.float32)
    mask = attention_mask(sounding > 0, config.attention_context_left, config.attention_context_right)
    encoder.set_input("input_features", np.random.default_rng(0).standard_normal((1, FRAMES, 128)).astype(np.float32))
    encoder.set_input("input_features_mask", sounding[None])
    encoder.set_input("audio_attention_mask", mask)
    encoder.run(sync=True)
    rows = encoder.get_output("audio_embeds").numpy()[0]
    assert (rows.std(axis=0) > 0).all()
