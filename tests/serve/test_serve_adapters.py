"""Adapters of one package beside the base model: each is a model of its own to clients."""

from concurrent.futures import ThreadPoolExecutor

import openai
import pytest
from llm_packages import DEMO_CHECKPOINT, compile_package
from lora_adapters import linears_of, write_random_adapter
from serve_live import QUESTIONS, user

pytest.importorskip("safetensors.numpy", reason="writes adapters")

from tcim_lite.llm import encode_chat, load_tokenizer
from tcim_lite.llm.engine import Engine, SamplingParams, answer_all

MODELS = ("qwen3", "first", "other")


@pytest.fixture(scope="module")
def tuned(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tuned")
    for seed, name in enumerate(("first", "second")):
        write_random_adapter(folder / name, linears_of(DEMO_CHECKPOINT), seed)
        sizes = {"prefill_length": 32, "context_length": 256, "batch": 4, "argmax": True}
        package = compile_package(DEMO_CHECKPOINT, folder / "out", lora=folder / name, **sizes)
    return package


@pytest.fixture(scope="module")
def client(start, tuned):
    second = f"other={tuned.adapters['second']}"
    with start("--lora", "first", "--lora", second, "--prefix-cache-mb", "8", folder=tuned.folder).client() as made:
        yield made


@pytest.fixture(scope="module")
def alone(tuned):
    """The reply by an engine that has one adapter, or none, and one request."""
    tokenizer, replies = load_tokenizer(tuned.tokenizer_folder), {}
    for model, name in zip(MODELS, (None, "first", "second"), strict=True):
        adapters = {} if name is None else {name: tuned.adapters[name]}
        engine = Engine.open(tuned, adapters=adapters, tokenizer=tokenizer)
        for question in QUESTIONS:
            prompt = encode_chat(tokenizer, user(question))
            params = SamplingParams(max_tokens=24, adapter=name)
            replies[model, question] = answer_all(engine, [prompt], params)[0].text
    return replies


def test_adapters_are_listed_under_their_parent(client):
    listed = [(model.id, model.parent) for model in client.models.list()]
    assert listed == [("qwen3", None), ("first", "qwen3"), ("other", "qwen3")]
    assert client.models.retrieve("other").parent == "qwen3"
    with pytest.raises(openai.NotFoundError, match="not served here; this is 'qwen3' and 'first' and 'other'"):
        client.models.retrieve("second")


def test_answers_beside_each_other_are_those_alone(client, alone):
    assert len({alone[model, QUESTIONS[0]] for model in MODELS}) == len(MODELS)
    asked = [(model, question) for question in QUESTIONS for model in MODELS] * 2

    def ask(model_and_question):
        model, question = model_and_question
        done = client.chat.completions.create(model=model, messages=user(question), max_tokens=24)
        assert done.model == model
        return done.choices[0].message.content

    with ThreadPoolExecutor(len(asked)) as threads:
        replies = list(threads.map(ask, asked))
    assert [reply.strip() for reply in replies] == [alone[key].strip() for key in asked]


def test_other_routes_take_an_adapter(client, tuned):
    tokenizer = load_tokenizer(tuned.tokenizer_folder)
    engine = Engine.open(tuned, adapters=tuned.adapters, tokenizer=tokenizer)
    wanted = answer_all(engine, [tokenizer("12 + 30")["input_ids"]], SamplingParams(max_tokens=6, adapter="first"))
    done = client.completions.create(model="first", prompt="12 + 30", max_tokens=6)
    assert (done.model, done.choices[0].text) == ("first", wanted[0].text)
    response = client.responses.create(model="first", input="12 + 30", max_output_tokens=6)
    chat = client.chat.completions.create(model="first", messages=user("12 + 30"), max_tokens=6)
    assert (response.model, response.output_text) == ("first", chat.choices[0].message.content)
    with pytest.raises(openai.BadRequestError, match="lora: name an adapter that the server was started with"):
        client.completions.create(model="first", prompt="x", extra_body={"lora": [{"id": 0, "scale": 1}]})
