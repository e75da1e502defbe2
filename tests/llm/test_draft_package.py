"""What host code finds in a folder with a speculative pair."""

import numpy as np
import pytest
from llm_packages import LoadedPackage

from tcim_lite.llm import Package

OPTIONS = {"prefill_length": 16, "context_length": 64}
TOKENS = np.random.default_rng(1).integers(0, 331, 20).tolist()


def test_the_draft_is_a_package_of_its_own_that_open_does_not_take_for_the_target(tiny_package):
    package = tiny_package(draft_quant="w8a8h1_sefp", **OPTIONS)
    assert (package.name, package.draft.name) == ("qwen3", "qwen3_draft")
    assert Package.open(package.folder, "qwen3_draft") == package.draft
    target, draft = LoadedPackage(package), LoadedPackage(package.draft)
    assert target.prefill(TOKENS).tobytes() == LoadedPackage(tiny_package(**OPTIONS)).prefill(TOKENS).tobytes()
    alone = LoadedPackage(tiny_package(quant="w8a8h1_sefp", **OPTIONS))
    assert draft.prefill(TOKENS).tobytes() == alone.prefill(TOKENS).tobytes()


def test_a_draft_of_other_tensors_has_its_own_embedding(tiny_package):
    package = tiny_package(draft_quant="float32", **OPTIONS)
    assert package.embedding(192, 331).dtype == np.float16
    assert package.draft.embedding(192, 331).dtype == np.float32


def test_a_package_without_a_draft_says_so(tiny_package):
    with pytest.raises(FileNotFoundError, match=r"compile CHECKPOINT .* --draft CHECKPOINT"):
        _ = tiny_package(**OPTIONS).draft
