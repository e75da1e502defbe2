"""Graphs that take the positions of their tokens along time, height and width: text alone, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from llm_packages import LoadedPackage

import tcim_lite.runtime as rt
from tcim_lite.errors import ArgumentError
from tcim_lite.llm import cache_names, lanes_of, load_pair
from tcim_lite.models.families import FAMILIES, read_config

SIZES = {"prefill_length": 16, "context_length": 64}
TOKENS = np.random.default_rng(3).integers(0, 331, 64).tolist()
# A family that has the same layers and one position, and what its tiny config must be for that.
PLAIN = {
    "qwen3_vl": "qwen3",
    "qwen3_vl_moe": "qwen3_moe",
    "qwen2_5_vl": "qwen2",
    "qwen2_vl": "qwen2",
    "paddleocr_vl": "llama",
}
# The vendor's spellings: what its programs in C++ look for in the names of each family's inputs.
HEIGHTS = ["hight_position_ids", "height_position_ids"]
QUANTS = ["w4a8h0_ssfp", "w8a8h1_sefp", "float16", "float32"]


def answers(package) -> list[bytes]:
    """Logits of chunks and steps up to a full context, and the caches."""
    loaded = LoadedPackage(package)
    found = [loaded.prefill(TOKENS[:33])]
    found += [loaded.decode(token, position) for position, token in enumerate(TOKENS[33:], 33)]
    return [array.tobytes() for array in [*found, *loaded.caches()]]


@pytest.mark.parametrize(
    ("family", "quant"), [*((family, QUANTS[0]) for family in PLAIN), *(("qwen3_vl", quant) for quant in QUANTS[1:])]
)
def test_text_is_rotated_as_by_one_position_to_the_bit(tiny_package, family, quant):
    config = {key: value for key, value in FAMILIES[family].tiny.items() if key != "rope_parameters"}
    rope = {
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": FAMILIES[family].tiny["rope_parameters"]["rope_theta"],
        }
    }
    plain = tiny_package(PLAIN[family], config=config | rope, quant=quant, **SIZES)
    assert answers(tiny_package(family, quant=quant, **SIZES)) == answers(plain)


@pytest.mark.parametrize("family", PLAIN)
def test_inputs_are_those_of_the_vendor(tiny_package, family):
    package = tiny_package(family, **SIZES)
    deepstack = [f"deepstack_image_embed_{layer}" for layer in range(3)] if family.startswith("qwen3_vl") else []
    axes = ["time_position_ids", HEIGHTS[family.startswith("qwen3_vl")], "width_position_ids"]
    pair = load_pair(package.prefill_path, package.decode_path, rt.WeightManager(0))
    for module, tokens in zip(pair, (16, 1), strict=True):
        names = [module.get_input_name(i) for i in range(module.get_num_inputs())]
        leading = ["input_1", *axes, "valid_length", "current_length", *deepstack]
        assert names == [*leading, *cache_names(module)]
        for name in axes:
            assert (module.get_input_info(name).shape, module.get_input_info(name).dtype) == ((tokens,), np.int32)
        for name in deepstack:
            assert module.get_input_info(name).shape == module.get_input_info("input_1").shape
        for name in HEIGHTS:
            assert module.get_input_info(name).name == axes[1]
        assert module.get_input_info("past_seq_length").name == "valid_length"


@pytest.fixture(scope="module")
def modules(tiny_package):
    package = tiny_package("qwen3_vl", **SIZES)
    return load_pair(package.prefill_path, package.decode_path, rt.WeightManager(0))


def logits(module, axes, current=16, valid=0, deepstack=0.0) -> bytes:
    (lane,) = lanes_of(module)
    shape = module.get_input_info("input_1").shape
    module.set_input("input_1", np.random.default_rng(1).standard_normal(shape).astype(np.float16))
    module.set_input(lane.valid, valid)
    module.set_input(lane.current, current)
    for name, positions in zip(lane.positions, axes, strict=True):
        module.set_input(name, np.asarray(positions))
    for name in lane.deepstack:
        module.set_input(name, np.full(shape, deepstack))
    module.run(True)
    return module.get_output("logits").numpy().tobytes()


def test_every_axis_and_deepstack_count(modules):
    prefill, counted = modules[0], np.arange(16)
    plain = logits(prefill, [counted] * 3)
    found = {plain, logits(prefill, [counted] * 3, deepstack=0.25)}
    for axis in range(3):
        axes = [counted // 2 if other == axis else counted for other in range(3)]
        found.add(logits(prefill, axes))
    assert len(found) == 5
    for kind in (np.int64, np.float16, np.int16):
        assert logits(prefill, [counted.astype(kind)] * 3) == plain


@pytest.mark.parametrize("axis", range(3))
@pytest.mark.parametrize("wrong", [64, -1, 1 << 30])
def test_positions_that_the_graph_has_not_are_refused(modules, axis, wrong):
    positions = [np.arange(16) for _ in range(3)]
    positions[axis][4] = wrong
    name = modules[0].get_input_name(1 + axis)
    message = rf"'{name}' is {wrong} for token 4, expected 0 to 63, the positions that this graph has"
    with pytest.raises(ArgumentError, match=message):
        logits(modules[0], positions)
    assert logits(modules[0], positions, current=4)  # as padding it is nothing


def test_decode_takes_positions_behind_its_length(modules):
    decode = modules[1]
    assert logits(decode, [[7]] * 3, 1, 20) != logits(decode, [[20]] * 3, 1, 20)
    with pytest.raises(ArgumentError, match="'width_position_ids' is 64"):
        logits(decode, [[7], [7], [64]], 1, 20)


def test_padding_influences_nothing(modules):
    prefill, found = modules[0], set()
    for rest in (0, 63, -5, 1 << 30):
        found.add(logits(prefill, [[*range(5), *[rest] * 11]] * 3, 5))
    assert len(found) == 1


def test_configs_are_read_nested_and_flat():
    flat = FAMILIES["qwen2_5_vl"].tiny_config
    text = {key: flat[key] for key in FAMILIES["qwen2_5_vl"].tiny if key != "tie_word_embeddings"}
    outer = {key: flat[key] for key in ("architectures", "model_type", "tie_word_embeddings")}
    nested = read_config({**outer, "text_config": {**text, "model_type": "qwen2_5_vl_text"}, "vision_config": {}})
    assert nested == read_config(flat)
    assert nested.axes == (0,) * 8 + (1,) * 12 + (2,) * 12
    interleaved = read_config(FAMILIES["qwen3_vl"].tiny_config).axes
    assert interleaved == (0, 1, 2) * 10 + (0, 0)


@pytest.mark.parametrize("family", PLAIN)
def test_floats_widen_the_rows_of_the_tables(tiny_package, monkeypatch, family):
    monkeypatch.setenv("TCIM_LITE_NUMERICS", "float")
    config = {key: value for key, value in FAMILIES[family].tiny.items() if key != "rope_parameters"}
    rope = {"rope_type": "default", "rope_theta": FAMILIES[family].tiny["rope_parameters"]["rope_theta"]}
    plain = tiny_package(PLAIN[family], config=config | {"rope_parameters": rope}, **SIZES)
    assert answers(tiny_package(family, **SIZES)) == answers(plain)


def test_floats_run_a_hybrid_of_fp16_as_one_of_fp32(tiny_package, monkeypatch):
    def logits(quant):
        return LoadedPackage(tiny_package("qwen3_5", quant=quant, **SIZES)).prefill(TOKENS[:20])

    want = logits("float32")
    monkeypatch.setenv("TCIM_LITE_NUMERICS", "float")
    got = logits("float16")
    assert np.linalg.norm(got - want) < 4e-3 * np.linalg.norm(want)
