"""Pipeline stages one after the other give what one module gives, bit for bit."""

import numpy as np
import pytest
from engine_tools import run
from llm_packages import HYBRIDS, LAYER_INPUTS, MODELS, LoadedPackage

import tcim_lite.runtime as tcim
from tcim_lite.llm import Masks, Package, lanes_of, share_carried
from tcim_lite.llm.engine import Engine, SamplingParams, Slots

PROMPT = np.random.default_rng(1).integers(0, 331, 21).tolist()
NEXT = [5, 6, 7]
PREFILL_LENGTH = 16


def package_of(tiny_package, family: str = "qwen3", **options) -> Package:
    return tiny_package(family, prefill_length=PREFILL_LENGTH, context_length=64, pipeline=2, **options)


class Stages:
    """The parts of one graph. Hidden states pass through host memory, as between processes."""

    def __init__(self, package: Package, kind: str):
        self.modules = [tcim.load(package.folder / f"{package.name}_{kind}_part{stage}.hmm") for stage in range(2)]
        for module in self.modules:
            if len(lanes_of(module)) == 1:
                share_carried(module, [])

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
                lane.set_linear_mask(module, lengths[lane.current])
            for slot, lane in enumerate(lanes_of(module)):
                Masks(module).set(lengths[lane.valid], lengths[lane.current], slot)
            module.run(sync=True)
            rows = module.get_output(module.get_output_name(0)).numpy()
        return rows

    def caches(self) -> dict[str, np.ndarray]:
        return {name: m.get_dev_input(name).numpy() for m in self.modules for name in kept_names(m)}

    def take_caches(self, caches: dict[str, np.ndarray], suffix: str = "") -> None:
        for module in self.modules:
            for name in kept_names(module):
                if name.endswith(suffix) and (suffix or "_batch_" not in name):
                    module.set_input(name, caches[name.removesuffix(suffix)])


def kept_names(module) -> list[str]:
    """Caches, and what linear attention hands from run to run."""
    return [name for lane in lanes_of(module) for name in (*lane.caches, *lane.carried)]


def prefill(stages: Stages, embedding: np.ndarray, tokens: list[int]) -> np.ndarray:
    for begin in range(0, len(tokens), PREFILL_LENGTH):
        chunk = tokens[begin : begin + PREFILL_LENGTH]
        rows = np.full((1, PREFILL_LENGTH, embedding.shape[1]), 7.0, embedding.dtype)
        rows[0, : len(chunk)] = embedding[chunk]
        logits = stages.run(rows, {"valid_length": begin, "current_length": len(chunk)})
    return logits.reshape(-1)


# Both stages have a cache and states.
HYBRID = {"config": {"layer_types": ["linear_attention", "full_attention", "linear_attention", "full_attention"]}}
CASES = [(family, quant, {}) for family, quant in MODELS if family not in LAYER_INPUTS]
CASES += [(family, "w4a8h0_ssfp", {} if family.startswith("lfm") else HYBRID) for family in HYBRIDS]
CASES += [("qwen3_5", "float32", HYBRID | {"split_conv": True, "recurrent_in_place": True})]


@pytest.mark.parametrize(("family", "quant", "options"), CASES)
def test_pipeline_equals_one_module(tiny_package, family, quant, options):
    package = package_of(tiny_package, family, quant=quant, **options)
    single = LoadedPackage(package)
    stages = Stages(package, "prefill")
    assert prefill(stages, single._embedding, PROMPT).tobytes() == single.prefill(PROMPT).tobytes()
    caches = stages.caches()
    assert set(caches) == set(kept_names(single.prefill_module))
    decode = Stages(package, "decode")
    decode.take_caches(caches)
    for i, token in enumerate(NEXT):
        lengths = {"valid_length": len(PROMPT) + i, "current_length": 1}
        logits = decode.run(single._embedding[token].reshape(1, 1, -1), lengths)
        assert logits.tobytes() == single.decode(token, len(PROMPT) + i).tobytes()
    for name in kept_names(single.prefill_module):
        assert decode.caches()[name].tobytes() == single.prefill_module.get_dev_input(name).numpy().tobytes()


def with_deepstack(module, rows: np.ndarray, features: dict[str, np.ndarray]) -> np.ndarray:
    """Output 0 of a prefill graph or of a stage, for an image that fills the first chunk."""
    module.set_input(module.get_input_name(0), rows)
    module.set_input("valid_length", np.int32([0]))
    module.set_input("current_length", np.int32([PREFILL_LENGTH]))
    (lane,) = lanes_of(module)
    lane.set_text_positions(module, 0)
    for name in lane.deepstack:
        module.set_input(name, features[name])
    module.run(sync=True)
    return module.get_output(module.get_output_name(0)).numpy()


def test_stages_name_deepstack_inputs_by_the_layers_of_the_model(tiny_package):
    package = package_of(tiny_package, "qwen3_vl", quant="float16")
    whole, stages = tcim.load(package.prefill_path), Stages(package, "prefill").modules
    names = [lanes_of(module)[0].deepstack for module in (whole, *stages)]
    assert names[0] == names[1] + names[2] == tuple(f"deepstack_image_embed_{layer}" for layer in range(3))
    assert names[2]
    rng = np.random.default_rng(3)
    rows, *features = rng.normal(0, 0.5, (4, 1, PREFILL_LENGTH, 192)).astype(np.float16)
    given = dict(zip(names[0], features, strict=True))
    found = rows
    for module in stages:
        found = with_deepstack(module, found, given)
    assert found.tobytes() == with_deepstack(whole, rows, given).tobytes()
    assert found.tobytes() != with_deepstack(whole, rows, {**given, names[2][0]: features[0]}).tobytes()


def test_the_engine_runs_stages_with_states(tiny_package, monkeypatch, strict_mode):
    monkeypatch.setenv("TCIM_LITE_DEVICE_NUM", "2")
    package = package_of(tiny_package, "qwen3_next", **HYBRID)
    answers = []
    for slots in (Slots.open(package), Slots.open(package, devices=[0, 1], pipeline=True)):
        engine = Engine(slots)
        for index, prompt in enumerate((PROMPT, PROMPT[3:9])):
            engine.add(prompt, SamplingParams(max_tokens=6), request_id=str(index))
        answers.append(run(engine)[0])
    assert answers[0] == answers[1]


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
