"""Corners of OpenAI's API that few requests reach: values at the end of their range, prompts that cannot be echoed."""

import json

import pytest
import warm_python
from serve_live import CONTEXT, QUESTIONS, user

from tcim_lite.llm import Sampler
from tcim_lite.llm.engine import Event
from tcim_lite.llm.engine.request import TokenLogprob
from tcim_lite.serve.errors import ApiError
from tcim_lite.serve.logprobs import CompletionLogprobs
from tcim_lite.serve.vocabulary import Vocabulary

MODEL = "qwen3"


@pytest.fixture(scope="module")
def every_logit(start):
    """A server of a package whose prefill gives all logits."""
    return start(all_logits=True)


@pytest.mark.parametrize(
    ("options", "sampler"),
    [
        ({"temperature": 8, "top_p": 0, "top_k": 0}, Sampler()),
        ({"temperature": 0, "logprobs": False, "top_logprobs": 0}, Sampler()),
        ({"temperature": 8, "seed": 5, "top_p": 1, "top_k": -1}, Sampler(8, 0, 1.0, 5)),
        ({"temperature": 8, "seed": -(2**63), "top_p": 1, "top_k": 0}, Sampler(8, 0, 1.0, 2**63)),
        ({"temperature": 8, "seed": -1, "top_p": 1, "top_k": 0}, Sampler(8, 0, 1.0, 2**64 - 1)),
    ],
)
def test_values_that_openai_and_vllm_take_are_taken(server, alone, options, sampler):
    body = {"messages": user(QUESTIONS[2]), "max_tokens": 12, **options}
    answer = server.post("/v1/chat/completions", json=body)
    assert answer.json()["choices"][0]["message"]["content"] == alone(QUESTIONS[2], 12, sampler)[1]


def test_the_last_message_may_be_continued(server, alone):
    whole = alone(QUESTIONS[0])[1]
    turns = [*user(QUESTIONS[0]), {"role": "assistant", "content": whole[:7]}]
    for more in ({}, {"add_generation_prompt": False}):
        body = {"messages": turns, "continue_final_message": True, **more}
        answer = server.post("/v1/chat/completions", json=body).json()
        assert answer["choices"][0]["message"]["content"] == whole[7:]
    for bad in (
        {"add_generation_prompt": True},
        {"messages": user("a")},
        {"messages": [*turns[:1], {**turns[1], "content": " "}]},
    ):
        refused = server.post("/v1/chat/completions", json=body | {"add_generation_prompt": False} | bad)
        assert (refused.status_code, refused.json()["error"]["message"][:23]) == (400, "continue_final_message:")


def test_minus_one_is_no_limit_as_for_llama_cpp(server, raw_alone):
    answer = server.post("/v1/completions", json={"prompt": QUESTIONS[0], "max_tokens": -1}).json()
    assert answer["choices"][0]["text"] == raw_alone(QUESTIONS[0])[1]
    assert answer["choices"][0]["finish_reason"] == "stop"


def test_an_answer_has_as_many_tokens_as_are_asked_for(server):
    body = {"messages": user(QUESTIONS[0]), "min_tokens": 40, "max_tokens": 40}
    answer = server.post("/v1/chat/completions", json=body).json()
    assert (answer["usage"]["completion_tokens"], answer["choices"][0]["finish_reason"]) == (40, "length")
    refused = server.post("/v1/chat/completions", json={**body, "max_tokens": 39})
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "min_tokens")


@pytest.mark.parametrize("prompt", ["", [""], [[]], [-1], [10**30], ["a", ""], [[1], [-1]]], ids=str)
@pytest.mark.parametrize("options", [{"echo": True}, {"echo": True, "logprobs": 1}], ids=["text", "logprobs"])
def test_a_bad_prompt_that_is_to_be_echoed_is_a_400(every_logit, prompt, options):
    answer = every_logit.post("/v1/completions", json={"prompt": prompt, **options})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_value")


def test_an_echo_is_the_prompt_with_its_special_tokens(every_logit):
    prompt = "<|im_start|>user\nhi 7加5<|im_end|>"
    tokens = every_logit.post("/tokenize", json={"prompt": prompt}).json()["tokens"]
    for given in (prompt, tokens):
        body = {"prompt": given, "echo": True, "max_tokens": 3}
        texts = []
        for options in ({}, {"logprobs": 0}):
            (choice,) = every_logit.post("/v1/completions", json=body | options).json()["choices"]
            texts.append(choice["text"])
        assert texts[0] == texts[1] == "".join(choice["logprobs"]["tokens"])
        assert texts[0].startswith(prompt)


def test_a_prompt_is_judged_without_an_answer(every_logit, server):
    body = {"prompt": ["1 2 3", "a b"], "echo": True, "logprobs": 1, "max_tokens": 0}
    judged = every_logit.post("/v1/completions", json=body).json()
    longer = every_logit.post("/v1/completions", json=body | {"max_tokens": 2}).json()
    assert [choice["text"] for choice in judged["choices"]] == body["prompt"]
    assert [choice["finish_reason"] for choice in judged["choices"]] == ["length"] * 2
    assert judged["usage"]["completion_tokens"] == 0
    for choice, other in zip(judged["choices"], longer["choices"], strict=True):
        assert choice["logprobs"]["token_logprobs"] == other["logprobs"]["token_logprobs"][:-2]
    answer = server.post("/v1/completions", json={"prompt": "a", "max_tokens": 0})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "max_tokens")


def test_a_prompt_is_echoed_without_an_answer(server, every_logit):
    for one in (server, every_logit):
        body = {"prompt": ["1 2 3", "a b"], "echo": True, "max_tokens": 0, "n": 2}
        answer = one.post("/v1/completions", json=body).json()
        assert [choice["text"] for choice in answer["choices"]] == ["1 2 3", "1 2 3", "a b", "a b"]
        assert {choice["finish_reason"] for choice in answer["choices"]} == {"length"}
        assert answer["usage"]["completion_tokens"] == 0
        stream = one.post("/v1/completions", json={**body, "prompt": "1 2 3", "n": 1, "stream": True}).text
        chunks = [json.loads(line[6:]) for line in stream.splitlines() if line.startswith("data: {")]
        assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == "1 2 3"
        assert chunks[-1]["choices"][0]["finish_reason"] == "length"
    judged = server.post("/v1/completions", json=body | {"logprobs": 1})
    assert (judged.status_code, "--all-logits" in judged.json()["error"]["message"]) == (400, True)
    for options in ({"echo": False}, {"max_tokens": -2}, {"min_tokens": 1}):
        assert server.post("/v1/completions", json=body | options).status_code == 400
    chat = {"messages": [{"role": "user", "content": "a"}], "max_tokens": 0}
    refused = server.post("/v1/chat/completions", json=chat)
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "max_tokens")


def test_offsets_are_places_in_the_text_where_characters_are_split(packages):
    vocabulary = Vocabulary(packages(4).tokenizer_folder)
    before, after = (vocabulary.encode(part, special=False) for part in ("é😀x", "y"))
    tokens = [*before, vocabulary.eos_token_id, *after]
    text, logprobs = vocabulary.decode(tokens), CompletionLogprobs(vocabulary)
    made = logprobs.add(Event(request_id="", logprobs=tuple(TokenLogprob(token=t, logprob=0.0) for t in tokens)))
    assert any(token.startswith("bytes:") for token in made["tokens"])
    assert text == "é😀xy"
    assert [text[at] for at in made["text_offset"][-3:]] == ["x", "y", "y"]
    assert made["text_offset"] == sorted(made["text_offset"])


@pytest.mark.parametrize("piece", ["a", "7加", "one ", "<|im_end|>"])
@pytest.mark.parametrize("chars", [0, 1, 15_999, 16_000, 16_001, 200_000])
def test_a_long_prompt_is_refused_as_soon_as_it_is_known_to_be_too_long(packages, piece, chars):
    vocabulary, read = Vocabulary(packages(4).tokenizer_folder), []
    encode = vocabulary.encode
    vocabulary.encode = lambda text, **options: read.append(len(text)) or encode(text, **options)
    text = (piece * chars)[:chars]
    if chars <= 16_000:
        assert vocabulary.encode_prompt(text, special=False, most=1000) == encode(text, special=False)
    else:
        with pytest.raises(ApiError, match=r"has more than \d+ tokens, the context holds 1000") as caught:
            vocabulary.encode_prompt(text, special=False, most=1000)
        assert (caught.value.status, caught.value.code) == (400, "context_length_exceeded")
        assert max(read) == 16_000


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/completions", {"prompt": "1 2 " * 10**6}),
        ("/v1/completions", {"prompt": ["a", "1 2 " * 10**6]}),
        ("/v1/chat/completions", {"messages": user("one " * 10**6)}),
    ],
    ids=["text", "list", "chat"],
)
def test_a_giant_prompt_is_refused_with_the_limit(server, path, body):
    error = server.post(path, json=body).json()["error"]
    assert f"tokens, the context holds {CONTEXT}" in error["message"]
    assert error["code"] == "context_length_exceeded"


@pytest.mark.parametrize("options", [{}, {"stream": True}], ids=["whole", "stream"])
def test_an_answer_without_a_token_that_is_allowed_is_the_clients_fault(server, options):
    size = server.get("/props").json()["vocab_size"]
    body = {"prompt": "a", "logit_bias": {str(token): -100 for token in range(size)}, **options}
    answer = server.post("/v1/completions", json=body)
    assert answer.status_code == (200 if options else 400)
    assert "logit_bias or the grammar forbids all" in answer.text
    assert '"code":"invalid_value"' in answer.text


def test_a_grammar_that_becomes_too_large_is_the_clients_fault(server):
    guide = {"choice": [f"c{i}" for i in range(5000)]}  # known when the first letter has been chosen
    answer = server.post("/v1/completions", json={"prompt": "a", "structured_outputs": guide})
    assert (answer.status_code, "Current row has" in answer.json()["error"]["message"]) == (400, True)
    assert server.get("/health").status_code == 200


@pytest.mark.parametrize("role", ["user", "system", "tool"])
def test_a_message_without_content_is_a_400(server, role):
    answer = server.post("/v1/chat/completions", json={"messages": [{"role": role, "contnt": "hi"}]})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "messages")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--prefix-cache-mb", "inf"], "--prefix-cache-mb inf: expected a number, 0 or more"),
        (["--max-body-mb", "nan"], "--max-body-mb nan: expected a number, 0 or more"),
        (["--shutdown-timeout", "inf"], "--shutdown-timeout inf: expected 0 or more, and finite"),
        (["--port", "65536"], "port 65536: expected 0 to 65535"),
        (["--served-model-name", ""], "the model's name is ''; give one"),
    ],
)
def test_a_limit_that_cannot_be_is_one_line(packages, words, message):
    done = warm_python.run("-m", "tcim_lite", "serve", packages(4).folder, *words, timeout=60)
    assert (done.returncode, message in done.stderr.splitlines()[-1]) == (2, True), done.stderr
    assert "Traceback" not in done.stderr


def test_too_many_prompts_are_counted_before_any_is_read(server):
    answer = server.post("/v1/completions", json={"prompt": ["a " * 20_000] * 129})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "n"), answer.text
    assert "n=1 for 129 prompts: expected 1 to 128" in answer.json()["error"]["message"]


@pytest.mark.parametrize("levels", [100, 600, 900, 100_000])
def test_a_tool_nested_deeply_is_an_answer_or_a_400(server, levels):
    schema = '{"a":' * levels + "1" + "}" * levels
    tool = f'{{"type": "function", "function": {{"name": "f", "parameters": {schema}}}}}'
    body = f'{{"messages": [{{"role": "user", "content": "hi"}}], "max_tokens": 1, "tools": [{tool}]}}'
    done = server.post("/v1/chat/completions", content=body, headers={"Content-Type": "application/json"})
    assert done.status_code == (200 if levels == 100 else 400), done.text
    if levels in (600, 900):
        assert "too many levels" in done.json()["error"]["message"]
