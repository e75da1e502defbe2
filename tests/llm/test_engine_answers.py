"""What an answer is made of: seeds, ends, text, logarithms of probabilities, grammars."""

import json
import re
import sys

import numpy as np
import pytest
from llm_packages import DEMO_CHECKPOINT, LoadedPackage, compile_package

from tcim_lite.llm import GenerationDefaults, Sampler, encode_chat, load_tokenizer
from tcim_lite.llm.engine import Engine, RequestError, SamplingParams, StructuredOutput, Tagged
from tcim_lite.llm.engine.structured import Grammars


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo") / "batch"
    return compile_package(DEMO_CHECKPOINT, folder, quant="w8a8h1_sefp", batch=3, context_length=256)


@pytest.fixture(scope="module")
def tokenizer(demo):
    return load_tokenizer(demo.tokenizer_folder)


@pytest.fixture(scope="module")
def engine(demo, tokenizer):
    return Engine.open(demo, tokenizer=tokenizer)


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo") / "one"
    return LoadedPackage(compile_package(DEMO_CHECKPOINT, folder, quant="w8a8h1_sefp", context_length=256))


def answers(engine, requests):
    """Tokens, text, logprobs and last event of each (prompt, params)."""
    found = {engine.add(prompt, params).id: [[], "", [], None] for prompt, params in requests}
    while engine.has_work:
        for event in engine.step():
            answer = found[event.request_id]
            answer[0] += event.token_ids
            answer[1] += event.text
            answer[2] += event.logprobs
            answer[3] = event
    return list(found.values())


def chat(tokenizer, text):
    return encode_chat(tokenizer, [{"role": "user", "content": text}])


QUESTIONS = ["What is 12 + 30?", "Reverse: 1 2 3 4 5", "Hello, who are you?", "Repeat after me: one"]


def test_greedy_answers_and_their_ends_are_those_of_generate(engine, alone, tokenizer):
    prompts = [chat(tokenizer, text) for text in QUESTIONS]
    for prompt, (tokens, text, _, last) in zip(
        prompts, answers(engine, [(p, SamplingParams()) for p in prompts]), strict=True
    ):
        assert tokens == list(alone.generate(prompt, Sampler(), None, engine.stop_tokens))
        assert text == tokenizer.decode(tokens, skip_special_tokens=True)
        assert last.finish_reason == "stop"
        assert last.stop_reason in engine.stop_tokens
        assert last.usage.completion_tokens == len(tokens) + 1


@pytest.mark.parametrize(
    "options",
    [
        {"temperature": 1.5},
        {"temperature": 2.0, "top_k": 40, "top_p": 0.9, "min_p": 0.01},
        {"temperature": 3.0, "repetition_penalty": 1.3, "presence_penalty": 0.5, "frequency_penalty": 0.25},
        {"temperature": 2.0, "logit_bias": {5: 3.0, 7: -9.0}},
    ],
)
def test_a_seed_gives_the_same_tokens_in_any_slot_and_company(engine, alone, tokenizer, options):
    prompts = [chat(tokenizer, text) for text in QUESTIONS]
    params = [SamplingParams(**options, seed=seed, max_tokens=25, ignore_eos=True) for seed in range(4)]
    expected = []
    for prompt, wanted in zip(prompts, params, strict=True):
        alone.cached_tokens = []
        expected.append(list(alone.generate(prompt, wanted.sampler(), 25, ())))
    for turn in range(3):  # slots and prefixes differ each time
        order = np.random.default_rng(turn).permutation(4)
        found = answers(engine, [(prompts[i], params[i]) for i in order])
        assert [answer[0] for answer in found] == [expected[i] for i in order]
    assert len({tuple(tokens) for tokens in expected}) == 4


def test_defaults_of_the_checkpoint():
    sampling = GenerationDefaults(do_sample=True, temperature=0.6, top_k=20, top_p=0.95)
    assert SamplingParams.of(sampling) == SamplingParams(temperature=0.6, top_k=20, top_p=0.95)
    assert SamplingParams.of(sampling, temperature=0.0).sampler().temperature == 0
    assert SamplingParams.of(GenerationDefaults(top_p=0.5)) == SamplingParams()
    assert SamplingParams.of(GenerationDefaults(), temperature=1.0).top_k == 50


def test_stop_strings_end_an_answer_across_tokens(engine, tokenizer):
    prompt = chat(tokenizer, "Repeat after me: the quick brown fox")
    [(tokens, text, _, _)] = answers(engine, [(prompt, SamplingParams())])
    stop = text[len(text) // 2 - 3 : len(text) // 2 + 3]
    assert len(stop) == 6
    params = SamplingParams(stop=("never there", stop))
    [(some, before, _, last)] = answers(engine, [(prompt, params)])
    assert before == text[: text.index(stop)]
    assert some == tokens[: len(some)]
    assert (last.finish_reason, last.stop_reason) == ("stop", stop)
    [(_, whole, _, last)] = answers(engine, [(prompt, SamplingParams(stop=("never there",)))])
    assert (whole, last.finish_reason) == (text, "stop")
    [(_, _, _, last)] = answers(engine, [(prompt, SamplingParams(stop_token_ids={tokens[2]}))])
    assert (last.stop_reason, last.usage.completion_tokens) == (tokens[2], 3)


def test_nothing_ends_an_answer_before_min_tokens(engine, alone, tokenizer):
    prompt = chat(tokenizer, QUESTIONS[0])
    [(tokens, text, _, _)] = answers(engine, [(prompt, SamplingParams())])
    count = len(tokens) + 5
    wanted = [SamplingParams(min_tokens=n, max_tokens=count + 40) for n in (len(tokens), count)]
    wanted += [
        SamplingParams(min_tokens=4, stop=("1", text[-1])),
        SamplingParams(min_tokens=4, stop_token_ids=tokens[:1]),
    ]
    end, more, cut, other = answers(engine, [(prompt, params) for params in wanted])
    assert (end[0], end[3].finish_reason) == (tokens, "stop")
    forbidden = Sampler(logit_bias=dict.fromkeys(engine.stop_tokens, -np.inf))
    assert more[0][:count] == list(alone.generate(prompt, forbidden, count, ()))
    assert (cut[1], cut[3].stop_reason) == (text[:-1], text[-1])
    assert tokens[0] not in other[0][:4]
    assert len(other[0]) >= 4
    mixed = [
        SamplingParams(min_tokens=9, temperature=2.0, seed=1, structured=StructuredOutput(regex="[ab]*"), max_tokens=30)
    ]
    [(some, _, _, _)] = answers(engine, [(prompt, params) for params in mixed])
    assert len(some) >= 9


def test_logprobs_are_those_of_the_logits(engine, tokenizer):
    prompt = chat(tokenizer, QUESTIONS[0])
    plain, told, none = answers(
        engine,
        [
            (prompt, SamplingParams(max_tokens=5)),
            (prompt, SamplingParams(max_tokens=5, logprobs=3, temperature=0.0)),
            (prompt, SamplingParams(max_tokens=5, logprobs=0, temperature=4.0, seed=1)),
        ],
    )
    assert plain[2] == []
    assert [entry.token for entry in told[2]] == told[0] == plain[0]
    for entry in told[2]:
        assert entry.top[0] == (entry.token, entry.logprob)  # greedy
        assert [value for _, value in entry.top] == sorted((value for _, value in entry.top), reverse=True)
        assert len(entry.top) == 3
        assert sum(np.exp(value) for _, value in entry.top) <= 1 + 1e-9
    assert all(entry.top == () and entry.logprob <= 0 for entry in none[2])


SCHEMA = {
    "type": "object",
    "properties": {"name": {"enum": ["x", "y"]}, "size": {"type": "integer", "minimum": 0, "maximum": 99}},
    "required": ["name", "size"],
    "additionalProperties": False,
}


def test_structured_output(engine, tokenizer):
    prompt = chat(tokenizer, QUESTIONS[0])
    choices = ('a"b\\', "né\nw", "7加5")
    wanted = [
        StructuredOutput(json=SCHEMA),
        StructuredOutput(json=json.dumps(SCHEMA)),
        StructuredOutput(regex="[a-c]{3}x"),
        StructuredOutput(choice=choices),
    ]
    for temperature in (0.0, 2.0):
        params = [SamplingParams(structured=s, temperature=temperature, seed=3, max_tokens=200) for s in wanted]
        found = answers(engine, [(prompt, p) for p in params])
        assert {answer[3].finish_reason for answer in found} == {"stop"}
        texts = [answer[1] for answer in found]
        for text in texts[:2]:
            value = json.loads(text)
            assert value["name"] in "xy"
            assert 0 <= value["size"] <= 99
        assert re.fullmatch("[a-c]{3}x", texts[2])
        assert texts[3] in choices


def test_an_object_ends_where_its_schema_does(engine, tokenizer):
    schema = {"type": "object", "properties": {"yes": {"type": "boolean"}}, "required": ["yes"]}
    union = {"oneOf": [schema, {"type": "object", "properties": {"yes": {"type": "string", "format": "password"}}}]}
    answers(
        engine, [(chat(tokenizer, QUESTIONS[0]), SamplingParams(structured=StructuredOutput(json=union), max_tokens=3))]
    )
    params = SamplingParams(structured=StructuredOutput(json=schema), max_tokens=40)
    ((_, text, _, last),) = answers(engine, [(chat(tokenizer, QUESTIONS[0]), params)])
    assert (last.finish_reason, json.loads(text).keys()) == ("stop", {"yes"})
    assert re.fullmatch(r"\{(\s\S+)+\s\}|\{\S+\}", text)  # nowhere two blanks


@pytest.mark.parametrize("text", ['{"yes": 1}', "<a>{}</a>", "<a>\n{}\n</a>\n<a>{}</a>"])
def test_json_or_tagged_pieces(tokenizer, demo, text):
    schema = {"type": "object", "properties": {"yes": {"type": "integer"}}, "required": ["yes"]}
    tagged = Tagged(begin="<a>", json={"type": "object", "additionalProperties": False}, end="</a>")
    (end, *_) = demo.stop_tokens(tokenizer)
    matcher = Grammars(tokenizer, len(tokenizer), [end]).matcher(StructuredOutput(json=schema, tagged=tagged))
    assert not matcher.allowed()[end]
    for token in tokenizer(text)["input_ids"]:
        assert matcher.allowed()[token]
        matcher.accept(token)
    assert matcher.allowed()[end]


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ({"regex": "[a-"}, "regex parse error"),
        ({"json": {"$ref": "#"}}, "output: NoExtensionBias$"),  # found when the first token is to be chosen
        ({"json": {"type": "thing"}}, "Invalid type: thing"),
        ({"json": {"type": "array", "uniqueItems": True}}, "uniqueItems"),
        ({"json": "{"}, "the schema is no JSON object"),
    ],
)
def test_a_grammar_that_cannot_be_used_is_refused(engine, wanted, message):
    with pytest.raises(RequestError, match=message):
        engine.add([1], SamplingParams(structured=StructuredOutput(**wanted)))
    assert not engine.has_work


def test_what_an_engine_lacks_is_named(engine, monkeypatch):
    structured = SamplingParams(structured=StructuredOutput(regex="a"))
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "llguidance", None)
        with pytest.raises(RequestError, match=r"pip install 'tcim-lite\[structured\]'"):
            engine.add([1], structured)
    without = Engine(engine.slots)
    for params in (structured, SamplingParams(stop=("a",))):
        with pytest.raises(RequestError, match="with a tokenizer"):
            without.add([1], params)
    bad = [SamplingParams(logit_bias={10**6: 1.0}), *(SamplingParams(stop_token_ids={token}) for token in (10**6, -1))]
    for params in bad:
        with pytest.raises(RequestError, match="outside the vocabulary"):
            engine.add([1], params)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_tokens": -1}, "max_tokens=-1"),
        ({"max_tokens": 5, "min_tokens": 6}, "min_tokens=6"),
        ({"min_tokens": -1}, "min_tokens=-1"),
        ({"logprobs": 21}, "logprobs=21"),
        ({"stop": ("",)}, "a string is empty"),
        ({"top_p": 2.0}, "top_p=2"),
    ],
)
def test_params_out_of_range_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        SamplingParams(**options)


@pytest.mark.parametrize("options", [{}, {"regex": "a", "choice": ("b",)}, {"choice": ()}, {"choice": ("",)}])
def test_structured_output_is_one_thing(options):
    with pytest.raises(ValueError, match="structured output"):
        StructuredOutput(**options)


@pytest.mark.parametrize("schema", [{"anyOf": 3}, {"pattern": "("}, {"$ref": "#/x"}, {"enum": []}], ids=str)
def test_a_bad_schema_has_the_same_error_beside_tagged_pieces(tokenizer, schema):
    grammars, told = Grammars(tokenizer, len(tokenizer), [1]), []
    for tagged in (None, Tagged(begin="<a>", json={"type": "object"}, end="</a>")):
        with pytest.raises(ValueError, match="structured output: ") as caught:
            grammars.matcher(StructuredOutput(json=schema, tagged=tagged))
        told.append(str(caught.value))
    assert told[0] == told[1]
