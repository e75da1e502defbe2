"""Language models of vision-language families: positions along three axes, and deepstack inputs."""

from __future__ import annotations

import numpy as np
import pytest
from llm_packages import compile_package

import tcim_lite.runtime as rt
from tcim_lite.llm import load_pair

pytestmark = pytest.mark.oracle
pytest.importorskip("transformers", reason="the oracle")

from test_oracle import assert_close, logit_bound
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


def test_one_long_image(both):
    check(both, with_images(both[0], [3, 40], [[1, 4, 48]]), [32, 10])
