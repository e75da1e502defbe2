"""Language models of vision-language families: positions along three axes, and deepstack inputs."""

from __future__ import annotations

import numpy as np
import pytest
from llm_packages import compile_package

import tcim_lite.runtime as rt
from tcim_lite.llm import load_pair

pytestmark = pytest.mark.oracle
pytest.importorskip("transformers", reason="the oracle")

from oracle import assert_close, logit_bound
from vision_language import MODELS, Prompt, random_model, run, with_images

SIZES = {"prefill_length": 32, "context_length": 256}


@pytest.fixture(scope="module", params=MODELS)
def both(request, tmp_path_factory):
    """A model of transformers, and its package in float32."""
    model = random_model(request.param)
    folder = tmp_path_factory.mktemp(request.param)
    model.save_pretrained(folder / "hf")
    return model, compile_package(folder / "hf", folder / "out", quant="float32", **SIZES)


def pair_of(package):
    return load_pair(package.prefill_path, package.decode_path, rt.WeightManager(0))


def check(both, prompt: Prompt, chunks: list[int]) -> None:
    """The prompt in chunks, then the rest token by token."""
    model, package = both
    prefill, decode = pair_of(package)
    bound, done = logit_bound(model.config.text_config), 0
    for count in chunks:
        logits = run(prefill, prompt, done, count)
        done += count
        assert_close(logits, prompt.logits[done - 1], bound, f"prefill up to {done}")
    for position in range(done, len(prompt.tokens)):
        assert_close(run(decode, prompt, position, 1), prompt.logits[position], bound, f"decode at {position}")


def test_text_is_that_of_transformers(both):
    tokens = np.random.default_rng(1).integers(0, 300, 75)
    check(both, Prompt(both[0], tokens), [32, 20, 9])


@pytest.mark.parametrize("chunks", [[32, 32, 5], [7, 32, 30], [1, 1, 32, 32]])
def test_images_are_those_of_transformers(both, chunks):
    prompt = with_images(both[0], [6, 4, 11], [[1, 8, 12], [1, 8, 12]])
    assert prompt.delta < 0
    check(both, prompt, chunks)


@pytest.mark.parametrize("family", ["qwen3_vl", "paddleocr_vl"])
def test_hidden_states_of_every_token(tmp_path, family):
    """As the vendor's graph of Qwen3-VL-Embedding returns them, whose demo reads the row of the last token."""
    model, normed = random_model(family), []
    model.save_pretrained(tmp_path / "hf")
    model.model.language_model.norm.register_forward_hook(lambda module, given, found: normed.append(found))
    prompt = with_images(model, [6, 11], [[1, 4, 12]])
    sizes = {**SIZES, "hidden_states": -1, "all_logits": True, "quant": "float32"}
    package = compile_package(tmp_path / "hf", tmp_path / "out", **sizes)
    prefill = rt.load(package.prefill_path)
    assert [prefill.get_output_name(at) for at in range(prefill.get_num_outputs())] == ["hidden_states"]
    want = normed[0][0].numpy()
    found = run(prefill, prompt, 0, len(prompt.tokens)).reshape(32, -1)[: len(want)]
    assert_close(found, want, logit_bound(model.config.text_config), "hidden states")


def test_one_long_image(both):
    check(both, with_images(both[0], [3, 40], [[1, 4, 48]]), [32, 10])
