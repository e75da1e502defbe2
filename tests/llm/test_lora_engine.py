"""Adapters in the engine: each answer is the one that its adapter gives alone, whatever runs beside it."""

from __future__ import annotations

import functools
import json

import numpy as np
import pytest
from engine_tools import run
from llm_packages import DEMO_CHECKPOINT, LoadedPackage, compile_package
from lora_adapters import ATTENTION, linears_of, mlps_of, write_random_adapter

pytest.importorskip("safetensors.numpy", reason="writes adapters")

from tcim_lite.llm import Sampler
from tcim_lite.llm.engine import Driver, Engine, Replicas, RequestError, SamplingParams
from tcim_lite.llm.engine.request import Request, State
from tcim_lite.llm.engine.scheduler import Scheduler
from tcim_lite.llm.lora import lora_names
from tcim_lite.models.families import FAMILIES

SIZES = {"prefill_length": 16, "context_length": 64, "name": "it"}
ADAPTERS = ("first", "second")
WHOSE = (None, *ADAPTERS)


@pytest.fixture(scope="module")
def tuned(tmp_path_factory):
    """Packages of the demo checkpoint into which two adapters were compiled, by options."""
    folder = tmp_path_factory.mktemp("tuned")
    for seed, name in enumerate(ADAPTERS):
        write_random_adapter(folder / name, linears_of(DEMO_CHECKPOINT), seed)

    @functools.cache
    def make(**options):
        output = tmp_path_factory.mktemp("out")
        for name in ADAPTERS:
            package = compile_package(DEMO_CHECKPOINT, output, lora=folder / name, **SIZES, **options)
        return package

    return make


@pytest.fixture(scope="module")
def alone(tuned):
    """One request by `LanguageModel.generate`, with an adapter set as a program of the vendor's sets it."""
    package = tuned()
    model = LoadedPackage(package)

    def generate(prompt, limit, adapter=None, sampler=None):
        for name in lora_names(model.prefill_module):
            info = model.prefill_module.get_input_info(name)
            value = np.zeros(info.shape, info.dtype)
            if adapter is not None:
                value = np.load(package.folder / f"it_{adapter}_decode_lora_input" / f"{name}.npy")
            model.prefill_module.set_input(name, value)
        model.cached_tokens = []
        return list(model.generate(prompt, sampler or Sampler(), limit, ()))

    return generate


def prompt_of(length, seed=3):
    return np.random.default_rng(seed).integers(5, 300, length).tolist()


def opened(package, **options):
    return Engine.open(package, adapters=package.adapters, stop_tokens=(), **options)


OPTIONS = [
    {"batch": 3},
    {"batch": 4, "argmax": True},
    {"all_logits": True},
    {"verify_length": 4},
    {"draft_layers": 1, "batch": 2},
    {"pipeline": 2, "batch": 2},
    {"ndevice": 2, "batch": 2},
]


@pytest.mark.parametrize("options", OPTIONS, ids="-".join)
def test_answers_are_those_of_each_adapter_alone(tuned, alone, monkeypatch, options):
    monkeypatch.setenv("TCIM_LITE_DEVICE_NUM", "2")
    guesses = "lookup" if "verify_length" in options else "draft" if "draft_layers" in options else "off"
    devices = [0, 1] if {"pipeline", "ndevice"} & options.keys() else [0]
    engine = opened(tuned(**options), devices=devices, pipeline="pipeline" in options, speculate=guesses)
    asked = {}
    for number in range(6):
        whose, seed = WHOSE[number % 3], None if number < 3 else number
        prompt = prompt_of(20 + number, number) if number % 2 else [7, 8, 9] * 8
        params = SamplingParams(max_tokens=12, adapter=whose, seed=seed, temperature=0.0 if seed is None else 1.0)
        engine.add(prompt, params, request_id=f"{number}")
        asked[f"{number}"] = alone(prompt, 12, whose, params.sampler())
    assert run(engine)[0] == asked
    assert len({tuple(tokens) for tokens in asked.values()}) == len(asked)
    assert (engine.stats.accepted_tokens > 0) == (guesses != "off")


GUIDED = {
    "own-layer": ("qwen3_5", {"mtp": True}),
    "own-layer-of-two-slots": ("qwen3_5", {"mtp": True, "batch": 2}),
    "assistant": ("gemma4", {"draft": "assistant"}),
}


@pytest.mark.parametrize("case", GUIDED)
def test_guesses_change_no_answer_of_an_adapter(tmp_path, case):
    family, options = GUIDED[case]
    config = FAMILIES[family].tiny_config
    write_random_adapter(tmp_path / "first", mlps_of(FAMILIES[family].tiny))
    (tmp_path / "config.json").write_text(json.dumps(config))
    if "draft" in options:
        text = {**FAMILIES[family].tiny, "num_kv_shared_layers": FAMILIES[family].tiny["num_hidden_layers"]}
        own = {"model_type": "gemma4_assistant", "text_config": text, "backbone_hidden_size": text["hidden_size"]}
        (tmp_path / "assistant").mkdir()
        (tmp_path / "assistant/config.json").write_text(json.dumps(own))
        options = {"draft": tmp_path / "assistant"}
    common = {**SIZES, "lora": tmp_path / "first", "random_weights": True}
    plain = opened(compile_package(tmp_path, tmp_path / "plain", **common))
    guided = opened(compile_package(tmp_path, tmp_path / "guided", **common, **options), speculate="draft")
    answers = []
    for engine in (plain, guided):
        for whose in (None, "first"):
            engine.add(prompt_of(20), SamplingParams(max_tokens=12, adapter=whose), request_id=str(whose))
        answers.append(run(engine)[0])
    assert answers[0] == answers[1]
    assert answers[0]["None"] != answers[0]["first"]
    assert guided.stats.drafted_tokens > 0


@pytest.mark.parametrize("kept", [0, 1 << 24])
def test_rows_are_those_of_one_adapter(tuned, alone, kept):
    engine, prompt = opened(tuned(batch=2), prefix_cache_bytes=kept), prompt_of(40)
    found = []
    for whose in (*WHOSE, *WHOSE, "second"):
        name = engine.add(prompt, SamplingParams(max_tokens=3, adapter=whose)).id
        answers, last = run(engine)
        assert answers[name] == alone(prompt, 3, whose)
        found.append(last[name].usage.cached_tokens)
    # Of two slots, the adapter asked for two before has been replaced; host memory has all.
    assert found == ([0, 0, 0, 39, 39, 39, 39] if kept else [0, 0, 0, 0, 0, 0, 39])
    assert len(engine.host_rows) == (3 if kept else 0)


def test_prompts_that_come_together_are_copied_within_an_adapter(tuned, alone):
    engine, prompt = opened(tuned(batch=4)), prompt_of(40)
    for number, whose in enumerate((None, "first", None, "first")):
        engine.add(prompt, SamplingParams(max_tokens=4, adapter=whose), request_id=f"{number}")
    answers, last = run(engine)
    assert [answers[f"{number}"] for number in range(4)] == [alone(prompt, 4, whose) for whose in (None, "first")] * 2
    assert [last[f"{number}"].usage.cached_tokens for number in range(4)] == [0, 0, 39, 39]


def decoding(*adapters):
    scheduler = Scheduler(len(adapters))
    for slot, adapter in enumerate(adapters):
        scheduler.waiting.append(Request(f"{slot}", [1], SamplingParams(adapter=adapter)))
        scheduler.admit(slot).state = State.DECODE
    return scheduler


def test_adapters_take_turns_of_four_steps():
    scheduler = decoding(None, "first", None, "second")
    steps = ["".join(request.id for request in scheduler.decoding()) for _ in range(28)]
    assert steps == (["02"] * 4 + ["1"] * 4 + ["3"] * 4) * 2 + ["02"] * 4
    scheduler.remove(scheduler.running[1])
    steps = ["".join(request.id for request in scheduler.decoding()) for _ in range(12)]
    assert steps == ["3"] * 4 + ["02"] * 4 + ["3"] * 4


def test_an_adapter_alone_goes_on_and_gives_way_at_once():
    scheduler = decoding("first", "first", None)
    base = scheduler.running.pop(2)
    assert all(len(scheduler.decoding()) == 2 for _ in range(10))
    scheduler.running[2] = base
    assert scheduler.decoding() == [base]


def test_a_run_of_two_adapters_is_refused(tuned):
    slots = opened(tuned(batch=3)).slots
    for slot, adapter in enumerate(("first", None, "first")):
        slots.assign(slot, adapter)
        slots.prefill(slot, [1, 2, 3])
    with pytest.raises(ValueError, match=r"slots \[0, 1\] have 2 adapters; a run has one"):
        slots.decode({0: 5, 1: 6})
    slots.decode({0: 5, 2: 5})
    assert slots.tokens == [[1, 2, 3, 5], [1, 2, 3], [1, 2, 3, 5]]
    slots.assign(0, "first")
    slots.assign(2, "second")
    assert slots.tokens == [[1, 2, 3, 5], [1, 2, 3], []]
    slots.copy_rows(0, 1, 2)
    assert (slots.tokens[1], slots.adapter_of) == ([1, 2], ["first", "first", "second"])


def test_replicas_send_a_prompt_to_the_rows_of_its_adapter(tuned, monkeypatch):
    replicas, prompt = Replicas([Driver(opened(tuned(batch=2))) for _ in range(2)]), prompt_of(40)
    try:
        for number, adapter in enumerate(ADAPTERS):
            slots = replicas.drivers[number].engine.slots
            slots.tokens[0], slots.adapter_of[0] = list(prompt), adapter
        chosen = []
        for driver in replicas.drivers:
            monkeypatch.setattr(driver, "submit", lambda *_, of=driver, **__: chosen.append(of))
        for adapter in ADAPTERS[::-1]:
            replicas.submit(prompt, SamplingParams(adapter=adapter), print)
        assert chosen == replicas.drivers[::-1]
    finally:
        replicas.close()


def test_a_change_that_fails_is_made_again(tuned, alone, monkeypatch):
    engine, prompt = opened(tuned(batch=2)), prompt_of(20)
    decode, calls = engine.slots.stages[0].decode, iter([True, True, False])
    set_input = decode.set_input

    def failing(name, value):
        if name.startswith("lora") and not next(calls, True):
            raise RuntimeError("the device is gone")
        set_input(name, value)

    monkeypatch.setattr(decode, "set_input", failing)
    engine.add(prompt, SamplingParams(max_tokens=3, adapter="first"), request_id="one")
    assert run(engine)[1]["one"].error == "RuntimeError: the device is gone"
    for whose in (None, "first"):
        name = engine.add(prompt, SamplingParams(max_tokens=3, adapter=whose)).id
        assert run(engine)[0][name] == alone(prompt, 3, whose)


def test_adapters_that_are_not_there_are_refused(tuned, tmp_path, tiny_package):
    package = tuned()
    engine = opened(package)
    with pytest.raises(RequestError, match="adapter 'third' is not loaded; loaded are first, second"):
        engine.add([1], SamplingParams(adapter="third"))
    with pytest.raises(TypeError, match="adapter=3: expected the name of an adapter, or None"):
        SamplingParams(adapter=3)
    own = package.adapters["first"]

    def refused(message, folder, of=package):
        with pytest.raises(ValueError, match=message):
            Engine.open(of, adapters={"x": folder})

    refused("adapter 'x': the graphs take no LoRA; compile the package with --lora", own, tiny_package())
    refused("is no folder", tmp_path / "missing")
    write_random_adapter(tmp_path / "peft", linears_of(DEMO_CHECKPOINT))
    refused("is a PEFT adapter; compile it into the package, `tcim-lite compile CHECKPOINT", tmp_path / "peft")
    write_random_adapter(tmp_path / "fewer", linears_of(DEMO_CHECKPOINT, ATTENTION))
    other = compile_package(DEMO_CHECKPOINT, tmp_path / "fewer_out", lora=tmp_path / "fewer", **SIZES)
    refused(r"fewer_prefill_lora_input lacks lora_.*\.npy, so it changes other Linears", other.adapters["fewer"])
    refused(r"first_prefill_lora_input has lora_.*\.npy, so it changes other Linears", own, other)
    exact = compile_package(DEMO_CHECKPOINT, tmp_path / "exact", lora=tmp_path / "peft", quant="float32", **SIZES)
    refused("float32, the graph takes .* float16; compile both adapters", exact.adapters["peft"])
    path = next(exact.adapters["peft"].glob("*.npy"))
    path.write_bytes(path.read_bytes()[:-1])
    refused("cannot be read: .*; compile the adapter again", exact.adapters["peft"], exact)
