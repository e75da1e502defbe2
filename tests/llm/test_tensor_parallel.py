"""Several devices together give what one gives, bit for bit: logits and caches, under the same names and shapes."""

import json

import numpy as np
import pytest
from llm_packages import DEMO_CHECKPOINT, MODELS, TINY_CONFIG, LoadedPackage, compile_package

import tcim_lite.runtime as tcim
from tcim_lite.llm import Package, cache_names, share_kv_cache

PROMPT = np.random.default_rng(1).integers(0, 331, 21).tolist()
NEXT = [5, 300, 7, 8]
SIZES = {"prefill_length": 16, "context_length": 64}


@pytest.fixture(autouse=True)
def four_devices(monkeypatch):
    monkeypatch.setenv("TCIM_LITE_DEVICE_NUM", "4")


def assert_same_run(package: Package, devices: tuple[int, ...]) -> None:
    single, several = LoadedPackage(package), LoadedPackage(package, devices)
    assert several.prefill(PROMPT).tobytes() == single.prefill(PROMPT).tobytes()
    for i, token in enumerate(NEXT):
        position = len(PROMPT) + i
        assert several.decode(token, position).tobytes() == single.decode(token, position).tobytes()
    for got, want in zip(several.caches(), single.caches(), strict=True):
        assert np.any(want)
        assert got.tobytes() == want.tobytes()


@pytest.mark.parametrize(("family", "quant"), MODELS)
def test_two_devices_equal_one(tiny_package, family, quant):
    assert_same_run(tiny_package(family, quant=quant, ndevice=2, **SIZES), (0, 1))


def test_any_devices_in_any_order_will_do(tiny_package):
    assert_same_run(tiny_package(ndevice=2, **SIZES), (3, 1))


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


def test_the_demo_checkpoint_answers_the_same_on_two_devices(tmp_path):
    package = compile_package(DEMO_CHECKPOINT, tmp_path, ndevice=2)
    single, several = LoadedPackage(package), LoadedPackage(package, (0, 1))
    prompt = [token % 1536 for token in PROMPT]
    expected = list(single.generate(prompt, max_new_tokens=24))
    assert len(expected) == 24
    assert list(several.generate(prompt, max_new_tokens=24)) == expected


def test_names_and_shapes_are_those_of_one_device(tiny_package):
    package = tiny_package(ndevice=2, **SIZES)
    single, several = LoadedPackage(package), LoadedPackage(package, (0, 1))
    for one, other in ((single.prefill_module, several.prefill_module), (single.decode_module, several.decode_module)):
        names = [one.get_input_name(i) for i in range(one.get_num_inputs())]
        assert [other.get_input_name(i) for i in range(other.get_num_inputs())] == names
        for name in names:
            got, want = other.get_input_info(name), one.get_input_info(name)
            assert (got.shape, got.dtype, got.format) == (want.shape, want.dtype, want.format)
        assert other.get_output_info("logits").shape == one.get_output_info("logits").shape


def test_decode_takes_caches_that_one_device_filled(tiny_package):
    """Prefill elsewhere, caches over the host, as in the vendor's prefill_pp_decode_tp."""
    package = tiny_package(ndevice=2, **SIZES)
    single, several = LoadedPackage(package), LoadedPackage(package, (0, 1))
    single.prefill(PROMPT)
    for name, cache in zip(cache_names(single.prefill_module), single.caches(), strict=True):
        several.decode_module.set_input(name, cache)
    assert several.decode(NEXT[0], len(PROMPT)).tobytes() == single.decode(NEXT[0], len(PROMPT)).tobytes()


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
