"""One number, however it is computed: splits, chunks, padding, slots, instruction sets, threads. All bit for bit."""

import functools
import itertools
import os
import subprocess

import numpy as np
import pytest
import warm_python
from family_forms import EVERY_FORM, in_the_grid
from isas import X86_64, cpu_has
from llm_packages import MODELS, QUANTS, WITHOUT_AXES, LoadedPackage

import tcim_lite.runtime as tcim
from tcim_lite.llm import Masks, Package
from tcim_lite.models.families import FAMILIES

pytestmark = pytest.mark.slow


def prompt(length: int, seed: int = 1) -> list[int]:
    return np.random.default_rng(seed).integers(0, 331, length).tolist()


def bits(logits: np.ndarray) -> bytes:
    assert np.isfinite(logits).all()
    assert np.ptp(logits) > 0
    return logits.tobytes()


@pytest.mark.parametrize(("family", "quant"), MODELS)
def test_prefill_then_decode_equals_one_long_prefill_at_every_split(tiny_package, family, quant):
    tokens = prompt(40)
    whole = LoadedPackage(tiny_package(family, quant=quant, prefill_length=64, context_length=64))
    expected = bits(whole.prefill(tokens))
    chunked = LoadedPackage(tiny_package(family, quant=quant, prefill_length=16, context_length=64))
    for split in range(1, len(tokens)):
        logits = chunked.prefill(tokens[:split])
        for position in range(split, len(tokens)):
            logits = chunked.decode(tokens[position], position)
        assert bits(logits) == expected, f"split after {split}"
        for got, want in zip(chunked.caches(), whole.caches(), strict=True):
            assert got[:, :, : len(tokens)].tobytes() == want[:, :, : len(tokens)].tobytes(), f"split after {split}"


@pytest.mark.parametrize("split", [1, 255, 256, 257, 511, 512, 513, 598])
def test_splits_around_attention_blocks_change_nothing(tiny_package, split):
    tokens = prompt(600)
    whole = LoadedPackage(tiny_package(prefill_length=640, context_length=1024))
    expected = bits(whole.prefill(tokens))
    chunked = LoadedPackage(tiny_package(prefill_length=128, context_length=1024))
    chunked.prefill(tokens[:split])
    chunked.prefill(tokens[split:-1], split)
    assert bits(chunked.decode(tokens[-1], 599)) == expected


@pytest.mark.parametrize("family", [in_the_grid(family) for family in WITHOUT_AXES])
def test_a_batch_slot_does_not_depend_on_its_neighbours_or_its_index(tiny_package, family):
    single = LoadedPackage(tiny_package(family, prefill_length=16, context_length=64))
    batched = tcim.load(tiny_package(family, prefill_length=16, context_length=64, batch=3).decode_path)
    masks = Masks(batched)
    prompts = [prompt(5, 1), prompt(17, 2), prompt(9, 3)]
    order = [2, 0, 1]
    expected, next_tokens = {}, {}
    names = [batched.get_input_name(i) for i in range(batched.get_num_inputs())]
    for slot, which in enumerate(order):
        suffix = f"_batch_{slot}" if slot else ""
        single.prefill(prompts[which])
        for port in FAMILIES[family].contract.per_layer:
            every = (port.name.format(layer=layer) for layer in itertools.count())
            layers = list(itertools.takewhile(names.__contains__, every))
            assert len(layers) >= 2
            for name in layers:
                batched.set_input(name + suffix, single.prefill_module.get_dev_input(name).numpy())
        batched.set_input(f"valid_length{suffix}", np.array([len(prompts[which])], np.int32))
        batched.set_input(f"current_length{suffix}", np.array([1], np.int32))
        masks.set(len(prompts[which]), 1, slot)
        next_tokens[slot] = 11 + which
        expected[slot] = bits(single.decode(next_tokens[slot], len(prompts[which])))
    batched.set_input(batched.get_input_name(0), single._embedding[[next_tokens[slot] for slot in range(3)]][:, None])
    batched.run(sync=True)
    logits = batched.get_output("logits").numpy()
    assert logits.shape == (3, 1, 331)
    for slot in range(3):
        assert bits(logits[slot, 0]) == expected[slot], f"slot {slot}"


LENGTHS = {"prefill_length": 128, "context_length": 512}
SMALL_STACK = """
import sys, threading
sys.path.insert(0, sys.argv[1])
from llm_packages import LoadedPackage
from tcim_lite.llm import Package
loaded = LoadedPackage(Package.open(sys.argv[2]))
threading.stack_size(128 << 10)
thread = threading.Thread(target=lambda: print(loaded.prefill(list(range(280))).tobytes().hex()))
thread.start()
thread.join()
"""
SCRIPT = """
import hashlib, sys
import numpy as np
sys.path.insert(0, sys.argv[1])
from llm_packages import LoadedPackage
from tcim_lite.llm import Package
tokens = np.random.default_rng(3).integers(0, 331, 300).tolist()
for folder in sys.argv[2:]:
    loaded = LoadedPackage(Package.open(folder))
    digest = hashlib.sha256(loaded.prefill(tokens[:280]).tobytes())
    for position in range(280, 300):
        digest.update(loaded.decode(tokens[position], position).tobytes())
    for cache in loaded.caches():
        digest.update(cache.tobytes())
    print(digest.hexdigest(), flush=True)
"""
OTHERS = [family for family in EVERY_FORM if family != "qwen3"]


def test_a_thread_with_the_stack_that_musl_gives_computes_prompts(tiny_package):
    package = tiny_package(**LENGTHS)
    done = warm_python.run("-c", SMALL_STACK, os.path.dirname(__file__), package.folder)
    assert done.returncode == 0, done.stderr
    assert bytes.fromhex(done.stdout) == bits(LoadedPackage(package).prefill(list(range(280))))


def run_with(isa: str, threads: int, *packages: Package) -> subprocess.CompletedProcess:
    """Prints a line for each package."""
    environment = os.environ | {"TCIM_LITE_ISA": isa, "TCIM_LITE_THREADS": str(threads)}
    folders = [package.folder for package in packages]
    return warm_python.run("-c", SCRIPT, os.path.dirname(__file__), *folders, env=environment)


@pytest.fixture(scope="session")
def digest_of_quant(tiny_package):
    """What a set of kernels prints for the package of each profile, in one process."""

    @functools.cache
    def run(isa: str, threads: int) -> subprocess.CompletedProcess:
        return run_with(isa, threads, *(tiny_package(quant=quant, **LENGTHS) for quant in QUANTS))

    return lambda isa, threads, quant: line(run(isa, threads), QUANTS.index(quant))


@pytest.fixture(scope="session")
def digest_of_family(request, tiny_package):
    """The same for the families whose tests were chosen."""
    tests = [item for item in request.session.items if "digest_of_family" in getattr(item, "fixturenames", ())]
    families = sorted({item.callspec.params["family"] for item in tests})

    @functools.cache
    def run(isa: str, threads: int) -> subprocess.CompletedProcess:
        packages = (tiny_package(family, quant="w8a8h1_sefp", **LENGTHS) for family in families)
        return run_with(isa, threads, *packages)

    return lambda isa, threads, family: line(run(isa, threads), families.index(family))


def line(done: subprocess.CompletedProcess, index: int) -> str:
    """A process that fails at one package has printed the lines of those before it, or all, if it fails at its end."""
    lines = done.stdout.splitlines()
    assert index < len(lines) - (done.returncode != 0), done.stderr
    return lines[index]


# How work is cut over threads does not depend on the instruction set, but for kernels that take several rows at once.
@pytest.mark.parametrize(
    ("isa", "threads"),
    [("ref", 7), ("avx2", 2), ("avxvnni", 3), ("avx512", 2), *itertools.product(["avx512vnni", "amx"], [1, 3, 7])],
)
@pytest.mark.parametrize("quant", QUANTS)
def test_every_instruction_set_and_thread_count_gives_the_same_bits(digest_of_quant, quant, isa, threads):
    if not cpu_has(isa):
        pytest.skip(f"this CPU has no {isa}")
    assert digest_of_quant(isa, threads, quant) == digest_of_quant("ref", 2, quant)


@pytest.mark.parametrize("isa", X86_64)
@pytest.mark.parametrize("family", OTHERS)
def test_every_form_of_a_block_gives_the_same_bits_on_every_instruction_set(digest_of_family, family, isa):
    if not cpu_has(isa):
        pytest.skip(f"this CPU has no {isa}")
    assert digest_of_family(isa, 3, family) == digest_of_family("ref", 2, family)


@pytest.mark.parametrize("threads", [1, 7])
def test_chunks_of_a_few_tokens_across_attention_blocks_give_the_same_bits(tiny_package, digest_of_quant, threads):
    """With more threads than KV heads, attention splits over blocks, of which the first tokens of a chunk see fewer."""
    package = tiny_package(quant="w4a8h0_ssfp", prefill_length=6, context_length=512)
    assert line(run_with("ref", threads, package), 0) == digest_of_quant("ref", 2, "w4a8h0_ssfp")


def test_an_instruction_set_that_is_not_there_is_refused(tiny_package):
    done = run_with("avx1024", 1, tiny_package(**LENGTHS))
    assert done.returncode != 0
    assert "UnsupportedError" in done.stderr
    assert "this machine has ref" in done.stderr
