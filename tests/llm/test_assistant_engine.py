"""Packages with an assistant behind the engine: the answers of plain decode, whatever is guessed."""

import json

import numpy as np
import pytest
from llm_packages import LoadedPackage, compile_package
from test_mtp_engine import PROMPTS, Told, answers_of

from tcim_lite.bench.measure import measure_package
from tcim_lite.cli import main
from tcim_lite.llm import Package, Sampler
from tcim_lite.llm.engine import Engine, Slots
from tcim_lite.llm.engine.assistant import Assistant
from tcim_lite.models.families import FAMILIES

SIZES = {"prefill_length": 16, "context_length": 64, "random_weights": True, "seed": 7}
LAYERS = ["sliding_attention", "full_attention", "sliding_attention", "full_attention"]
DENSE = {
    **{key: value for key, value in FAMILIES["gemma4"].tiny.items() if key != "sliding_window_pattern"},
    "num_hidden_layers": 4,
    "layer_types": LAYERS,
}
E2B = {
    **DENSE,
    "num_kv_shared_layers": 2,
    "hidden_size_per_layer_input": 64,
    "vocab_size_per_layer_input": 331,
}
# The last layer with a window is the first.
APART = {**DENSE, "layer_types": [LAYERS[0], *[LAYERS[1]] * 3]}
# Of its four layers, all take keys and values of the model.
OWN = {
    **DENSE,
    "hidden_size": 128,
    "intermediate_size": 192,
    "num_attention_heads": 2,
    "num_kv_shared_layers": 4,
    "layer_types": ["sliding_attention"] * 3 + ["full_attention"],
}


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """A package without an assistant and one with, of the same weights."""
    made = {}

    def make(config=DENSE, **options):
        key = json.dumps([config, options], sort_keys=True)
        if key not in made:
            folder = tmp_path_factory.mktemp("pair")
            (folder / "assistant").mkdir()
            text = {"model_type": "gemma4_text", **config}
            own = {"model_type": "gemma4_assistant", "text_config": OWN, "backbone_hidden_size": DENSE["hidden_size"]}
            (folder / "config.json").write_text(json.dumps(text))
            (folder / "assistant/config.json").write_text(json.dumps(own))
            plain = compile_package(folder, folder / "plain", **SIZES, **options)
            guided = compile_package(folder, folder / "guided", draft=folder / "assistant", **SIZES, **options)
            made[key] = plain, guided
        return made[key]

    return make


def wanted(package, limit):
    model, answers = LoadedPackage(package), {}
    for index, prompt in enumerate(PROMPTS):
        model.cached_tokens = []
        answers[str(index)] = list(model.generate(prompt, Sampler(), limit, ()))
    return answers


@pytest.mark.parametrize("speculate", ["off", "draft", "lookup", "auto"])
@pytest.mark.parametrize("config", [DENSE, E2B, APART], ids=["dense", "E2B", "apart"])
def test_answers_are_those_of_plain_decode(pair, strict_mode, config, speculate):
    plain, guided = pair(config)
    engine = Engine.open(guided, speculate=speculate)
    assert answers_of(engine, 12) == wanted(plain, 12)
    assert (engine.stats.drafted_tokens > 0) == (speculate in ("draft", "auto"))


@pytest.mark.parametrize("quant", ["w4a8h0_ssfp", "w8a8h1_sefp", "float16", "float32"])
def test_logits_are_those_of_plain_decode(pair, strict_mode, quant):
    """Of a Generator, of slots, and of tokens that are verified together, also where some are taken back."""
    plain, guided = (LoadedPackage(package) for package in pair(quant=quant))
    slots = Slots.open(pair(quant=quant)[1])
    np.testing.assert_array_equal(slots.prefill(0, PROMPTS[1]), plain.prefill(PROMPTS[1]))
    guided.prefill(PROMPTS[1])
    right, first = [4, 9, 2, 7, 1, 8, 3, 5], len(PROMPTS[1])
    want = [plain.decode(token, first + place) for place, token in enumerate(right)]
    for place, token in enumerate(right):
        np.testing.assert_array_equal(guided.decode(token, first + place), want[place])
    slots.verify(0, [4, 9, 100, 101, 102])
    del slots.tokens[0][first + 2 :]
    np.testing.assert_array_equal(slots.verify(0, right[2:7]), want[2:7])
    np.testing.assert_array_equal(slots.decode({0: right[7]})[0], want[7])


def test_any_number_of_guesses_may_be_right(pair, strict_mode):
    plain, guided = pair()
    answers = wanted(plain, 20)
    engine = Engine(Slots.open(guided), drafter=Told(list(answers.values())))
    assert answers_of(engine, 20) == answers
    assert 0 < engine.stats.accepted_tokens < engine.stats.drafted_tokens
    assert engine.stats.verify_steps + engine.stats.decode_steps < 3 * 19


def test_sampled_answers_do_not_change(pair):
    plain, guided = pair(E2B)
    params = {"temperature": 0.8, "seed": 5}
    answers = answers_of(Engine.open(plain), 12, **params)
    assert answers_of(Engine.open(guided, speculate="draft"), 12, **params) == answers


@pytest.mark.parametrize("config", [DENSE, E2B, APART], ids=["dense", "E2B", "apart"])
def test_it_guesses_as_the_vendors_program_feeds_it(pair, config):
    """By the names of its inputs, at one position, with the caches of the last layer of each kind."""
    slots = Slots.open(pair(config)[1])
    assistant = Assistant.open(pair(config)[1], slots)
    assistant.margin = 0
    kinds = {"sliding": LAYERS[0], "full": LAYERS[1]}
    cached = config["layer_types"][: 4 - config.get("num_kv_shared_layers", 0)]
    states = {}
    observe = slots.on_hidden

    def seen(slot, held, tokens, hidden, is_prompt):
        states["last"] = hidden
        observe(slot, held, tokens, hidden, is_prompt)

    slots.on_hidden = seen
    for begin in (0, 16):
        slots.prefill(0, PROMPTS[2][begin : begin + 16])
    slots.verify(0, [5, 6, 7])
    del slots.tokens[0][-1:]
    guesses = assistant.propose([*slots.tokens[0], 11], 4)
    assert len(guesses) == 4
    known, module = len(slots.tokens[0]), assistant._module
    inputs = {"past_seq_length": np.int32([known]), "current_input_length": np.int32([1])}
    inputs["local_attention_mask"] = np.full((1, 1, 1, 33), -65504, np.float16)
    inputs["local_attention_mask"][..., known - 24 - (known - 32) : 32] = 0  # 32 rows before the position, 24 seen
    inputs["global_attention_mask"] = np.full((1, 1, 1, 64), -65504, np.float16)
    inputs["global_attention_mask"][..., :known] = 0
    caches = slots.stages[0].caches[0]
    for kind, name in kinds.items():
        place = max(index for index, each in enumerate(cached) if each == name)
        inputs[f"shared_key_cache_{kind}"] = caches[place]
        inputs[f"shared_value_cache_{kind}"] = caches[len(cached) + place]
    token, hidden, expected = 11, states["last"][1], []
    for _ in range(4):
        row = np.concatenate([np.asarray(slots.embedding[token])[: len(hidden)], hidden])
        for name, value in {**inputs, "inputs_embeds": row.reshape(1, 1, -1)}.items():
            module.set_input(name, value)
        module.run(sync=True)
        token = int(module.get_output("logits").numpy().argmax())
        hidden = module.get_output("assistant_hidden_state").numpy().reshape(-1)
        expected.append(token)
    assert guesses == expected
    assert assistant.propose([*slots.tokens[0][:-1], 11], 4) == []  # no text that the slot holds


def test_commands_take_such_packages(pair, tmp_path, capsys, known_limits):
    plain, guided = pair(E2B)
    tokens = ",".join(map(str, PROMPTS[0]))
    dumps = []
    for package in (plain, guided):
        dumps.append(str(tmp_path / package.folder.name))
        command = ["dump", str(package.folder), "-o", dumps[-1], "--tokens", tokens, "--steps", "3"]
        assert main(command) == 0
    stages = [part for stage in ("prefill", "decode") for part in ("--graph", f"{guided.name}_{stage}")]
    assert main(["golden", str(guided.folder), dumps[1], *stages, "--cosine", "1"]) == 0
    titles = [timing.title for timing in measure_package(guided.folder, quick=True).timings]
    assert titles == ["prefill 16", "verify 5"]
    assert main(["bench", str(guided.folder), "--device-time"]) == 0
    capsys.readouterr()


def test_what_is_missing_is_said(pair, tmp_path):
    plain, guided = pair()
    with pytest.raises(FileNotFoundError, match=r"compile CHECKPOINT .* --verify-length"):
        Engine.open(plain, speculate="draft")
    for path in guided.folder.iterdir():
        if path.is_file() and "assistant" not in path.name:
            (tmp_path / path.name).symlink_to(path)
    (tmp_path / "hmquant").symlink_to(guided.folder / "hmquant")
    (tmp_path / "tokenizer").symlink_to(guided.folder / "tokenizer")
    with pytest.raises(FileNotFoundError, match=r"compile CHECKPOINT .* --draft ASSISTANT"):
        Engine.open(Package.open(tmp_path), speculate="draft")
