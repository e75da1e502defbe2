"""Verify and all-logits graphs: each row is what decode gives for that token, bit for bit; padding rows are zeros."""

import numpy as np
import pytest
from llm_packages import LAYER_INPUTS, MODELS, LoadedPackage

import tcim_lite.runtime as tcim
from tcim_lite.llm import Masks, Package, cache_names, lanes_of, share_kv_cache

TOKENS = 5
PROMPT = np.random.default_rng(1).integers(0, 331, 21).tolist()
DRAFT = np.random.default_rng(2).integers(0, 331, 12).tolist()


def package_of(tiny_package, family: str = "qwen3", quant: str = "w4a8h0_ssfp") -> Package:
    return tiny_package(
        family, quant=quant, prefill_length=16, context_length=64, verify_length=TOKENS, all_logits=True
    )


class Verify:
    """The verify module of a package, on the caches of `owner`."""

    def __init__(self, package: Package, owner: LoadedPackage):
        self.embedding = owner._embedding
        option = tcim.Option(tcim.WeightManager(0)).set_dummy_tensors(cache_names(owner.prefill_module))
        self.module = tcim.load(package.folder / f"{package.name}_verify.hmm", option)
        share_kv_cache(owner.prefill_module, self.module)

    def run(self, tokens: list[int], valid: int) -> np.ndarray:
        """Logits [T, V]; the rows beyond `tokens` are given other numbers than zero."""
        rows = np.full((1, TOKENS, self.embedding.shape[1]), 7.0, self.embedding.dtype)
        rows[0, : len(tokens)] = self.embedding[tokens]
        (lane,) = lanes_of(self.module)
        lane.set_rows(self.module, rows)
        self.module.set_input("valid_length", np.array([valid], np.int32))
        self.module.set_input("current_length", np.array([len(tokens)], np.int32))
        lane.set_text_positions(self.module, valid)
        lane.clear_deepstack(self.module)
        Masks(self.module).set(valid, len(tokens))
        self.module.run(sync=True)
        return self.module.get_output("logits").numpy()[0]


def decoded(package: Package, tokens: list[int]) -> tuple[np.ndarray, list[np.ndarray]]:
    """Logits [tokens, V] and caches after decoding `tokens` behind the prompt one by one."""
    loaded = LoadedPackage(package)
    loaded.prefill(PROMPT)
    logits = [loaded.decode(token, len(PROMPT) + i) for i, token in enumerate(tokens)]
    return np.stack(logits), loaded.caches()


@pytest.mark.parametrize(("family", "quant"), MODELS)
def test_verify_rows_are_what_decode_gives(tiny_package, family, quant):
    package = package_of(tiny_package, family, quant)
    expected, caches = decoded(package, DRAFT)
    owner = LoadedPackage(package)
    owner.prefill(PROMPT)
    verify = Verify(package, owner)
    for begin, end in ((0, 5), (5, 7), (7, 12)):
        logits = verify.run(DRAFT[begin:end], len(PROMPT) + begin)
        assert logits.shape == (TOKENS, 331)
        assert logits[: end - begin].tobytes() == expected[begin:end].tobytes()
        assert family in LAYER_INPUTS or not logits[end - begin :].any()  # whose runs compute all rows
    for got, want in zip(owner.caches(), caches, strict=True):
        assert got.tobytes() == want.tobytes()


def test_all_logits_of_prefill_are_those_of_decode(tiny_package):
    package = package_of(tiny_package)
    expected, _ = decoded(package, DRAFT[:3])
    loaded = LoadedPackage(package)
    loaded.prefill(PROMPT[:16])
    tokens = PROMPT[16:] + DRAFT[:3]
    rows = np.zeros((1, 16, loaded._embedding.shape[1]), loaded._embedding.dtype)
    rows[0, : len(tokens)] = loaded._embedding[tokens]
    module = loaded.prefill_module
    module.set_input(module.get_input_name(0), rows)
    module.set_input("valid_length", np.array([16], np.int32))
    module.set_input("current_length", np.array([len(tokens)], np.int32))
    module.run(sync=True)
    logits = module.get_output("logits").numpy()[0]
    assert logits.shape == (16, 331)
    assert logits[len(tokens) - 3 : len(tokens)].tobytes() == expected.tobytes()
    assert not logits[len(tokens) :].any()
