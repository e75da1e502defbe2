"""Several devices together give what one gives, bit for bit: logits and caches, under the same names and shapes."""

import json

import numpy as np
import pytest
from llm_packages import HYBRIDS, LAYER_INPUTS, MODELS, TINY_CONFIG, LoadedPackage, compile_package

import tcim_lite.runtime as tcim
from tcim_lite.llm import Package, cache_names, lanes_of, share_kv_cache
from tcim_lite.models.blocks import Mamba2
from tcim_lite.models.blocks.nets import nets_of
from tcim_lite.models.families import FAMILIES, read_config
from tcim_lite.models.weights import roles

PROMPT = np.random.default_rng(1).integers(0, 331, 21).tolist()
NEXT = [5, 300, 7, 8]
SIZES = {"prefill_length": 16, "context_length": 64}
QKV = 2 * 32, 2 * 32, 4 * 48  # columns of the tiny models with linear attention


@pytest.fixture(autouse=True)
def four_devices(monkeypatch):
    monkeypatch.setenv("TCIM_LITE_DEVICE_NUM", "4")


def assert_same_run(package: Package, devices: tuple[int, ...], sections: tuple[int, ...] = QKV) -> None:
    single, several = LoadedPackage(package), LoadedPackage(package, devices)
    assert several.prefill(PROMPT).tobytes() == single.prefill(PROMPT).tobytes()
    for i, token in enumerate(NEXT):
        position = len(PROMPT) + i
        assert several.decode(token, position).tobytes() == single.decode(token, position).tobytes()
    for got, want in zip(several.caches(), single.caches(), strict=True):
        assert np.any(want)
        assert got.tobytes() == want.tobytes()
    (lane,) = lanes_of(single.prefill_module)
    for name in lane.carried:
        got, want = (loaded.prefill_module.get_dev_input(name).numpy() for loaded in (several, single))
        assert np.any(want)
        assert got.tobytes() == as_devices_hold_it(name, want, sections).tobytes()


def as_devices_hold_it(name: str, state: np.ndarray, sections: tuple[int, ...] = QKV) -> np.ndarray:
    """Columns of q, k and v, or of values, B and C, lie together on each device; all else is cut where it is."""
    if not name.startswith("past_conv_cache") or state.shape[1] != sum(sections):
        return state
    halves = [np.split(part, 2, axis=1) for part in np.split(state, np.cumsum(sections)[:-1], axis=1)]
    return np.concatenate([part for pair in zip(*halves, strict=True) for part in pair], axis=1)


# Layers of Mamba 1 and of Kimi Linear are for one device.
SHARED = [family for family in HYBRIDS if not {roles.SSM_RATES, roles.KDA_RATE} & FAMILIES[family].tensors.keys()]
CASES = [(family, quant) for family, quant in MODELS if family not in LAYER_INPUTS]
CASES += [(family, "w4a8h0_ssfp") for family in SHARED]


@pytest.mark.parametrize(("family", "quant"), CASES)
def test_two_devices_equal_one(tiny_package, family, quant):
    nets = nets_of(read_config(FAMILIES[family].tiny_config)).values()
    sections = next((net.sections[1:4] for net in nets if isinstance(net, Mamba2)), QKV)
    assert_same_run(tiny_package(family, quant=quant, ndevice=2, **SIZES), (0, 1), sections)


@pytest.mark.parametrize("quant", ["float32", "w8a8h1_sefp"])
@pytest.mark.parametrize("form", [{}, {"split_conv": True}, {"split_conv": True, "recurrent_in_place": True}])
def test_two_devices_share_states_in_every_form(tiny_package, quant, form):
    assert_same_run(tiny_package("qwen3_next", quant=quant, ndevice=2, **form, **SIZES), (0, 1))


def test_a_draft_on_two_devices_equals_it_on_one(tiny_package):
    """The vendor's speculative demo, told of two devices, opens the draft's graphs as `.hmms` too."""
    package = tiny_package(ndevice=2, draft_quant="w8a8h1_sefp", **SIZES)
    assert_same_run(package, (0, 1))
    assert_same_run(package.draft, (0, 1))


def test_answers_of_linear_attention_on_two_devices(tiny_package, strict_mode):
    package = tiny_package("qwen3_5", ndevice=2, **SIZES)
    single, several = LoadedPackage(package), LoadedPackage(package, (0, 1))
    for prompt in (PROMPT, PROMPT[4:9]):
        assert list(several.generate(prompt, max_new_tokens=9)) == list(single.generate(prompt, max_new_tokens=9))


def test_states_go_over_the_host_to_two_devices(tiny_package):
    """As caches do, where the columns of q, k and v are inputs of their own."""
    package = tiny_package("qwen3_5", ndevice=2, split_conv=True, **SIZES)
    single, several = LoadedPackage(package), LoadedPackage(package, (0, 1))
    single.prefill(PROMPT)
    (lane,) = lanes_of(single.prefill_module)
    for name in (*lane.caches, *lane.carried):
        several.decode_module.set_input(name, single.prefill_module.get_dev_input(name).numpy())
    several._held = len(PROMPT)
    assert several.decode(NEXT[0], len(PROMPT)).tobytes() == single.decode(NEXT[0], len(PROMPT)).tobytes()


def test_multi_token_prediction_on_two_devices(tiny_package):
    """The states after each of several tokens, and the layer that guesses, which has a cache."""
    package = tiny_package("qwen3_5_moe", ndevice=2, mtp=True, **SIZES)
    for kind in ("prefill", "decode", "prefill_mtp", "decode_mtp"):
        results = []
        for devices, suffix in (((0,), ".hmm"), ((0, 1), ".hmms")):
            manager = tcim.WeightManager(tcim.DevManager(list(devices), "Xh2HalBackend"))
            module = tcim.load(package.graph(f"{kind}{suffix}"), tcim.Option(manager))
            rng = np.random.default_rng(3)
            infos = [module.get_input_info(module.get_input_name(i)) for i in range(module.get_num_inputs())]
            for info in infos:
                if info.dtype == np.int32:
                    value = np.zeros(info.shape, np.int32)
                    value[...] = min(3, infos[0].shape[1]) if "current" in info.name else 0
                elif "mask" in info.name:
                    value = np.zeros(info.shape, info.dtype)
                    value[:, : min(3, infos[0].shape[1])] = 1
                elif "conv" in info.name:
                    value = np.zeros(info.shape, info.dtype)
                else:
                    value = (rng.standard_normal(info.shape) * 0.3).astype(info.dtype)
                module.set_input(info.name, value)
            module.run(sync=True)
            names = [module.get_output_name(i) for i in range(module.get_num_outputs())]
            results.append({name: module.get_output(name).numpy() for name in names})
        assert list(results[0]) == list(results[1])
        for name, want in results[0].items():
            assert np.any(want), name
            want = as_devices_hold_it(f"past_{name}", want)
            assert results[1][name].tobytes() == want.tobytes(), (kind, name)


@pytest.mark.parametrize("quant", ["w4a8h0_ssfp", "float32"])
def test_four_devices_with_unequal_shares_equal_one(tmp_path, quant):
    """A vocabulary of 331 is 21 blocks of 16, a hidden size of 192 is 12: some devices compute more than others."""
    changes = {"num_attention_heads": 8, "num_key_value_heads": 4, "attention_bias": True}
    (tmp_path / "config.json").write_text(json.dumps(TINY_CONFIG | changes))
    options = {"random_weights": True, "quant": quant, "ndevice": 4, **SIZES}
    assert_same_run(compile_package(tmp_path, tmp_path / "out", **options), (0, 1, 2, 3))


def test_heads_that_fill_no_whole_block(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(TINY_CONFIG | {"num_attention_heads": 8, "head_dim": 24}))
    package = compile_package(tmp_path, tmp_path / "out", random_weights=True, ndevice=2, **SIZES)
    assert_same_run(package, (0, 1))


def test_slots_of_a_batch_equal_single_ones(tiny_package):
    package = tiny_package(ndevice=2, batch=2, **SIZES)
    single = LoadedPackage(tiny_package(ndevice=2, **SIZES))
    manager = tcim.WeightManager(tcim.DevManager([0, 1], "Xh2HalBackend"))
    prefill = tcim.load(package.prefill_path.with_suffix(".hmms"), tcim.Option(manager))
    decode = tcim.load(package.decode_path.with_suffix(".hmms"), tcim.Option(manager))
    expected = []
    for slot, tokens in enumerate((PROMPT[:9], PROMPT[3:14])):
        suffix = f"_batch_{slot}" if slot else ""
        for name in cache_names(prefill):
            prefill.set_input(name, decode.get_dev_input(name + suffix))
        rows = np.zeros((1, 16, 192), np.float16)
        rows[0, : len(tokens)] = single._embedding[tokens]
        prefill.set_input(prefill.get_input_name(0), rows)
        prefill.set_input("valid_length", np.array([0], np.int32))
        prefill.set_input("current_length", np.array([len(tokens)], np.int32))
        prefill.run(sync=True)
        decode.set_input(f"valid_length{suffix}", np.array([len(tokens)], np.int32))
        decode.set_input(f"current_length{suffix}", np.array([1], np.int32))
        single.prefill(tokens)
        expected.append(single.decode(NEXT[slot], len(tokens)))
    decode.set_input(decode.get_input_name(0), single._embedding[NEXT[:2]][:, None])
    decode.run(sync=True)
    assert decode.get_output("logits").numpy().reshape(2, -1).tobytes() == np.stack(expected).tobytes()


def test_verify_equals_that_of_one_device(tiny_package):
    package = tiny_package(ndevice=2, verify_length=5, **SIZES)
    results = []
    for devices, suffix in (((0,), ".hmm"), ((0, 1), ".hmms")):
        loaded = LoadedPackage(package, devices)
        loaded.prefill(PROMPT)
        option = tcim.Option(loaded.manager).set_dummy_tensors(cache_names(loaded.prefill_module))
        verify = tcim.load(package.folder / f"{package.name}_verify{suffix}", option)
        share_kv_cache(loaded.prefill_module, verify)
        rows = np.zeros((1, 5, 192), np.float16)
        rows[0, :4] = loaded._embedding[NEXT]
        verify.set_input(verify.get_input_name(0), rows)
        verify.set_input("valid_length", np.array([len(PROMPT)], np.int32))
        verify.set_input("current_length", np.array([4], np.int32))
        verify.run(sync=True)
        logits = verify.get_output("logits").numpy()
        assert not logits[0, 4].any()
        results.append([logits, *loaded.caches()])
    for got, want in zip(results[1], results[0], strict=True):
        assert got.tobytes() == want.tobytes()
