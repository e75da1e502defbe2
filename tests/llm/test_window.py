"""Sliding windows: as none where they are long enough; else one number however it is computed, bit for bit."""

import functools
import subprocess

import numpy as np
import pytest
from isas import cpu_has
from llm_packages import LoadedPackage
from test_equivalence import bits, line, prompt, run_with

import tcim_lite.runtime as rt
from tcim_lite.hmm import read

ONE_KV_HEAD = {"num_attention_heads": 2, "num_key_value_heads": 1}  # so that blocks are what threads share out


def windows_of(package) -> list[object]:
    ops = read(package.decode_path).graphs[0].ops
    return [op.attributes.get("window") for op in ops if op.kind == "FlashAttention"]


@pytest.mark.parametrize("window", [None, 64, 1000])
def test_a_window_as_long_as_the_context_is_none(tiny_package, window):
    sizes = {"prefill_length": 16, "context_length": 64}
    package = tiny_package("mistral", {"sliding_window": window}, **sizes)
    assert windows_of(package) == [None, None]
    for name in ("mistral_prefill.hmm", "mistral_decode.hmm"):
        none = tiny_package("mistral", {"sliding_window": None}, **sizes)
        assert (package.folder / name).read_bytes() == (none.folder / name).read_bytes()


@pytest.mark.parametrize("window", [1, 7, 40])
def test_prefill_then_decode_equals_one_long_prefill(tiny_package, window):
    tokens = prompt(40)
    whole = LoadedPackage(tiny_package("mistral", {"sliding_window": window}, prefill_length=64, context_length=64))
    assert windows_of(tiny_package("mistral", {"sliding_window": window}, prefill_length=64, context_length=64)) == [
        window,
        window,
    ]
    expected = bits(whole.prefill(tokens))
    chunked = LoadedPackage(tiny_package("mistral", {"sliding_window": window}, prefill_length=16, context_length=64))
    for split in (1, 6, 8, 16, 30, 39):
        logits = chunked.prefill(tokens[:split])
        for position in range(split, len(tokens)):
            logits = chunked.decode(tokens[position], position)
        assert bits(logits) == expected, f"split after {split}"


@pytest.mark.parametrize("value", [60000, np.inf, np.nan])
@pytest.mark.parametrize("quant", ["w4a8h0_ssfp", "float32"])
def test_rows_before_the_window_are_never_read(tiny_package, quant, value):
    config = {"sliding_window": 10, "num_hidden_layers": 1}
    loaded = LoadedPackage(tiny_package("mistral", config, quant=quant, prefill_length=16, context_length=512))
    tokens = prompt(300)
    loaded.prefill(tokens[:-1])
    expected = bits(loaded.decode(tokens[-1], 299))
    loaded.prefill(tokens[:-1])
    for name in [f"model_layers_0_self_attn_{kv}cache_input" for kv in "kv"]:
        rows = loaded.prefill_module.get_dev_input(name).numpy().copy()
        rows[:, :, : 300 - 10] = value
        loaded.prefill_module.set_input(name, rows)
    assert bits(loaded.decode(tokens[-1], 299)) == expected
    rows[:, :, 300 - 10] = np.nan  # the first row that the window takes in
    loaded.prefill_module.set_input(name, rows)
    with pytest.raises(rt.ArgumentError, match=rf"'{name}' holds NaN in row 290, .*'valid_length' is 299"):
        loaded.decode(tokens[-1], 299)


CASES = [{"sliding_window": window, **heads} for heads in ({}, ONE_KV_HEAD) for window in (3, 100, 256, 270)]


@pytest.fixture(scope="module")
def digest(tiny_package):
    """What a set of kernels prints for a package of each case, all in one process."""

    @functools.cache
    def run(isa: str, threads: int, chunk: int) -> subprocess.CompletedProcess:
        sizes = {"prefill_length": chunk, "context_length": 512}
        return run_with(isa, threads, *(tiny_package("mistral", config, **sizes) for config in CASES))

    return lambda isa, threads, case, chunk=64: line(run(isa, threads, chunk), CASES.index(case))


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_instruction_set_and_thread_count_gives_the_same_bits(digest, case):
    expected = digest("ref", 1, case)
    for isa, threads in [("ref", 3), ("avx2", 2), ("avx512", 1), ("avx512vnni", 7)]:
        if cpu_has(isa):
            assert digest(isa, threads, case) == expected, (isa, threads)
    assert digest("ref", 7, case, chunk=6) == expected
