"""Scripts that use the API as the vendor's examples do, run as they stand.

The scripts import tcim_lite, numpy and the standard library only; what they compute is known from elsewhere.
"""

from __future__ import annotations

import ast
import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
import warm_python
from cpp_programs import porting_program

pytestmark = pytest.mark.slow  # whole programs
SCRIPTS = [path for path in Path(__file__).parent.glob("*.py") if not path.stem.startswith(("conftest", "test_"))]
NEW_TOKENS = 8


def run(script: str, *arguments: object, devices: int = 1, folder: Path | None = None, faults: str = "") -> str:
    # What vendor code does is no finding of strict mode.
    environment = {**os.environ, "TCIM_LITE_DEVICE_NUM": str(devices), "TCIM_LITE_STRICT": "error"}
    environment["TCIM_LITE_FAULTS"] = faults
    program = Path(__file__).parent / f"{script}.py"
    done = warm_python.run(program, *arguments, timeout=120, env=environment, cwd=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def prompts() -> list[list[int]]:
    rng = np.random.default_rng(5)
    lengths = (3, 70, 20, 45, 1)  # a prefill chunk is 32
    return [rng.integers(0, 331, length).tolist() for length in lengths]


@pytest.fixture(scope="module")
def paths(tiny_package):
    """The files of a package, as arguments."""

    def make(**options) -> list[Path]:
        package = tiny_package(prefill_length=32, context_length=128, **options)
        return [package.prefill_path, package.decode_path, package.folder / "hmquant" / "quant_embedding.bin"]

    return make


@pytest.fixture(scope="module")
def expected(paths, prompts) -> list[list[int]]:
    """The answers, one fresh chat each."""
    return [json.loads(run("chat", *paths(), json.dumps(prompt), NEW_TOKENS)) for prompt in prompts]


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_scripts_import_the_api_and_numpy_only(path):
    tree = ast.parse(path.read_text())
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    names = {name for name in names if name.split(".")[0] != "hmatc"}  # the vendor's, or the stand-in
    assert names <= {"tcim_lite", "tcim_lite.runtime", "numpy", "json", "multiprocessing", "re", "sys", "threading"}


def test_chat_answers_as_the_host_library_does(expected, tiny_package, prompts):
    from llm_packages import LoadedPackage

    from tcim_lite.llm import Sampler

    package = tiny_package(prefill_length=32, context_length=128)
    for prompt, answer in zip(prompts, expected, strict=True):
        generator = LoadedPackage(package)
        assert list(generator.generate(prompt, Sampler(), NEW_TOKENS, set())) == answer


def test_the_vendors_tracker_times_a_chat(paths, prompts, expected):
    """Without a PYTHONPATH: the installed package brings the stand-in for hmatc."""
    *summary, last = run("summary", *paths(), json.dumps(prompts[0]), NEW_TOKENS).splitlines()
    tokens, ttft, tpot, end_to_end, infer = json.loads(last)
    assert tokens == expected[0]
    assert f"batch 1, for each sequence 3 tokens in and {NEW_TOKENS} out" in summary[1]
    assert 0 < infer / (NEW_TOKENS - 1) <= tpot
    assert ttft + tpot * (NEW_TOKENS - 1) == pytest.approx(end_to_end * 1e3, rel=0.2)
    assert [line.split("  ")[1] for line in summary if line.startswith("  load")] == ["load prefill", "load decode"]


def test_requests_that_join_other_slots_get_the_answers_of_fresh_chats(paths, prompts, expected):
    """Every prompt comes twice; the second time its rows but the last are copied from the slot that holds them."""
    twice = [prompt for prompt in prompts for _ in range(2)]
    computed, answers = json.loads(run("slots", *paths(batch=3), json.dumps(twice), NEW_TOKENS))
    assert answers == [answer for answer in expected for _ in range(2)]
    assert computed == sum(len(prompt) + 1 for prompt in prompts)


@pytest.mark.parametrize("layers", [1, 2], ids=["another draft", "the target itself as draft"])
def test_a_speculative_pair_lies_where_the_demo_looks_by_default(tiny_package, prompts, expected, tmp_path, layers):
    package = tiny_package(prefill_length=32, context_length=128, draft_layers=layers)
    (tmp_path / "output").mkdir()
    (tmp_path / "output" / "xh2").symlink_to(package.folder)
    found = [json.loads(run("speculative", json.dumps(prompt), NEW_TOKENS, folder=tmp_path)) for prompt in prompts]
    assert [answer for answer, _ in found] == expected
    if layers == 2:
        assert [accepted for _, accepted in found] == [NEW_TOKENS] * len(prompts)  # two rounds of four proposals


@pytest.mark.parametrize("habits", ["plain", "habits"])
@pytest.mark.parametrize("family", ["qwen3_vl", "qwen2_5_vl", "paddleocr_vl"])
def test_a_turn_about_an_image_is_that_of_one_chunk(tiny_package, tmp_path, family, habits):
    """Whatever types its numbers have, and in chunks, as all tokens at once."""
    import tcim_lite.runtime as rt
    from tcim_lite.llm import lanes_of, load_pair

    package = tiny_package(family, prefill_length=32, context_length=128)
    rng, stacked = np.random.default_rng(4), 4 if family == "qwen3_vl" else 1
    tokens = np.concatenate([rng.integers(0, 300, 10), np.full(24, 300), rng.integers(0, 300, 13)])
    place = np.stack([np.zeros(24, int), np.repeat(range(4), 6), np.tile(range(6), 4)])
    text = np.arange(10), np.arange(16, 29)
    positions = np.concatenate([np.tile(text[0], (3, 1)), 10 + place, np.tile(text[1], (3, 1))], axis=1)
    hidden = json.loads((package.tokenizer_folder / "config.json").read_text())["hidden_size"]
    features = rng.standard_normal((stacked, 24, hidden)).astype(np.float16)
    np.savez(tmp_path / "in.npz", tokens=tokens, positions=positions, features=features, image_token=300)
    bin_path = package.folder / "hmquant" / "quant_embedding.bin"
    files = package.prefill_path, package.decode_path, bin_path, tmp_path / "in.npz"
    answer = json.loads(run("vision_language", *files, NEW_TOKENS, habits))
    assert len(answer) == NEW_TOKENS

    whole = tiny_package(family, prefill_length=64, context_length=128)
    prefill, _ = load_pair(whole.prefill_path, whole.decode_path, rt.WeightManager(0))
    (lane,), table = lanes_of(prefill), whole.embedding_for(prefill)
    for count, token in enumerate(answer):  # each time all tokens so far in one call
        ids = np.concatenate([tokens, answer[:count]]).astype(int)
        rows, stacks = np.zeros((64, hidden), np.float16), np.zeros((stacked - 1, 64, hidden), np.float16)
        rows[: len(ids)] = table[ids]
        rows[10:34], stacks[:, 10:34] = features[0], features[1:]
        where = np.zeros((3, 64), np.int32)
        where[:, : len(tokens)] = positions
        where[:, len(tokens) : len(ids)] = 29 + np.arange(count)
        prefill.set_input("input_1", rows[None])
        for name, values in zip(lane.positions, where, strict=True):
            prefill.set_input(name, values)
        for name, stack in zip(lane.deepstack, stacks, strict=True):
            prefill.set_input(name, stack[None])
        prefill.set_input(lane.valid, 0)
        prefill.set_input(lane.current, len(ids))
        prefill.run(True)
        assert int(prefill.get_output("logits").numpy().argmax()) == token


@pytest.mark.parametrize("devices", [1, 2])
def test_a_chat_with_a_mask_for_some_layers_answers_as_one_without(tiny_package, prompts, devices):
    """And on two devices, with caches that are filled with zeros first."""
    plain, masked = (
        tiny_package("laguna", prefill_length=32, context_length=128, masks=masks, ndevice=2) for masks in (False, True)
    )
    suffix, answers = ".hmms" if devices > 1 else ".hmm", []
    for package, script, more in ((plain, "chat", ()), (masked, "sliding_mask", (10, devices))):
        end = ".hmm" if package is plain else suffix
        files = [path.with_suffix(end) for path in (package.prefill_path, package.decode_path)]
        files.append(package.folder / "hmquant" / "quant_embedding.bin")
        answers.append(
            [json.loads(run(script, *files, json.dumps(p), NEW_TOKENS, *more, devices=devices)) for p in prompts[:3]]
        )
    assert answers[0] == answers[1]


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("family", ["qwen3_5_moe", "qwen3_next"])
def test_stored_states_of_a_prefix_change_no_token(tiny_package, prompts, family, in_place):
    """With positions and without; chunks end where they would without the store, so that rounding is the same."""
    from llm_packages import LoadedPackage

    sizes = {"prefill_length": 32, "context_length": 128}
    package = tiny_package(family, recurrent_in_place=in_place, **sizes)
    files = package.prefill_path, package.decode_path, package.folder / "hmquant" / "quant_embedding.bin"
    asked = [prompts[1], prompts[1][:64] + prompts[2], prompts[1][:32] + prompts[0], prompts[3]]
    how = "in place" if in_place else "handed on"
    answers, replayed = json.loads(run("prefix_states", *files, json.dumps(asked), NEW_TOKENS, how))
    assert replayed == [0, 64, 32, 0]
    plain = LoadedPackage(tiny_package(family, **sizes))
    for prompt, answer in zip(asked, answers, strict=True):
        plain.cached_tokens = []
        assert list(plain.generate(prompt, None, NEW_TOKENS, set())) == answer


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_pipeline_of_processes_answers_as_a_single_chat(paths, prompts, expected, method):
    found = run("pipeline", *paths(), json.dumps(prompts), NEW_TOKENS, method, devices=2)
    assert json.loads(found) == expected


def test_an_engine_in_cpp_answers_as_the_host_library_does(tmp_path, paths, tiny_package, prompts):
    """On one device and two, and with states of linear attention that both graphs write in place."""
    from llm_packages import LoadedPackage

    from tcim_lite.llm import Sampler

    program = porting_program(tmp_path, "engine")
    texts = [",".join(map(str, prompt)) for prompt in prompts]

    def answers(prefill: Path, decode: Path, embedding: Path, devices: int) -> str:
        environment = {**os.environ, "TCIM_LITE_DEVICE_NUM": str(devices), "TCIM_LITE_STRICT": "error"}
        command = [program, prefill, decode, embedding, str(devices), str(NEW_TOKENS), *texts]
        return subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment, check=True).stdout

    for family, devices in (("qwen3", 1), ("qwen3", 2), ("qwen3_5", 1)):
        options = {"family": family} | ({"ndevice": 2} if devices == 2 else {})
        prefill, decode, embedding = paths(**options)
        suffix = ".hmms" if devices == 2 else ".hmm"
        found = answers(prefill.with_suffix(suffix), decode.with_suffix(suffix), embedding, devices)
        generator = LoadedPackage(tiny_package(family, prefill_length=32, context_length=128))
        wanted = [list(generator.generate(prompt, Sampler(), NEW_TOKENS, set())) for prompt in prompts]
        assert [[int(number) for number in line.split()] for line in found.splitlines()] == wanted
    missing = answers(prefill, tmp_path / "missing.hmm", embedding, 1)
    assert missing.startswith("caught status -1 at line ")


def test_a_cpp_program_with_device_control_compiles_and_runs(tmp_path, add_model):
    program = porting_program(tmp_path, "power")
    done = subprocess.run([program, add_model], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines() == [
        "before reset of 0",
        "after reset of 0",
        "frequency: 1400000000 Hz",
        "memory adds up: 1",
        "utilization is a percentage: 1",
    ]


@pytest.mark.parametrize(
    ("rule", "resets"),
    [
        ('kind = "hang"\nmodel = "decode"\nnth = 3\ntimeout_s = 0.1', 1),
        ('kind = "device_lost"\nnth = 4', 1),
        ('kind = "device_lost"\ncall = "Module.get_output"\nnth = 2\ntimes = 2', 2),
        ('kind = "out_of_memory"\nnth = 2', 1),
        ('kind = "load_failure"\ntimes = 2', 2),
        ('kind = "reset"\nnth = 3', 1),
        ('kind = "flaky_sync"\nprobability = 0.3\nseed = 5\ntimes = 4', 4),
        ('kind = "slow"\ndelay_s = 0.01', 0),
        ('kind = "throttle"\nclock_mhz = 700', 0),
    ],
)
def test_a_program_that_resets_its_card_answers_as_without_faults(paths, prompts, expected, tmp_path, rule, resets):
    rules = tmp_path / "rules.toml"
    rules.write_text(f"[[fault]]\n{rule}\n")
    prompt = json.dumps(prompts[1])
    assert json.loads(run("watchdog", *paths(), prompt, NEW_TOKENS)) == [expected[1], 0]
    assert json.loads(run("watchdog", *paths(), prompt, NEW_TOKENS, faults=str(rules))) == [expected[1], resets]


def test_a_hybrid_model_answers_as_the_host_library_does(paths, tiny_package, prompts):
    """States are handed on by binding; a second request begins with zeros."""
    from llm_packages import LoadedPackage

    from tcim_lite.llm import Sampler

    found = json.loads(run("hybrid", *paths(family="qwen3_5"), json.dumps(prompts), NEW_TOKENS))
    generator = LoadedPackage(tiny_package("qwen3_5", prefill_length=32, context_length=128))
    for prompt, answer in zip(prompts, found, strict=True):
        assert list(generator.generate(prompt, Sampler(), NEW_TOKENS, set())) == answer
