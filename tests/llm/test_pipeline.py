"""Pipeline stages one after the other give what one module gives, bit for bit."""

import numpy as np
import pytest
from llm_packages import MODELS, LoadedPackage

import tcim_lite.runtime as tcim
from tcim_lite.llm import Masks, Package, cache_names, lanes_of

PROMPT = np.random.default_rng(1).integers(0, 331, 21).tolist()
NEXT = [5, 6, 7]
PREFILL_LENGTH = 16


def package_of(tiny_package, family: str = "qwen3", **options) -> Package:
    return tiny_package(family, prefill_length=PREFILL_LENGTH, context_length=64, pipeline=2, **options)


class Stages:
    """The parts of one graph. Hidden states pass through host memory, as between processes."""

    def __init__(self, package: Package, kind: str):
        self.modules = [tcim.load(package.folder / f"{package.name}_{kind}_part{stage}.hmm") for stage in range(2)]

    def run(self, rows: np.ndarray, lengths: dict[str, int]) -> np.ndarray:
        """Output of the last stage; what passes between the stages must fit by name."""
        for module in self.modules:
            name = module.get_input_name(0)
            if module is not self.modules[0]:
                assert name == self.modules[0].get_output_name(0)
            module.set_input(name, rows)
            for length, number in lengths.items():
                module.set_input(length, np.array([number], np.int32))
            for lane in lanes_of(module):
                lane.set_text_positions(module, lengths[lane.valid])
                lane.clear_deepstack(module)
            for slot, lane in enumerate(lanes_of(module)):
                Masks(module).set(lengths[lane.valid], lengths[lane.current], slot)
            module.run(sync=True)
            rows = module.get_output(module.get_output_name(0)).numpy()
        return rows

    def caches(self) -> dict[str, np.ndarray]:
        return {name: m.get_dev_input(name).numpy() for m in self.modules for name in cache_names(m)}

    def take_caches(self, caches: dict[str, np.ndarray], suffix: str = "") -> None:
        for module in self.modules:
            for name in cache_names(module):
                if name.endswith(f"cache_input{suffix}"):
                    module.set_input(name, caches[name.removesuffix(suffix)])


def prefill(stages: Stages, embedding: np.ndarray, tokens: list[int]) -> np.ndarray:
    for begin in range(0, len(tokens), PREFILL_LENGTH):
        chunk = tokens[begin : begin + PREFILL_LENGTH]
        rows = np.full((1, PREFILL_LENGTH, embedding.shape[1]), 7.0, embedding.dtype)
        rows[0, : len(chunk)] = embedding[chunk]
        logits = stages.run(rows, {"valid_length": begin, "current_length": len(chunk)})
    return logits.reshape(-1)


@pytest.mark.parametrize(("family", "quant"), MODELS)
def test_pipeline_equals_one_module(tiny_package, family, quant):
    package = package_of(tiny_package, family, quant=quant)
    single = LoadedPackage(package)
    stages = Stages(package, "prefill")
    assert prefill(stages, single._embedding, PROMPT).tobytes() == single.prefill(PROMPT).tobytes()
    caches = stages.caches()
    assert set(caches) == set(cache_names(single.prefill_module))
    decode = Stages(package, "decode")
    decode.take_caches(caches)
    for i, token in enumerate(NEXT):
        lengths = {"valid_length": len(PROMPT) + i, "current_length": 1}
        logits = decode.run(single._embedding[token].reshape(1, 1, -1), lengths)
        assert logits.tobytes() == single.decode(token, len(PROMPT) + i).tobytes()
    for name, cache in zip(cache_names(single.prefill_module), single.caches(), strict=True):
        assert decode.caches()[name].tobytes() == cache.tobytes()


def test_hidden_rows_of_padding_are_zeros(tiny_package):
    package = package_of(tiny_package)
    first = Stages(package, "prefill").modules[0]
    for current in (16, 5):
        first.set_input("input_1", np.full((1, PREFILL_LENGTH, 192), 0.5, np.float16))
        first.set_input("valid_length", np.array([0], np.int32))
        first.set_input("current_length", np.array([current], np.int32))
        first.run(sync=True)
        hidden = first.get_output("add_1").numpy()
        assert hidden.shape == (1, PREFILL_LENGTH, 192)
        assert hidden[0, :current].any(axis=1).all()
        assert not hidden[0, current:].any()


def test_slots_of_a_pipelined_batch_equal_single_ones(tiny_package):
    package = package_of(tiny_package, batch=2)
    single = LoadedPackage(package_of(tiny_package))
    batched = Stages(package, "decode")
    prompts = [PROMPT, PROMPT[:4]]
    lengths, expected = {}, []
    for slot, tokens in enumerate(prompts):
        suffix = f"_batch_{slot}" if slot else ""
        stages = Stages(package, "prefill")
        prefill(stages, single._embedding, tokens)
        batched.take_caches(stages.caches(), suffix)
        lengths |= {f"valid_length{suffix}": len(tokens), f"current_length{suffix}": 1}
        single.prefill(tokens)
        expected.append(single.decode(NEXT[slot], len(tokens)))
    logits = batched.run(single._embedding[NEXT[:2]][:, None], lengths)
    assert logits.reshape(2, -1).tobytes() == np.stack(expected).tobytes()
