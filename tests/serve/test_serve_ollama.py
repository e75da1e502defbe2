"""The `ollama` client against a live server: chats, prompts, vectors, and what is told of the model."""

from __future__ import annotations

import json
import re

import pytest

ollama = pytest.importorskip("ollama", reason="the client")

from channel_package import echo, with_channels
from serve_live import CONTEXT, QUESTIONS, user

MODEL = "qwen3"
TOOLS = [{"type": "function", "function": {"name": "add", "description": "Adds.", "parameters": {"type": "object"}}}]


@pytest.fixture(scope="module")
def llama(server):
    with ollama.Client(host=server.url) as made:
        yield made


def test_a_chat_answers_as_openais_route(llama, client):
    done = llama.chat(model=MODEL, messages=user(QUESTIONS[0]))
    chat = client.chat.completions.create(model=MODEL, messages=user(QUESTIONS[0]))
    assert (done.message.role, done.message.content) == ("assistant", chat.choices[0].message.content)
    assert (done.done, done.done_reason, done.model) == (True, "stop", MODEL)
    assert (done.prompt_eval_count, done.eval_count) == (chat.usage.prompt_tokens, chat.usage.completion_tokens)
    assert done.total_duration >= done.prompt_eval_duration > 0


def test_a_stream_is_the_same_answer_in_lines(llama, server):
    whole = llama.chat(model=MODEL, messages=user(QUESTIONS[4])).message.content
    parts = list(llama.chat(model=MODEL, messages=user(QUESTIONS[4]), stream=True))
    assert "".join(part.message.content for part in parts) == whole
    assert [part.done for part in parts] == [False] * (len(parts) - 1) + [True]
    assert len(parts) > 3
    done = server.post("/api/chat", json={"model": MODEL, "messages": user(QUESTIONS[0])})  # streams if nothing is said
    assert done.headers["content-type"] == "application/x-ndjson"
    assert json.loads(done.text.splitlines()[-1])["done"]


def test_options_choose_the_answer(llama, client):
    options = {"num_predict": 3, "num_ctx": 4096, "num_gpu": 1}
    cut = llama.chat(model=MODEL, messages=user(QUESTIONS[0]), options=options)
    assert (cut.eval_count, cut.done_reason) == (3, "length")
    assert llama.chat(model=MODEL, messages=user(QUESTIONS[0]), options={"stop": [" = "]}).message.content == "12 + 30"
    sampled = {"temperature": 8.0, "seed": 5, "top_k": 0, "top_p": 1.0, "num_predict": 12}
    same = {"temperature": 8, "seed": 5, "top_p": 1, "extra_body": {"top_k": 0}, "max_tokens": 12}
    want = client.chat.completions.create(model=MODEL, messages=user(QUESTIONS[2]), **same).choices[0].message.content
    assert llama.chat(model=MODEL, messages=user(QUESTIONS[2]), options=sampled).message.content == want


def test_prompts_with_and_without_the_template(llama, client, raw_alone):
    chat = llama.chat(model=MODEL, messages=[{"role": "system", "content": "Be brief."}, *user(QUESTIONS[0])])
    done = llama.generate(model=MODEL, prompt=QUESTIONS[0], system="Be brief.")
    assert (done.response, done.prompt_eval_count) == (chat.message.content, chat.prompt_eval_count)
    raw = llama.generate(model=MODEL, prompt=QUESTIONS[1], raw=True, options={"num_predict": 20})
    assert raw.response == raw_alone(QUESTIONS[1], 20)[1]
    parts = llama.generate(model=MODEL, prompt=QUESTIONS[1], raw=True, options={"num_predict": 20}, stream=True)
    assert "".join(part.response for part in parts) == raw.response
    assert llama.generate(model=MODEL, prompt="").done_reason == "load"
    defaults = {"suffix": "", "template": "", "context": [], "options": {"num_predict": 2}}
    assert llama.generate(model=MODEL, prompt="a", **defaults).eval_count == 2
    assert llama.chat(model=MODEL, messages=[]).done_reason == "load"


def test_forms(llama):
    schema = {"type": "object", "properties": {"n": {"enum": [7]}}, "required": ["n"], "additionalProperties": False}
    options = {"num_predict": 200}
    done = llama.chat(model=MODEL, messages=user(QUESTIONS[0]), format=schema, options=options)
    assert json.loads(done.message.content) == {"n": 7}


@pytest.fixture(scope="module")
def channels(start, packages, tmp_path_factory):
    folder = with_channels(packages(4).folder, tmp_path_factory.mktemp("ollama") / "p")
    with ollama.Client(host=start(folder=folder).url) as made:
        yield made


def test_thoughts_and_calls_have_fields_of_their_own(channels):
    asked = {"model": MODEL, "messages": user(echo("12394163780")), "tools": TOOLS}
    done = channels.chat(**asked)
    assert (done.message.thinking, done.message.content) == ("hm", "")
    (call,) = done.message.tool_calls
    assert (call.function.name, call.function.arguments) == ("add", {"a": 1})
    parts = list(channels.chat(**asked, stream=True))
    assert "".join(part.message.thinking or "" for part in parts) == "hm"
    calls = [call for part in parts for call in part.message.tool_calls or ()]
    assert [(call.function.name, call.function.arguments) for call in calls] == [("add", {"a": 1})]
    told = [*asked["messages"], done.message, {"role": "tool", "tool_name": "add", "content": echo("539")}]
    assert channels.chat(model=MODEL, messages=told, tools=TOOLS, options={"num_predict": 20}).done
    assert channels.generate(model=MODEL, prompt=echo("12394163780")).thinking == "hm"


def test_what_is_told_of_the_model(llama, server):
    (listed,) = llama.list().models
    assert listed.model == MODEL
    assert listed.size > 100_000
    assert listed.details.family == "qwen3"
    assert re.fullmatch("[0-9a-f]{64}", listed.digest)
    shown = llama.show(MODEL)
    assert shown.modelinfo["qwen3.context_length"] == CONTEXT
    assert "completion" in shown.capabilities
    assert "embedding" not in shown.capabilities
    (running,) = llama.ps().models
    assert running.model == MODEL
    assert server.get("/api/version").json()["version"]
    assert llama.chat(model=f"{MODEL}:latest", messages=user(QUESTIONS[0])).message.content == "12 + 30 = 42"


@pytest.fixture(scope="module")
def embedder(start):
    return start(batch=2, hidden_states=-1)


@pytest.fixture(scope="module")
def embedding_llama(embedder):
    with ollama.Client(host=embedder.url) as made:
        yield made


def test_vectors(embedder, embedding_llama):
    llama = embedding_llama
    texts = ["7 + 5", "A bear."]
    with embedder.client() as client:
        want = [item.embedding for item in client.embeddings.create(model=MODEL, input=texts).data]
    found = llama.embed(model=MODEL, input=texts)
    for have, vector in zip(found.embeddings, want, strict=True):
        assert list(have) == pytest.approx(vector, abs=1e-7)
    assert found.prompt_eval_count > 4
    assert len(llama.embed(model=MODEL, input="7 + 5", dimensions=5).embeddings[0]) == 5
    assert list(llama.embeddings(model=MODEL, prompt=texts[0]).embedding) == pytest.approx(want[0], abs=1e-7)
    assert llama.embed(model=MODEL, input="ab " * 5000).embeddings  # is cut
    assert llama.embed(model=MODEL, input=[]).embeddings == []
    assert llama.show(MODEL).capabilities == ["embedding"]
    with pytest.raises(ollama.ResponseError, match="context holds"):
        llama.embed(model=MODEL, input="ab " * 5000, truncate=False)


def test_errors_are_those_of_the_client(llama, server):
    with pytest.raises(ollama.ResponseError, match="'llama9' is not served here") as found:
        llama.chat(model="llama9", messages=user("hi"))
    assert found.value.status_code == 404
    with pytest.raises(ollama.ResponseError, match="embeddings"):
        llama.embed(model=MODEL, input="hi")
    with pytest.raises(ollama.ResponseError, match="tcim-lite compile"):
        llama.pull("llama9")
    assert server.post("/api/chat", json={"model": MODEL, "messages": user("ab " * 5000)}).status_code == 400


@pytest.mark.parametrize(
    ("path", "body", "message"),
    [
        ("/api/chat", {"messages": user("hi")}, "model"),
        ("/api/chat", {"model": MODEL, "messages": [{"role": "robot", "content": "x"}]}, "expected system"),
        ("/api/chat", {"model": MODEL, "messages": [{"role": "user", "content": "x", "images": ["AA"]}]}, "vision"),
        ("/api/chat", {"model": MODEL, "messages": user("hi"), "format": "xml"}, "format='xml'"),
        (
            "/api/chat",
            {"model": MODEL, "messages": user("hi"), "format": {"uniqueItems": True}},
            "format|schema|unique",
        ),
        ("/api/chat", {"model": MODEL, "messages": user("hi"), "options": {"mirostat": 2}}, "mirostat"),
        ("/api/chat", {"model": MODEL, "messages": user("hi"), "options": {"tfs_z": 0.5}}, "tfs_z"),
        ("/api/chat", {"model": MODEL, "messages": user("hi"), "options": {"temprature": 1}}, "temprature"),
        ("/api/chat", {"model": MODEL, "messages": user("hi"), "options": {"temperature": -1}}, "temperature"),
        ("/api/chat", {"model": MODEL, "messages": user("hi"), "options": {"top_p": 7}}, "top_p"),
        ("/api/chat", {"model": MODEL, "messages": user("hi"), "strem": True}, "did you mean stream"),
        ("/api/chat", {"model": MODEL, "messages": user("hi"), "tools": [{"type": "function"}]}, "function"),
        ("/api/generate", {"model": MODEL, "prompt": "a", "raw": True, "system": "b"}, "does not go with raw"),
        ("/api/generate", {"model": MODEL, "prompt": "a", "suffix": "b"}, "suffix: nothing is filled in"),
        ("/api/generate", {"model": MODEL, "prompt": "a", "context": [1]}, "context: tokens are not kept"),
        ("/api/chat", {"model": MODEL, "messages": user("hi"), "truncate": False}, "truncate: not supported"),
        ("/api/generate", {"model": MODEL, "prompt": "a", "images": ["!"]}, "vision"),
        ("/api/generate", {"model": MODEL, "prompt": 5}, "prompt"),
        ("/api/show", {}, "model"),
        ("/api/embed", {"model": MODEL}, "input"),
    ],
)
def test_what_cannot_be_done_is_refused_in_ollamas_form(server, path, body, message):
    done = server.post(path, json=body)
    assert done.status_code == 400, done.text
    assert re.search(message, done.json()["error"]), done.text


def test_bodies_that_are_no_questions(server):
    for path in ("/api/chat", "/api/generate", "/api/embed", "/api/embeddings", "/api/show"):
        for content in (b"", b"[]", b"{", b"null"):
            done = server.post(path, content=content, headers={"Content-Type": "application/json"})
            assert done.status_code == 400
            assert isinstance(done.json()["error"], str)
