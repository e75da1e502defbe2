"""A NaN or an infinity in a live cache row is an error that names input and row, and never an answer."""

import os

import numpy as np
import pytest
import warm_python
from isas import cpu_has
from llm_packages import QUANTS, LoadedPackage

import tcim_lite.runtime as rt

VALUES = [np.nan, np.inf, -np.inf]
LENGTH = 300  # rows in the second block of keys too
SIZES = {"prefill_length": 8, "context_length": 512}
CACHES = [f"model_layers_{layer}_self_attn_{kv}cache_input" for layer in range(2) for kv in "kv"]


def feed(module: rt.Module, tokens: int, suffixes: tuple[str, ...] = ("",), valid: int = LENGTH) -> bytes:
    """Logits of a run on `tokens` rows after `valid` cached ones of every slot."""
    shape = module.get_input_info("input_1").shape
    module.set_input("input_1", np.random.default_rng(3).standard_normal(shape).astype(np.float32))
    for suffix in suffixes:
        module.set_input("valid_length" + suffix, valid)
        module.set_input("current_length" + suffix, tokens)
    module.run(True)
    return module.get_output("logits").numpy().tobytes()


def filled(module: rt.Module, suffixes: tuple[str, ...] = ("",)) -> dict[str, np.ndarray]:
    """Finite rows below LENGTH in every cache, and NaN behind them and this run's rows."""
    random = np.random.default_rng(5)
    caches = {}
    for name in (cache + suffix for cache in CACHES for suffix in suffixes):
        info = module.get_input_info(name)
        caches[name] = random.standard_normal(info.shape).astype(info.dtype)
        caches[name][:, :, LENGTH + 8 :] = np.nan
        module.set_input(name, caches[name])
    return caches


def odd_rows(module: rt.Module, tokens: int, suffixes: tuple[str, ...] = ("",)) -> None:
    caches = filled(module, suffixes)
    expected = feed(module, tokens, suffixes)
    for at, (name, values) in enumerate(caches.items()):
        for row, value in zip((0, 255, LENGTH - 1), np.roll(VALUES, at), strict=True):
            odd = values.copy()
            odd[0, at % 2, row, 7 * at % odd.shape[3]] = value
            module.set_input(name, odd)
            word = "NaN" if np.isnan(value) else "-infinity" if value < 0 else "infinity"
            with pytest.raises(rt.ArgumentError, match=rf"input '{name}' holds {word} in row {row}[ ,].*valid_length"):
                feed(module, tokens, suffixes)
            np.testing.assert_array_equal(module.get_dev_input(name).numpy()[:, :, :LENGTH], odd[:, :, :LENGTH])
            module.set_input(name, values)
            assert feed(module, tokens, suffixes) == expected  # the error left nothing behind


@pytest.mark.parametrize("quant", QUANTS)
def test_every_profile_refuses_them_in_prefill_and_decode(tiny_package, quant):
    loaded = LoadedPackage(tiny_package(quant=quant, **SIZES))
    for module, tokens in ((loaded.prefill_module, 8), (loaded.prefill_module, 3), (loaded.decode_module, 1)):
        odd_rows(module, tokens)


def test_every_slot_of_a_batch_is_looked_at(tiny_package):
    odd_rows(rt.load(tiny_package(batch=3, **SIZES).decode_path), 1, ("", "_batch_1", "_batch_2"))


def test_rows_of_several_devices_are_named_alike(tiny_package, monkeypatch):
    monkeypatch.setenv("TCIM_LITE_DEVICE_NUM", "2")
    loaded = LoadedPackage(tiny_package(ndevice=2, **SIZES), (0, 1))
    odd_rows(loaded.decode_module, 1)


SCRIPT = """
import sys
sys.path[:0] = sys.argv[1:3]
from llm_packages import LoadedPackage
from test_odd_cache_rows import odd_rows
from tcim_lite.llm import Package
for folder in sys.argv[3:]:
    loaded = LoadedPackage(Package.open(folder))
    for module, tokens in ((loaded.prefill_module, 8), (loaded.decode_module, 1)):
        odd_rows(module, tokens)
"""


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("isa", [pytest.param("ref", marks=pytest.mark.slow), "avx2", "avx512"])
def test_every_instruction_set_and_thread_count_finds_them(tiny_package, isa, threads):
    if not cpu_has(isa):
        pytest.skip(f"this CPU has no {isa}")
    folder = os.path.dirname(__file__)
    packages = [str(tiny_package(quant=quant, **SIZES).folder) for quant in ("w4a8h0_ssfp", "float32")]
    environment = os.environ | {"TCIM_LITE_ISA": isa, "TCIM_LITE_THREADS": str(threads)}
    done = warm_python.run("-c", SCRIPT, folder, os.path.dirname(folder), *packages, env=environment)
    assert done.returncode == 0, done.stderr
