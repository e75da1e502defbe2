"""Engines over other graphs than a batch on one device: verify pairs, stages, several devices."""

import numpy as np
import pytest
from engine_tools import CHUNK, CONTEXT, prompt_of, run
from family_forms import in_the_grid
from llm_packages import DEMO_CHECKPOINT, STATELESS, WITHOUT_AXES, LoadedPackage, compile_package

from tcim_lite.llm import Package, Sampler, encode_chat, load_tokenizer
from tcim_lite.llm.engine import Engine, PromptLookup, SamplingParams, Slots, StructuredOutput
from tcim_lite.llm.engine.speculate import drafter_for
from tcim_lite.models.families import FAMILIES

VERIFY = 5
QUESTIONS = ["Repeat after me: one two three four five six", "What is 12 + 30?", "Reverse: 1 2 3 4 5"]


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """The demo model with a verify graph and a draft of its first blocks."""
    options = {"quant": "w8a8h1_sefp", "context_length": 256, "verify_length": VERIFY, "draft_layers": 3}
    return compile_package(DEMO_CHECKPOINT, tmp_path_factory.mktemp("demo") / "pair", **options)


@pytest.mark.parametrize("speculate", ["lookup", "draft"])
def test_guesses_change_no_answer(pair, speculate):
    tokenizer, model = load_tokenizer(pair.tokenizer_folder), LoadedPackage(pair)
    engine = Engine.open(pair, tokenizer=tokenizer, speculate=speculate)
    kinds = [
        {},
        {"temperature": 1.2, "seed": 5},
        {"temperature": 0.7, "seed": 6, "frequency_penalty": 0.4, "repetition_penalty": 1.1},
    ]
    for question in QUESTIONS:
        prompt = encode_chat(tokenizer, [{"role": "user", "content": question}])
        for options in kinds:
            for limit in (None, 1, 2, 7):
                params = SamplingParams(max_tokens=limit, logprobs=2, **options)
                model.cached_tokens = []
                expected = list(model.generate(prompt, params.sampler(), limit, engine.stop_tokens))
                request = engine.add(prompt, params)
                answers, last = run(engine)
                assert answers.get(request.id, []) == expected
                assert last[request.id].usage.completion_tokens == model.stats.new_tokens
    stats = engine.stats
    assert 0 < stats.accepted_tokens < stats.drafted_tokens
    assert stats.completion_tokens > 1.2 * (stats.verify_steps + stats.decode_steps)


def test_a_grammar_judges_guesses_too(pair):
    tokenizer = load_tokenizer(pair.tokenizer_folder)
    prompt = encode_chat(tokenizer, [{"role": "user", "content": QUESTIONS[0]}])
    engines = [Engine.open(pair, tokenizer=tokenizer, speculate=word) for word in ("off", "draft")]
    for wanted in (StructuredOutput(regex="one two [a-z]{4,9} end"), StructuredOutput(choice=("one two", "one three"))):
        answers = [
            run(engine, {engine.add(prompt, SamplingParams(structured=wanted)).id: []})[0].popitem()[1]
            for engine in engines
        ]
        assert answers[0] == answers[1] != []
    assert engines[1].stats.drafted_tokens > 0


@pytest.mark.parametrize(
    "options",
    [
        *(in_the_grid(name, {"family": name} | ({"batch": 2} if name in WITHOUT_AXES else {})) for name in FAMILIES),
        {"position_ids": True},
    ],
)
def test_every_kind_of_graph(tiny_package, options):
    """Families differ in blocks, windows and experts; graphs with positions have one slot."""
    sizes = {"prefill_length": CHUNK, "context_length": CONTEXT}
    package = tiny_package(**options, **sizes)
    model = LoadedPackage(tiny_package(**{name: v for name, v in options.items() if name != "batch"}, **sizes))
    engine = Engine.open(package, stop_tokens=(), prefix_cache_bytes=1 << 22)
    shared = prompt_of(20, 1)
    prompts = [prompt_of(40, 2), shared, [*shared, 3, 4], [*prompt_of(40, 2)[:30], 5], prompt_of(3, 5)]
    requests = [engine.add(prompt, SamplingParams(max_tokens=12)) for prompt in prompts]
    answers, _ = run(engine)
    for request in requests:
        model.cached_tokens = []
        assert answers[request.id] == list(model.generate(request.prompt, Sampler(), 12, ()))
    # A state has seen all of its sequence.
    cached = engine.stats.cached_tokens
    assert cached >= 20 if options.get("family", "qwen3") in STATELESS else cached == 0


def test_guesses_beside_other_requests(tiny_package, alone):
    """The tiny model says the same again and again; several answers decode together, the last one alone."""
    package = tiny_package(prefill_length=CHUNK, context_length=CONTEXT, batch=3, verify_length=VERIFY)
    engine = Engine(Slots.open(package), drafter=PromptLookup(2, 1))
    prompts = [prompt_of(length, length) for length in (4, 9, 30)]
    kinds = [SamplingParams(max_tokens=n, temperature=t, seed=1) for n, t in ((4, 0.0), (12, 0.4), (None, 0.0))]
    requests = [engine.add(prompt, params) for prompt, params in zip(prompts, kinds, strict=True)]
    answers, last = run(engine)
    for request in requests:  # the last one ends with its context, where decode ends it
        assert answers[request.id] == alone(request.prompt, request.params.max_tokens, request.params.sampler())
        assert last[request.id].finish_reason == "length"
    assert engine.stats.accepted_tokens > 0
    assert engine.stats.decode_steps > 0
    held = [list(tokens) for tokens in engine.slots.tokens]
    again = engine.add(prompts[2], SamplingParams(max_tokens=3))
    assert run(engine)[0][again.id] == alone(prompts[2], 3)
    assert len(held[2]) >= CONTEXT - 1


def test_lookup_finds_the_last_place_that_ends_alike():
    propose = PromptLookup().propose
    assert propose([1, 2, 3, 9, 1, 2, 3, 8, 7, 1, 2, 3], 4) == [8, 7, 1, 2]
    assert propose([5, 1, 2, 3, 4, 6, 2, 3], 2) == [4, 6]  # two tokens alike
    assert propose([1, 2, 3, 4], 4) == propose([1], 4) == propose([], 4) == []
    assert propose([7, 7, 7], 2) == [7]
    with pytest.raises(ValueError, match="shortest=4"):
        PromptLookup(3, 4)


def test_what_speculation_lacks_is_named(tiny_package, pair):
    plain = tiny_package(prefill_length=CHUNK, context_length=CONTEXT)
    assert Engine.open(plain, speculate="auto").slots.verify_length == 0
    assert Engine.open(pair, speculate="auto").slots.verify_length == VERIFY
    for word in ("lookup", "draft"):
        with pytest.raises(FileNotFoundError, match="--verify-length"):
            Engine.open(plain, speculate=word)
    assert Engine.open(pair, speculate="draft").slots.verify_length == VERIFY
    assert drafter_for(pair, "draft", 1536).model.vocab_size == 1536
    with pytest.raises(ValueError, match="the draft model has 1536 tokens, the package 1537"):
        drafter_for(pair, "draft", 1537)
    with pytest.raises(ValueError, match="speculate='yes'"):
        Engine.open(plain, speculate="yes")
    with pytest.raises(ValueError, match="--verify-length"):
        Engine(Slots.open(plain), drafter=PromptLookup())
    with pytest.raises(ValueError, match="--verify-length"):
        Slots.open(plain).verify(0, [1])


@pytest.fixture
def several(tiny_package, monkeypatch):
    monkeypatch.setenv("TCIM_LITE_DEVICE_NUM", "2")
    return tiny_package(prefill_length=CHUNK, context_length=CONTEXT, batch=3, ndevice=2, pipeline=2)


@pytest.mark.parametrize("pipeline", [False, True])
def test_several_devices_give_the_answers_of_one(several: Package, alone, pipeline):
    engine = Engine.open(several, devices=(1, 0), pipeline=pipeline, stop_tokens=(), prefix_cache_bytes=1 << 20)
    assert len(engine.slots.stages) == 1 + pipeline
    system = prompt_of(33, 1)
    prompts = [[*system, *prompt_of(length, length)] for length in (1, 5, 12, 20, 2)] + [prompt_of(40, 9)]
    for turn in range(2):  # rows come from other slots, then from the host
        requests = [engine.add(p, SamplingParams(max_tokens=9, temperature=turn, seed=turn)) for p in prompts]
        answers, _ = run(engine)
        for request in requests:
            assert answers[request.id] == alone(request.prompt, 9, Sampler(float(turn), seed=turn))
    assert engine.stats.cached_tokens > 9 * 33
    assert engine.host_rows.used_bytes
    rows = engine.slots.read_rows(0)
    assert sum(part.nbytes for part in rows) == len(engine.slots.tokens[0]) * engine.slots.row_bytes


@pytest.mark.parametrize("options", [{"ndevice": 2}, {"pipeline": 2}, {"pipeline": 2, "batch": 2}])
def test_guesses_are_judged_on_several_devices(tiny_package, monkeypatch, alone, options):
    monkeypatch.setenv("TCIM_LITE_DEVICE_NUM", "2")
    sizes = {"prefill_length": CHUNK, "context_length": CONTEXT}
    kind = {"devices": (0, 1), "pipeline": "pipeline" in options}
    engine = Engine.open(tiny_package(verify_length=VERIFY, **options, **sizes), **kind, drafter=PromptLookup(2, 1))
    request = engine.add(prompt_of(4, 4), SamplingParams(max_tokens=30))
    assert run(engine)[0][request.id] == alone(request.prompt, 30)
    assert engine.stats.accepted_tokens > 0
    without, words = tiny_package(**options, **sizes), "--pipeline 2" if kind["pipeline"] else "--ndevice 2"
    with pytest.raises(FileNotFoundError, match=f"--verify-length 5.*{words}"):
        Engine.open(without, **kind, speculate="lookup")


def test_stages_and_devices_must_be_as_many(several, tiny_package):
    with pytest.raises(ValueError, match="2 stages, devices names 1"):
        Slots.open(several, pipeline=True)
    with pytest.raises(FileNotFoundError, match="--pipeline 2"):
        Slots.open(tiny_package(prefill_length=CHUNK, context_length=CONTEXT), pipeline=True)
    with pytest.raises(ValueError, match="devices is empty"):
        Slots.open(several, devices=[])


def test_rows_of_stages_travel_together(several):
    slots, one = Slots.open(several, devices=(0, 1), pipeline=True), Slots.open(several)
    prompt = prompt_of(CHUNK, 3)
    np.testing.assert_array_equal(slots.prefill(1, prompt), one.prefill(0, prompt))
    slots.write_rows(2, prompt[:10], slots.read_rows(1))
    one.copy_rows(0, 2, 10)
    np.testing.assert_array_equal(slots.decode({2: 7})[2], one.decode({2: 7})[2])
