"""Vision towers of MiniCPM-V: of 4.6 against transformers, of 4.5 against a model written from its description."""

from __future__ import annotations

import functools
import json

import numpy as np
import pytest

pytestmark = pytest.mark.oracle
pytest.importorskip("transformers", reason="the oracle")
import torch
import transformers
from isas import printed_by_isa
from minicpm import CAPACITY, FRAMES, inputs_4_5, inputs_4_6, positions_of, save_4_5, save_4_6

import tcim_lite.runtime as rt
from tcim_lite.cli import main
from tcim_lite.llm.vision import VisionTower
from tcim_lite.models.families import FAMILIES

# Largest difference of a feature over the largest feature, and the least cosine. float32: the bound of
# docs/numerics.md section 9 with the widest reduction, 400, and 3 layers. Others: roundings to fp16, and of codes, over
# these layers and what is behind them.
LIMITS = {
    "float32": (64 * 2**-24 * (400 * 3) ** 0.5, 1 - 1e-9),
    "float16": (6e-3, 1 - 1e-5),
    "w8a8h1_sefp": (0.06, 0.999),
}
SIZES = [(8, 8), (4, 12), (4, 4)]  # of patches: one that fills the graph, and smaller ones
COMMON = ("--prefill-length", "8", "--context-length", "16", "--quant", "float16", "--name", "tiny", "-q")


@pytest.fixture(scope="module")
def checkpoint_4_6(tmp_path_factory):
    folder = tmp_path_factory.mktemp("minicpm46") / "hf"
    return save_4_6(folder), folder


@pytest.fixture(scope="module")
def checkpoint_4_5(tmp_path_factory):
    folder = tmp_path_factory.mktemp("minicpm45") / "hf"
    return save_4_5(folder), folder


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """Compiles a tower; equal options give the same folder."""

    @functools.cache
    def make(folder, quant):
        out = tmp_path_factory.mktemp("package")
        asked = ["--vision", str(CAPACITY), "--vision-quant", quant]
        assert main(["compile", str(folder), "-o", str(out), *COMMON, *asked]) == 0
        return out

    return make


def ports(module) -> list[tuple]:
    inputs = [module.get_input_info(module.get_input_name(i)) for i in range(module.get_num_inputs())]
    outputs = [module.get_output_info(module.get_output_name(i)) for i in range(module.get_num_outputs())]
    return [(info.name, tuple(info.shape), np.dtype(info.dtype).name) for info in (*inputs, *outputs)]


def run(module, values) -> np.ndarray:
    for index, value in enumerate(values):
        name = module.get_input_name(index)
        module.set_input(name, value.astype(np.dtype(module.get_input_info(name).dtype)))
    module.run(True)
    return module.get_output(module.get_output_name(0)).numpy().astype(np.float64)


def agree(found: np.ndarray, want: np.ndarray, quant: str) -> None:
    want, (difference, cosine) = want.astype(np.float64), LIMITS[quant]
    assert found.shape == want.shape
    assert np.abs(found - want).max() <= difference * np.abs(want).max()
    assert (found * want).sum() >= cosine * np.linalg.norm(found) * np.linalg.norm(want)


def patches(*shape: int) -> torch.Tensor:
    """Random pixels, which float16 holds."""
    drawn = np.random.default_rng(shape).uniform(-1, 1, shape).astype(np.float16)
    return torch.tensor(drawn.astype(np.float32))


@pytest.mark.parametrize("quant", LIMITS)
@pytest.mark.parametrize("mode", ["16x", "4x"])
def test_features_of_4_6_are_those_of_transformers(checkpoint_4_6, compiled, mode, quant):
    model, folder = checkpoint_4_6
    module = rt.load(compiled(folder, quant) / f"tiny_visual_{mode}.hmm")
    for rows, columns in SIZES:
        pixels = patches(1, 3, 6, rows * columns * 6)
        with torch.no_grad():
            want = model.model.get_image_features(pixels, torch.tensor([[rows, columns]]), downsample_mode=mode)
        found = run(module, inputs_4_6(pixels.numpy(), rows, columns, mode))
        live = rows * columns // (16 if mode == "16x" else 4)
        agree(found[0, :live], want.pooler_output[0].numpy(), quant)


@pytest.mark.parametrize("quant", LIMITS)
def test_features_of_4_5_are_those_of_its_description(checkpoint_4_5, compiled, quant):
    (siglip, resampler, _), folder = checkpoint_4_5
    module = rt.load(compiled(folder, quant) / "tiny_visual_1x.hmm")
    for rows, columns in [*SIZES, (7, 3)]:
        pixels = patches(3, rows * 6, columns * 6)
        with torch.no_grad():
            want = resampler([siglip(pixels)], [(rows, columns)], [None])
        agree(run(module, inputs_4_5([pixels.numpy()], 1, [None]))[0], want.numpy(), quant)


@pytest.mark.parametrize("quant", LIMITS)
@pytest.mark.parametrize("count", [1, 4, FRAMES])
def test_frames_of_a_video_are_resampled_together(checkpoint_4_5, compiled, count, quant):
    """By size and time; those that are not there take no part."""
    (siglip, resampler, _), folder = checkpoint_4_5
    module = rt.load(compiled(folder, quant) / "tiny_visual_6x.hmm")
    sizes = [(8, 8), (4, 12), (7, 3), (5, 5), (8, 7), (1, 9)][:count]
    times = [3, 4, 9, 30, 31, 200][:count]
    frames = [patches(3, rows * 6, columns * 6) for rows, columns in sizes]
    with torch.no_grad():
        want = resampler([siglip(frame) for frame in frames], sizes, times)
    agree(run(module, inputs_4_5([frame.numpy() for frame in frames], FRAMES, times))[0], want.numpy(), quant)


def test_the_oracles_siglip_is_that_of_transformers(checkpoint_4_5):
    """Where an image has as many patches as there are learned positions, both do the same."""
    (siglip, _, _), _ = checkpoint_4_5
    tiny = FAMILIES["minicpmv"].vision.tiny
    config = transformers.SiglipVisionConfig(**tiny, vision_use_head=False, attn_implementation="eager")
    theirs = transformers.SiglipVisionModel(config).eval()
    root = "vision_model." if any(name.startswith("vision_model.") for name in theirs.state_dict()) else ""
    theirs.load_state_dict({root + name: values for name, values in siglip.state_dict().items()})
    pixels = patches(3, 48, 48)
    with torch.no_grad():
        want = theirs(pixels[None]).last_hidden_state[0]
        assert (siglip(pixels) - want).abs().max() <= 2e-6 * want.abs().max()


def test_ports_are_those_of_the_vendor(checkpoint_4_6, checkpoint_4_5, compiled):
    pixels, mask = ("pixel_values", (1, 3, 6, 64 * 6), "float16"), (1, 1, 1, 64)
    ids = ("position_ids", (1, 64), "int32")
    old, new = (compiled(folder, "float16") for _, folder in (checkpoint_4_5, checkpoint_4_6))
    assert ports(rt.load(new / "tiny_visual_16x.hmm")) == [
        pixels,
        ids,
        ("pre_attention_bias", mask, "float16"),
        ("post_attention_bias", (1, 1, 1, 16), "float16"),
        ("image_embeds", (1, 4, 192), "float16"),
    ]
    assert ports(rt.load(new / "tiny_visual_4x.hmm")) == [
        pixels,
        ids,
        ("pre_attention_bias", mask, "float16"),
        ("image_embeds", (1, 16, 192), "float16"),
    ]
    assert ports(rt.load(old / "tiny_visual_1x.hmm")) == [
        pixels,
        ids,
        ("attention_bias", mask, "float16"),
        ("resampler_pos_embed", (1, 64, 256), "float16"),
        ("resampler_key_bias", mask, "float16"),
        ("image_embeds", (1, 8, 256), "float16"),
    ]
    assert ports(rt.load(old / "tiny_visual_6x.hmm")) == [
        ("pixel_values", (6, 3, 6, 64 * 6), "float16"),
        ("position_ids", (6, 64), "int32"),
        ("attention_bias", (6, 1, 1, 64), "float16"),
        ("resampler_pos_embed", (6, 64, 256), "float16"),
        ("resampler_temporal_pos_embed", (6, 64, 256), "float16"),
        ("resampler_key_bias", (1, 1, 1, 384), "float16"),
        ("image_embeds", (1, 8, 256), "float16"),
    ]
    facts = json.loads(rt.load(old / "tiny_visual_6x.hmm").get_custom_msg())
    assert (facts["patches"], facts["frames"], facts["positions_per_side"], facts["tokens"]) == (64, 6, 8, 8)


@pytest.mark.parametrize("version", ["4_6", "4_5"])
def test_language_models_are_those_of_qwen(request, compiled, version):
    """Bit for bit, from a checkpoint of the language model alone: other tensors take no part."""
    from safetensors.numpy import load_file, save_file

    _, folder = request.getfixturevalue(f"checkpoint_{version}")
    ours = compiled(folder, "float16")
    prefix, family = ("model.language_model.", "qwen3_5") if version == "4_6" else ("llm.model.", "qwen3")
    config = json.loads((folder / "config.json").read_text())
    alone = folder.parent / "alone"
    alone.mkdir()
    record = FAMILIES[family]
    text = {key: value for key, value in config.items() if key not in ("vision_config", "auto_map")}
    (alone / "config.json").write_text(
        json.dumps({**text, "model_type": family, "architectures": [record.architecture]})
    )
    names = {prefix: "model.", "llm.lm_head.": "lm_head.", "lm_head.": "lm_head."}
    kept = {
        own + name.removeprefix(start): values
        for name, values in load_file(folder / "model.safetensors").items()
        for start, own in names.items()
        if name.startswith(start)
    }
    save_file(kept, alone / "model.safetensors")
    assert main(["compile", str(alone), "-o", str(alone / "out"), *COMMON]) == 0
    assert (alone / "out" / "tiny.hmw").stat().st_size == (ours / "tiny.hmw").stat().st_size
    tokens = np.random.default_rng(2).integers(0, 300, 6)
    found = []
    for package in (ours, alone / "out"):
        module = rt.load(package / "tiny_prefill.hmm")
        table = np.fromfile(package / "hmquant" / "quant_embedding.bin", np.float16).reshape(331, -1)
        rows = np.zeros((1, 8, table.shape[1]), np.float16)
        rows[0, :6] = table[tokens]
        module.set_input("input_1", rows)
        module.set_input("current_length", np.int32([6]))
        if version == "4_6":
            module.set_input("linear_attn_mask", (np.arange(8) < 6).astype(np.float16)[None])
            for axis in range(1, 4):
                module.set_input(module.get_input_name(axis), np.arange(8, dtype=np.int32))
        module.run(True)
        found.append(module.get_output("logits").numpy())
    assert np.ptp(found[0].astype(np.float32)) > 0
    assert np.array_equal(*found)


RUN = """
import sys, numpy as np
import tcim_lite.runtime as rt
for path in sys.argv[1:]:
    module = rt.load(path)
    rng = np.random.default_rng(1)
    for name in map(module.get_input_name, range(module.get_num_inputs())):
        info = module.get_input_info(name)
        values = rng.integers(0, 64, info.shape) if "ids" in name else rng.uniform(-1, 1, info.shape)
        if "bias" in name:
            values = np.where(np.arange(info.shape[-1]) < info.shape[-1] - 5, 0.0, -65504.0) + np.zeros(info.shape)
        module.set_input(name, values.astype(np.dtype(info.dtype)))
    module.run(True)
    print(module.get_output("image_embeds").numpy().tobytes().hex())
"""


@pytest.mark.slow
@pytest.mark.parametrize(("made", "ends"), [("checkpoint_4_6", ("16x", "4x")), ("checkpoint_4_5", ("1x", "6x"))])
def test_instruction_sets_and_threads_change_no_bit(request, compiled, made, ends):
    folders = [compiled(request.getfixturevalue(made)[1], quant) for quant in ("float16", "w8a8h1_sefp")]
    graphs = [folder / f"tiny_visual_{end}.hmm" for folder in folders for end in ends]
    assert len(printed_by_isa(RUN, *graphs)) == 1


def test_a_package_owns_its_vision_graphs(checkpoint_4_6, tmp_path, capsys):
    """Compiled again without, they go; the language model alone has none."""
    from safetensors.numpy import load_file, save_file

    _, folder = checkpoint_4_6
    common = ["compile", str(folder), "-o", str(tmp_path / "out"), *COMMON]
    assert main([*common, "--vision", "16", "--self-contained"]) == 0
    assert {path.name for path in (tmp_path / "out").glob("*visual*")} == {f"tiny_visual_{n}x.hmm" for n in (4, 16)}
    with pytest.raises(
        FileNotFoundError, match=r"has vision graphs tiny_visual_16x.hmm, .*; this class feeds those of Q"
    ):
        VisionTower(tmp_path / "out", "tiny")
    assert main(common) == 0
    assert not list((tmp_path / "out").glob("*visual*"))
    (tmp_path / "hf").mkdir()
    (tmp_path / "hf" / "config.json").write_bytes((folder / "config.json").read_bytes())
    tensors = load_file(folder / "model.safetensors").items()
    kept = {name: values for name, values in tensors if "vision" not in name and "merger" not in name}
    save_file(kept, tmp_path / "hf" / "model.safetensors")
    assert main(["compile", str(tmp_path / "hf"), "-o", str(tmp_path / "alone"), *COMMON, "--vision", "16"]) == 2
    assert "has no tensors model.vision_tower.* or model.merger.*" in capsys.readouterr().err


def test_positions_of_the_oracle_are_those_of_transformers():
    from transformers.vision_utils import get_vision_nearest_position_ids

    for rows, columns in [(8, 8), (7, 3), (5, 6)]:
        want = get_vision_nearest_position_ids(torch.tensor([[rows, columns]]), 8).numpy()
        assert np.array_equal(positions_of(rows, columns, 8), want)
