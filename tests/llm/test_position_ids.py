"""Packages whose graphs take the positions of their tokens."""

from __future__ import annotations

import json
import os

import numpy as np
import pytest
import warm_python
from isas import FLAGS
from llm_packages import QUANTS, LoadedPackage, compile_package
from two_devices import check_two_devices

import tcim_lite.runtime as rt
from tcim_lite.llm import cache_names, load_pair, run_graph, takes_positions

SIZES = {"prefill_length": 16, "context_length": 64}
TOKENS = np.random.default_rng(3).integers(0, 331, 64).tolist()


def answers(package) -> list[bytes]:
    """Everything a chat computes: logits of chunks and steps up to a full context, and the caches."""
    loaded = LoadedPackage(package)
    found = [loaded.prefill(TOKENS[:33])]
    found += [loaded.decode(token, position) for position, token in enumerate(TOKENS[33:], 33)]
    return [array.tobytes() for array in [*found, *loaded.caches()]]


@pytest.mark.parametrize(("family", "quant"), [*(("qwen3", quant) for quant in QUANTS), ("llama", "w4a8h0_ssfp")])
def test_positions_that_follow_the_lengths_change_no_bit(tiny_package, family, quant):
    plain = tiny_package(family, quant=quant, **SIZES)
    given = tiny_package(family, quant=quant, position_ids=True, **SIZES)
    assert answers(given) == answers(plain)


SCRIPT = """
import hashlib, sys
import numpy as np
import tcim_lite.runtime as rt
from tcim_lite.llm import Generator, Package, load_pair
package = Package.open(sys.argv[1])
modules = load_pair(package.prefill_path, package.decode_path, rt.WeightManager(0))
model = Generator(*modules, package.embedding_for(modules[0]))
found = [model.prefill(list(range(7, 40)))] + [model.decode(token, 33 + token) for token in range(6)]
rows = np.random.default_rng(1).standard_normal((1, 16, 192)).astype(np.float16)
prefill = modules[0]
for index, value in enumerate([rows, 40, 16, np.array([[5, 5, 63, 0] * 4])]):
    prefill.set_input(prefill.get_input_name(index), np.asarray(value))
prefill.run(True)
found.append(prefill.get_output("logits").numpy())
print(hashlib.sha256(b"".join(array.tobytes() for array in found)).hexdigest())
"""


@pytest.mark.parametrize("quant", ["w4a8h0_ssfp", pytest.param("float32", marks=pytest.mark.slow)])
def test_every_isa_and_thread_count_gives_the_same_bits(tiny_package, quant):
    package = tiny_package(quant=quant, position_ids=True, **SIZES)

    def digest(isa: str, threads: str) -> str | None:
        environment = {**os.environ, "TCIM_LITE_ISA": isa, "TCIM_LITE_THREADS": threads}
        done = warm_python.run("-c", SCRIPT, package.folder, env=environment)
        if done.returncode and "TCIM_LITE_ISA" in done.stderr:
            return None  # this CPU has no such instructions
        assert done.returncode == 0, done.stderr
        return done.stdout

    found = [digest(isa, threads) for isa, threads in [*((isa, "1") for isa in FLAGS), ("ref", "2"), ("avx2", "2")]]
    assert found[0] is not None
    assert len(set(found) - {None}) == 1


@pytest.fixture(scope="module")
def modules(tiny_package):
    package = tiny_package(position_ids=True, **SIZES)
    return load_pair(package.prefill_path, package.decode_path, rt.WeightManager(0))


@pytest.mark.parametrize("tokens", [16, 1])
def test_the_input_is_at_index_three_and_the_caches_follow(modules, tokens):
    module = modules[tokens == 1]
    names = [module.get_input_name(i) for i in range(module.get_num_inputs())]
    assert names[:4] == ["input_1", "valid_length", "current_length", "position_ids"]
    info = module.get_input_info("position_ids")
    assert (info.shape, info.dtype) == ((1, tokens), np.int32)
    assert names[4:] == cache_names(module)
    assert takes_positions(module)


def test_values_are_used_as_given_for_any_integer_type(modules):
    prefill = modules[0]
    rows = np.random.default_rng(1).standard_normal((1, 16, 192)).astype(np.float16)

    def logits(positions) -> bytes:
        prefill.set_input("input_1", rows)
        prefill.set_input("valid_length", 0)
        prefill.set_input("current_length", 16)
        prefill.set_input("position_ids", positions)
        prefill.run(True)
        return prefill.get_output("logits").numpy().tobytes()

    counted = logits(np.arange(16))
    assert logits(np.arange(16, dtype=np.int64)[None]) == counted
    assert logits(np.arange(16)[::-1].copy()) != counted
    # Outside the tables: the nearest row of them.
    assert logits(np.full(16, 1000)) == logits(np.full(16, 63)) != counted
    assert logits(np.full(16, -9)) == logits(np.zeros(16)) != counted


def test_padding_rows_positions_influence_nothing(modules):
    prefill = modules[0]
    rows = np.random.default_rng(2).standard_normal((1, 16, 192)).astype(np.float16)
    found = set()
    for rest in (0, 63, -5, 1 << 30):
        prefill.set_input("input_1", rows)
        prefill.set_input("valid_length", 0)
        prefill.set_input("current_length", 5)
        prefill.set_input("position_ids", np.array([*range(5), *[rest] * 11]))
        prefill.run(True)
        found.add(prefill.get_output("logits").numpy().tobytes())
    assert len(found) == 1


@pytest.mark.oracle
def test_shifted_positions_are_those_of_transformers(tmp_path):
    torch = pytest.importorskip("torch", reason="the oracle")
    pytest.importorskip("transformers", reason="the oracle")
    from oracle import assert_close, logit_bound, random_model
    from test_oracle import SHAPES

    model = random_model(SHAPES["untied, 5 query heads on 1"])
    model.save_pretrained(tmp_path / "hf")
    sizes = {"prefill_length": 32, "context_length": 320}
    package = compile_package(tmp_path / "hf", tmp_path / "out", quant="float32", position_ids=True, **sizes)
    prefill, decode = load_pair(package.prefill_path, package.decode_path, rt.WeightManager(0))
    table, bound = package.embedding_for(prefill), logit_bound(model.config)
    rng = np.random.default_rng(0)
    tokens = rng.integers(0, model.config.vocab_size, 60)
    for positions in (np.arange(60) + 200, np.arange(60) * 3 + 7, rng.permutation(300)[:60], np.full(60, 11)):
        with torch.no_grad():
            ids = torch.tensor(np.array([tokens])), torch.tensor(np.array([positions]))
            want = model(ids[0], position_ids=ids[1]).logits[0].float().numpy()

        def run(module, first, count, positions=positions):
            length = module.get_input_info("input_1").shape[1]
            rows, places = np.zeros((1, length, table.shape[1]), np.float32), np.zeros((1, length), np.int32)
            rows[0, :count], places[0, :count] = table[tokens[first : first + count]], positions[first : first + count]
            module.set_input("input_1", rows)
            module.set_input("valid_length", first)
            module.set_input("current_length", count)
            module.set_input("position_ids", places)
            module.run(True)
            return module.get_output("logits").numpy().reshape(-1)

        run(prefill, 0, 32)
        assert_close(run(prefill, 32, 20), want[51], bound, "prefill")
        for position in range(52, 60):
            assert_close(run(decode, position, 1), want[position], bound, f"decode at {position}")


def test_verify_pipeline_devices_and_draft_take_them_too(tiny_package):
    options = {"verify_length": 4, "pipeline": 2, "ndevice": 2, "draft_layers": 1, **SIZES}
    plain, given = tiny_package(**options), tiny_package(position_ids=True, **options)
    assert answers(given) == answers(plain)
    assert answers(given.draft) == answers(plain.draft)

    def verified(package) -> bytes:
        owner, verify = load_pair(package.prefill_path, package.graph("verify.hmm"), rt.WeightManager(0))
        table = package.embedding_for(owner)
        rows = np.zeros((1, 16, 192), np.float16)
        rows[0, :5] = table[TOKENS[:5]]
        run_graph(owner, rows, 0, 5)
        return run_graph(verify, table[TOKENS[5:9]][None], 5, 4).tobytes()

    def staged(package) -> bytes:
        stages = [rt.load(path) for path in package.parts("prefill")]
        rows = np.zeros((1, 16, 192), np.float16)
        rows[0, :9] = package.embedding(192, 331)[TOKENS[:9]]
        for stage in stages:
            rows = run_graph(stage, rows, 0, 9)
        return rows.tobytes()

    assert verified(given) == verified(plain)
    assert staged(given) == staged(plain)


def test_several_devices_give_the_same_bits(tiny_package, monkeypatch):
    package = tiny_package(position_ids=True, ndevice=2, **SIZES)
    check_two_devices(package, monkeypatch)


def test_the_package_says_that_it_has_them(tiny_package):
    package = tiny_package(position_ids=True, **SIZES)
    module = rt.load(package.decode_path)
    assert json.loads(module.get_custom_msg())["position_ids"] is True


def test_strict_mode_finds_positions_that_disagree(tiny_package):
    package = tiny_package(position_ids=True, **SIZES)
    script = """
import sys
import numpy as np
from tcim_lite import layers
from tcim_lite.llm import Generator, Package, load_pair
import tcim_lite.runtime as rt
package = Package.open(sys.argv[1])
prefill, decode = load_pair(package.prefill_path, package.decode_path, rt.WeightManager(0))
model = Generator(prefill, decode, package.embedding_for(prefill))
model.prefill(list(range(20)))
model.decode(3, 20)
assert not layers.take_findings()
decode.set_input("position_ids", 22)
decode.set_input("valid_length", 21)
decode.set_input("input_1", np.ones((1, 1, 192)))
decode.run(True)
(found,) = layers.take_findings()
print(found.code, found.message)
prefill.set_input("valid_length", 22)
prefill.set_input("current_length", 2)
prefill.set_input("input_1", np.ones((1, 16, 192)))
prefill.set_input("position_ids", np.array([22, 23, *[-1] * 14]))
prefill.run(True)
assert not layers.take_findings()
"""
    done = warm_python.run("-c", script, package.folder, env={**os.environ, "TCIM_LITE_STRICT": "warn"})
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("S-205 ")
    assert "'position_ids' says 22 for token 0, but 'valid_length' is 21" in done.stdout
