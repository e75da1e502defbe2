"""From the bytes of images to answers about them: as transformers answers, for every kind of tower."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.oracle
pytest.importorskip("transformers", reason="the oracle")

from image_models import (
    GearModel,
    Gemma,
    GemmaThatSeesBothWays,
    GemmaWithLayerInputs,
    GridModel,
    MiniCpm45,
    MiniCpm46,
    png,
)
from omni_images import Omni

from tcim_lite.llm.engine import Engine, SamplingParams, answer_all
from tcim_lite.llm.images import ImagePrompts

WIDE = {"prefill_length": 80}  # for images that see themselves
MODELS = {
    "qwen3_vl": (GridModel, "qwen3_vl", "64x96", {}),
    "qwen2_5_vl": (GridModel, "qwen2_5_vl", "64x96", {}),
    "qwen2_vl": (GridModel, "qwen2_vl", "64x96", {}),
    "paddleocr_vl": (GridModel, "paddleocr_vl", "64x96", {}),
    "glm_ocr": (GridModel, "glm_ocr", "64x96", {}),
    "qwen3_5": (GearModel, "qwen3_5", "6,35", {"batch": 2}),
    "qwen3_5 of one size": (GridModel, "qwen3_5", "64x96", {}),
    "qwen3_omni_moe": (Omni, "qwen3_omni_moe", "64x96", {}),
    "gemma4": (Gemma, "gemma4", "70", {"batch": 2}),
    "gemma4 with inputs of layers": (GemmaWithLayerInputs, "gemma4", "70", {}),
    "gemma4 that sees both ways": (GemmaThatSeesBothWays, "gemma4", "70", WIDE),
    "minicpmv": (MiniCpm45, "minicpmv", "64", {"batch": 2}),
    "minicpmv4_6": (MiniCpm46, "minicpmv4_6", "64", {"batch": 2}),
}


@pytest.fixture(scope="module", params=MODELS)
def tiny(request, tmp_path_factory):
    kind, family, vision, options = MODELS[request.param]
    return kind(family, tmp_path_factory.mktemp("images"), vision, **options)


def test_answers_are_those_of_transformers(tiny, strict_mode):
    """An image, the same again, and another one, which MiniCPM-V sees in rows and columns of slices."""
    images = ImagePrompts.open(tiny.package, tiny.tokenizer)
    files = [png(50, 70, 1), png(50, 70, 1), png(90, 100, 2)]
    shown = [images.take(file) for file in files]
    assert shown[0] is shown[1]
    text = "<|im_start|>user\nOne " + f" and {tiny.written}".join(["", "", "", "?<|im_end|>\n"])
    tokens = tiny.tokenizer.encode(images.expand(text, shown), add_special_tokens=False).ids
    prompt = images.place(tokens, shown)
    engine = Engine.open(tiny.package)
    (event,) = answer_all(engine, [prompt], SamplingParams(max_tokens=5, logprobs=0))
    assert len(event.token_ids) == 5
    want, bound = tiny.logprobs([*tokens, *event.token_ids], files)
    for place, found in enumerate(event.logprobs, len(tokens) - 1):
        assert abs(found.logprob - want[place, found.token]) <= bound
        assert want[place].max() - want[place, found.token] <= bound
