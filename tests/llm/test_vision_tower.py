"""Vision towers, compiled from checkpoints, against those of transformers."""

from __future__ import annotations

import functools
import json
import shutil
import warnings
from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.oracle
pytest.importorskip("transformers", reason="the oracle")
import torch
from isas import printed_by_isa
from tower_features import GEARS, GLM_CODES, LIMITS, Exported, ends, expected, image, sizes
from vision_language import TOWERS, random_model

import tcim_lite.runtime as rt
from tcim_lite.cli import main
from tcim_lite.image_grid import windows_of
from tcim_lite.llm.vision import VisionTower, patches_of

# Sides that are no whole windows, whole ones, and one token.
SIZES = [(80, 112), (64, 96), (16, 16)]
QWEN = [family for family in TOWERS if family.startswith("qwen")]


@pytest.fixture(scope="module", params=TOWERS)
def checkpoint(request, tmp_path_factory):
    """A family, a model of transformers with random weights, and its checkpoint."""
    folder = tmp_path_factory.mktemp(request.param) / "hf"
    model = random_model(request.param)
    model.save_pretrained(folder)
    return request.param, model, folder


@pytest.fixture(scope="module")
def compiled(checkpoint, tmp_path_factory):
    """Compiles the tower; equal options give the same folder."""
    family, _, folder = checkpoint

    @functools.cache
    def make(*options: str) -> Path:
        out = tmp_path_factory.mktemp(family)
        sizes = ("--prefill-length", "8", "--context-length", "16", "--quant", "float16")
        assert main(["compile", str(folder), "-o", str(out), "--name", "tiny", *sizes, *options, "-q"]) == 0
        return out

    return make


@pytest.mark.parametrize("quant", LIMITS)
@pytest.mark.parametrize("size", SIZES)
def test_features_are_those_of_transformers(checkpoint, compiled, size, quant):
    family, model, _ = checkpoint
    tower = VisionTower(compiled(*sizes(family, *size), "--vision-quant", quant), "tiny")
    found, want = tower.see(image(*size)), expected(model, image(*size))
    assert [part.shape for part in found] == [part.shape for part in want]
    assert len(found) == (4 if family == "qwen3_vl" else 1)
    for ours, theirs in zip(*([part.astype(np.float64) for part in parts] for parts in (found, want)), strict=True):
        difference, cosine = GLM_CODES if (family, quant) == ("glm_ocr", "w8a8h1_sefp") else LIMITS[quant]
        assert np.abs(ours - theirs).max() <= difference * np.abs(theirs).max()
        assert (ours * theirs).sum() >= cosine * np.linalg.norm(ours) * np.linalg.norm(theirs)


@pytest.mark.parametrize("checkpoint", ["qwen3_5"], indirect=True, scope="module")
@pytest.mark.parametrize("quant", LIMITS)
def test_a_tower_with_gears_may_be_for_one_size(checkpoint, compiled, quant):
    """The input has the name of that of gears too: programs use either."""
    _, model, _ = checkpoint
    folder = compiled("--vision", "80x112", "--vision-quant", quant)
    tower = VisionTower(folder, "tiny")
    assert tower.size == (80, 112)
    module = rt.load(folder / "tiny_visual.hmm")
    assert [module.get_input_info(name).shape for name in ("image", "pixel_values")] == [(1, 3, 2, 80, 112)] * 2
    (found,), (want,) = tower.see(image(80, 112)), expected(model, image(80, 112))
    ours, theirs = found.astype(np.float64), want.astype(np.float64)
    difference, cosine = LIMITS[quant]
    assert np.abs(ours - theirs).max() <= difference * np.abs(theirs).max()
    assert (ours * theirs).sum() >= cosine * np.linalg.norm(ours) * np.linalg.norm(theirs)


def test_inputs_and_outputs_are_those_of_the_vendor(checkpoint, compiled):
    family, _, _ = checkpoint
    folder = compiled(*sizes(family, 80, 112))
    module = rt.load(folder / f"tiny_visual{ends(family)[-1]}.hmm")
    inputs = [module.get_input_info(module.get_input_name(i)) for i in range(module.get_num_inputs())]
    outputs = [module.get_output_info(module.get_output_name(i)) for i in range(module.get_num_outputs())]
    shown = [(info.name, tuple(info.shape), np.dtype(info.dtype).name) for info in (*inputs, *outputs)]
    assert (
        shown
        == {
            "qwen3_vl": [
                ("image", (1, 3, 2, 80, 112), "float16"),
                ("image_embeds", (1, 35, 192), "float16"),
                *((f"deepstack_feature_{i}", (1, 35, 192), "float16") for i in range(3)),
            ],
            "qwen2_5_vl": [
                ("image", (1, 3, 2, 80, 112), "float16"),
                ("window_index", (35,), "int32"),
                ("image_embeds", (35, 384), "float16"),
            ],
            "qwen2_vl": [("pixel_values", (140, 384), "float16"), ("image_embeds", (35, 384), "float16")],
            "glm_ocr": [("pixel_values", (140, 384), "float16"), ("image_embeds", (35, 192), "float16")],
            "qwen3_5": [
                ("pixel_values", (1, 140, 384), "float16"),
                ("position_ids", (4, 140), "int32"),
                ("position_weights", (4, 140), "float16"),
                ("rotary_position_ids", (2, 140), "int32"),
                ("attention_mask", (1, 1, 1, 140), "float16"),
                ("image_embeds", (1, 35, 192), "float16"),
            ],
            "paddleocr_vl": [("image", (1, 1, 3, 80, 112), "float16"), ("image_embeds", (1, 35, 192), "float16")],
        }[family]
    )
    assert json.loads(module.get_custom_msg())["quant"] == "float16"  # that of the body, where it is float


@pytest.mark.parametrize("checkpoint", QWEN, indirect=True, scope="module")
def test_features_are_those_of_an_onnx_export(checkpoint, compiled, tmp_path):
    """The same formulas by another way into a graph; its file goes into the package's folder and leaves the others."""
    pytest.importorskip("onnx", reason="needs the extra [onnx]")
    family, model, _ = checkpoint
    shutil.copytree(compiled(*sizes(family, 80, 112), "--vision-quant", "float32"), tmp_path / "package")
    before = sorted((tmp_path / "package").rglob("*"))
    patches, path = patches_of(image(80, 112), 8, 2, 2), tmp_path / "package" / "exported.hmm"
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        example, file = torch.tensor(patches).float(), str(tmp_path / "exported.onnx")
        exported = Exported(model.model.visual, 10, 14).eval()
        torch.onnx.export(exported, (example,), file, dynamo=False, opset_version=17, input_names=["patches"])
    asked = ["--name", "exported", "--quant", "float32", "-q"]
    assert main(["compile", file, "-o", str(path.parent), *asked]) == 0
    assert sorted(path.parent.rglob("*")) == sorted([*before, path])
    module = rt.load(path)
    module.set_input("patches", patches.astype(np.float32))
    module.run(True)
    want = module.get_output(module.get_output_name(0)).numpy()
    found = VisionTower(path.parent, "tiny").see(image(80, 112))[0]
    assert np.abs(found - want).max() <= LIMITS["float32"][0] * np.abs(want).max()


@pytest.mark.parametrize("checkpoint", ["qwen2_5_vl"], indirect=True, scope="module")
def test_a_mask_of_the_windows_gives_the_same(compiled):
    plain, masked = (
        VisionTower(compiled("--vision", "80x112", "--vision-quant", "float32", *more), "tiny").see(image(80, 112))[0]
        for more in ((), ("--vision-mask",))
    )
    assert np.abs(plain - masked).max() <= 4e-6 * np.abs(plain).max()


@pytest.mark.parametrize("checkpoint", ["qwen2_5_vl", "qwen3_vl"], indirect=True, scope="module")
def test_an_image_of_two_frames_is_seen_whole(checkpoint, compiled):
    """Frames of a video differ; an image is both. Graphs of gears take patches instead."""
    family, model, _ = checkpoint
    folder = compiled("--vision", "64x96", "--vision-quant", "float32")
    frames = np.stack([image(64, 96), image(96, 64).reshape(3, 64, 96)])
    vision = model.config.vision_config
    each = [patches_of(frame, 8, 2, 1) for frame in frames]  # [patches, 3 * 64]
    patches = np.stack([part.reshape(-1, 3, 64) for part in each], axis=2).reshape(len(each[0]), -1)
    with torch.no_grad():
        want = model.model.visual(torch.tensor(patches).float(), grid_thw=torch.tensor([[1, 8, 12]]), return_dict=True)
    module = rt.load(folder / "tiny_visual.hmm")
    facts = json.loads(module.get_custom_msg())
    mean, deviation = (np.reshape(facts[key], (1, 3, 1, 1, 1)) for key in ("image_mean", "image_std"))
    colours = (frames.transpose(1, 0, 2, 3)[None].astype(np.float64) * deviation + mean) * 255
    module.set_input("image", colours.astype(np.float32))
    if family == "qwen2_5_vl":
        module.set_input("window_index", np.concatenate(windows_of(4, 6, vision.window_size // 16)))
    module.run(True)
    theirs = want.pooler_output.numpy()
    found = module.get_output("image_embeds").numpy().reshape(theirs.shape)
    assert np.abs(found - theirs).max() <= LIMITS["float32"][0] * np.abs(theirs).max()


@pytest.mark.parametrize("checkpoint", ["qwen2_5_vl", "qwen3_vl"], indirect=True, scope="module")
def test_colours_are_those_of_a_photograph(checkpoint, compiled):
    """0 to 255, which the graph makes what the processor of released checkpoints would."""
    from transformers.image_utils import (
        IMAGENET_STANDARD_MEAN,
        IMAGENET_STANDARD_STD,
        OPENAI_CLIP_MEAN,
        OPENAI_CLIP_STD,
    )

    family, model, _ = checkpoint
    photograph = np.random.default_rng(4).integers(0, 256, (3, 64, 96), dtype=np.uint8)
    known = (IMAGENET_STANDARD_MEAN, IMAGENET_STANDARD_STD)
    if family == "qwen2_5_vl":
        known = (OPENAI_CLIP_MEAN, OPENAI_CLIP_STD)
    mean, deviation = (np.float32(colours)[:, None, None] for colours in known)
    processed = ((photograph / np.float32(255) - mean) / deviation).astype(np.float16)
    module = rt.load(compiled("--vision", "64x96", "--vision-quant", "float16") / "tiny_visual.hmm")
    module.set_input("image", np.repeat(photograph[None, :, None], 2, axis=2).astype(np.float16))
    if family == "qwen2_5_vl":
        side = model.config.vision_config.window_size // 16
        module.set_input("window_index", np.concatenate(windows_of(4, 6, side)))
    module.run(True)
    found, want = module.get_output("image_embeds").numpy().reshape(24, -1), expected(model, processed)[0]
    assert np.abs(found - want).max() <= LIMITS["float16"][0] * np.abs(want).max()


@pytest.mark.parametrize("checkpoint", ["qwen3_5"], indirect=True, scope="module")
def test_a_gear_sees_an_image_as_a_larger_one_does(compiled):
    """Padding takes no part: features of 24 tokens are those of a graph that they fill."""
    tower = VisionTower(compiled("--vision", GEARS, "--vision-quant", "float32"), "tiny")
    assert list(tower.gears) == [6, 24, 35]
    (fits,) = tower.see(image(64, 96))
    del tower.gears[24]
    (padded,) = tower.see(image(64, 96))
    assert np.abs(fits - padded).max() <= 4e-6 * np.abs(fits).max()
    with pytest.raises(ValueError, match="an image of 36 tokens is more than the largest graph takes, 35; make it sm"):
        tower.see(image(96, 96))
    with pytest.raises(ValueError, match="an image of 64 x 90 pixels: both sides must be multiples of 16"):
        tower.see(image(64, 90))
    assert tower.fitting(300, 300) == (80, 80)
    assert tower.fitting(3, 3000) == (16, 35 * 16)


RUN = """
import sys, numpy as np
from tcim_lite.llm.vision import VisionTower
pixels = np.random.default_rng(1).uniform(-1, 1, (3, 80, 112)).astype(np.float16)
for folder in sys.argv[1:]:
    print(b"".join(part.tobytes() for part in VisionTower(folder, "tiny").see(pixels)).hex())
"""


@pytest.mark.slow
def test_instruction_sets_and_threads_change_no_bit(checkpoint, compiled):
    asked = sizes(checkpoint[0], 80, 112)
    folders = [compiled(*asked, "--vision-quant", quant) for quant in ("float16", "w8a8h1_sefp")]
    assert len(printed_by_isa(RUN, *folders)) == 1


def test_a_vision_graph_belongs_to_its_package(checkpoint, compiled, tmp_path):
    """One file for each graph and one of weights, or weights in each; compiled again without, they go."""
    family, _, folder = checkpoint
    common = ["compile", str(folder), "-o", str(tmp_path), "--prefill-length", "8", "--context-length", "16", "-q"]
    asked = sizes(family, 80, 112)
    others = ["_112x80x2"] if ends(family) == [""] else []  # the name that says the size
    graphs = {f"{family}_visual{end}.hmm" for end in (*ends(family), *others)}

    def there() -> set[str]:
        return {path.name for path in tmp_path.glob("*visual*")}

    assert main([*common, *asked]) == 0
    assert there() == graphs | {f"{family}_visual.hmw"}
    whole, *named = [(tmp_path / f"{family}_visual{end}.hmm").read_bytes() for end in (ends(family)[0], *others)]
    assert named == [whole] * len(others)
    graph = rt.load(tmp_path / f"{family}_visual{ends(family)[0]}.hmm")
    assert json.loads(graph.get_custom_msg())["quant"] == "w8a8h1_sefp"  # beside a body of four bits
    del graph
    assert main([*common, *asked, "--self-contained"]) == 0
    assert there() == graphs
    assert len(VisionTower(tmp_path, family).see(image(80, 112))[0]) == 35
    assert main(common) == 0
    assert there() == set()
    with pytest.raises(FileNotFoundError, match=r"has no vision graph .*; compile the whole checkpoint with --vision"):
        VisionTower(tmp_path, family)


@pytest.mark.parametrize("checkpoint", ["paddleocr_vl"], indirect=True, scope="module")
def test_tensors_may_have_the_names_of_modules(checkpoint, compiled, tmp_path):
    """As of transformers' own modules, instead of those of released checkpoints, which transformers writes too."""
    from safetensors.numpy import load_file, save_file

    released = {"visual.": "model.visual.", "mlp_AR.": "model.projector.", "model.": "model.language_model."}
    shutil.copytree(checkpoint[2], tmp_path / "hf")
    path = tmp_path / "hf" / "model.safetensors"
    tensors = load_file(path)
    starts = {name: next(start for start in released if name.startswith(start)) for name in tensors}
    assert set(starts.values()) == set(released)
    renamed = {released[start] + name.removeprefix(start): tensors[name] for name, start in starts.items()}
    save_file(renamed, path)
    asked = ["--prefill-length", "8", "--context-length", "16", "--quant", "float16", "--vision", "64x96"]
    assert main(["compile", str(path.parent), "-o", str(tmp_path / "out"), "--name", "tiny", *asked, "-q"]) == 0
    for weights in ("tiny.hmw", "tiny_visual.hmw"):
        assert (tmp_path / "out" / weights).read_bytes() == (compiled("--vision", "64x96") / weights).read_bytes()


def test_a_language_model_alone_has_no_tower(checkpoint, tmp_path, capsys):
    from safetensors.numpy import load_file, save_file

    shutil.copytree(checkpoint[2], tmp_path / "hf")
    path = tmp_path / "hf" / "model.safetensors"
    save_file({name: values for name, values in load_file(path).items() if "visual" not in name}, path)
    asked = sizes(checkpoint[0], 64, 96)
    assert main(["compile", str(tmp_path / "hf"), "-o", str(tmp_path / "out"), *asked, "-q"]) == 2
    message = "has no tensors model.visual.*, visual.* or thinker.visual.*; expected the checkpoint of the whole"
    assert message in capsys.readouterr().err
