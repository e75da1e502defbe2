"""/v1/embeddings of a package without a head: the hidden states of the last token, as clients ask for them."""

import asyncio
import os
import re
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import httpx2
import numpy as np
import openai
import pytest
import warm_python
from llm_packages import DEMO_CHECKPOINT
from serve_live import CONTEXT, QUESTIONS, user

import tcim_lite.runtime as tcim
from tcim_lite.cli import main
from tcim_lite.llm import load_tokenizer, prefill
from tcim_lite.serve import embeddings
from tcim_lite.serve.errors import ApiError, overloaded

HIDDEN = {"hidden_states": -1}
MODEL = "qwen3"


@pytest.fixture(scope="module")
def embedder(start):
    return start(batch=2, **HIDDEN)


@pytest.fixture(scope="module")
def vector_of(packages):
    """What the prefill graph alone gives for a text, as a unit vector."""
    package = packages(1, **HIDDEN)
    module, tokenizer = tcim.load(package.prefill_path), load_tokenizer(package.tokenizer_folder)
    size = module.get_input_info("input_1").shape[-1]
    table = np.fromfile(package.folder / "hmquant/quant_embedding.bin", np.float16).reshape(-1, size)

    def make(text: str) -> np.ndarray:
        found = prefill(module, table, tokenizer(text)["input_ids"]).astype(np.float64)
        return (found / np.linalg.norm(found)).astype(np.float32)

    return make


@pytest.mark.parametrize("form", ["float", "base64"])
def test_texts_become_vectors_in_their_order(embedder, vector_of, form):
    texts = [*QUESTIONS, "one " * 100, *(f"text {number}" for number in range(60))]  # more than are queued at once
    with embedder.client() as client:
        answer = client.embeddings.create(
            model=MODEL, input=texts, **({"encoding_format": form} if form == "float" else {})
        )
    assert [item.index for item in answer.data] == list(range(len(texts)))
    for text, item in zip(texts, answer.data, strict=True):
        np.testing.assert_array_equal(np.float32(item.embedding), vector_of(text))
    assert answer.usage.prompt_tokens == answer.usage.total_tokens > len(texts)


def test_vectors_in_the_form_of_text_embeddings_inference(embedder, vector_of):
    def embed(**body):
        done = embedder.post("/embed", json=body)
        assert done.status_code == 200, done.text
        return np.float32(done.json())

    np.testing.assert_array_equal(embed(inputs=QUESTIONS[:3]), [vector_of(text) for text in QUESTIONS[:3]])
    np.testing.assert_array_equal(embed(inputs=QUESTIONS[0], prompt_name=None), [vector_of(QUESTIONS[0])])
    (raw,) = embed(inputs=QUESTIONS[0], normalize=False).astype(np.float64)
    np.testing.assert_array_equal(np.float32(raw / np.linalg.norm(raw)), vector_of(QUESTIONS[0]))
    (short,) = embed(inputs=QUESTIONS[0], dimensions=5).astype(np.float64)
    np.testing.assert_allclose(short, raw[:5] / np.linalg.norm(raw[:5]), rtol=1e-6)
    long = "one " * (4 * CONTEXT)
    cut = embed(inputs=long, truncate=True)
    np.testing.assert_array_equal(cut, embed(inputs=long[: len(long) // 2], truncate=True))
    for body, message in (
        ({"inputs": long}, "the context holds"),
        ({"inputs": []}, "inputs: 0 texts"),
        ({"inputs": "a", "prompt_name": "query"}, "prompt_name"),
    ):
        done = embedder.post("/embed", json=body)
        assert done.status_code == 400, done.text
        assert message in done.json()["error"]["message"]


def test_a_short_queue_takes_many_texts(start, vector_of):
    texts = [f"text {number}" for number in range(20)]
    with start("--max-queue", "1", batch=2, **HIDDEN).client() as client:
        answer = client.with_options(max_retries=0).embeddings.create(model=MODEL, input=texts)
    for text, item in zip(texts, answer.data, strict=True):
        np.testing.assert_array_equal(np.float32(item.embedding), vector_of(text))


def test_texts_wait_while_others_fill_the_queue(start, vector_of):
    """What the queue has no room for is tried again, in smaller groups, once the first has been taken."""
    texts = [f"text {number}" for number in range(40)]
    server = start("--max-queue", "6", batch=2, **HIDDEN)

    def ask(number):
        with server.client(max_retries=20) as client:
            return client.embeddings.create(model=MODEL, input=texts[number:] + texts[:number]).data

    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(ask, range(4)))
    for number, answer in enumerate(answers):
        for text, item in zip(texts[number:] + texts[:number], answer, strict=True):
            np.testing.assert_array_equal(np.float32(item.embedding), vector_of(text))


def test_a_queue_that_becomes_full_later_is_waited_for(monkeypatch):
    """The first group is taken; then there is no room for a while."""
    sizes, room = [], iter([4, 0, 0, 1, 1, 2, 9, 9])

    class Answers:
        def __init__(self, *_):
            self.group = []

        async def submit(self, executor, group, params, n):
            sizes.append(len(group))
            if len(group) > next(room):
                raise overloaded("full")
            self.group = group

        async def events(self, seconds):
            for index, prompt in enumerate(self.group):
                yield index, SimpleNamespace(hidden=np.array(prompt))

        def abort(self):
            pass

    async def receive():
        await asyncio.Event().wait()

    monkeypatch.setattr(embeddings, "Answers", Answers)
    options = SimpleNamespace(timeout_s=5)
    service = SimpleNamespace(engines=SimpleNamespace(capacity=4), metrics=None, executor=None, options=options)
    http, prompts = SimpleNamespace(receive=receive), [[n] for n in range(10)]
    found = asyncio.run(embeddings.vectors_of(service, http, prompts, None))
    assert [int(vector[0]) for vector in found] == list(range(10))
    assert sizes == [4, 4, 2, 1, 2, 1, 2, 2]


def test_a_text_may_be_given_alone_or_as_tokens_and_cut(embedder, vector_of):
    tokens = embedder.post("/tokenize", json={"prompt": QUESTIONS[0]}).json()["tokens"]
    with embedder.client() as client:
        for given in (QUESTIONS[0], tokens, [tokens]):
            (item,) = client.embeddings.create(model=MODEL, input=given).data
            np.testing.assert_array_equal(np.float32(item.embedding), vector_of(QUESTIONS[0]))
        (item,) = client.embeddings.create(model=MODEL, input=QUESTIONS[0], dimensions=16).data
    cut = vector_of(QUESTIONS[0])[:16].astype(np.float64)
    np.testing.assert_allclose(item.embedding, cut / np.linalg.norm(cut), rtol=0, atol=2**-23)


@pytest.mark.parametrize(
    ("options", "param", "message"),
    [
        ({"input": []}, "input", "input: expected a text"),
        ({"input": ""}, "input", "the prompt is empty"),
        ({"input": ["a"] * 2049}, "input", "2049 texts; expected at most 2048"),
        ({"input": ["a", "1 " * CONTEXT]}, "input", "the context holds"),
        ({"input": "a", "dimensions": 0}, "dimensions", "dimensions=0: expected 1 to"),
        ({"input": "a", "dimensions": 100_000}, "dimensions", "dimensions=100000: expected 1 to"),
        ({"input": "a", "extra_body": {"stop": "b"}}, "stop", "unrecognized request argument: stop"),
    ],
)
def test_what_makes_no_vector_is_a_400_that_names_the_field(embedder, options, param, message):
    with embedder.client() as client, pytest.raises(openai.BadRequestError, match=message) as caught:
        client.embeddings.create(model=MODEL, **options)
    assert caught.value.param == param


@pytest.mark.parametrize(("status", "param"), [(400, "input"), (429, None)])
def test_a_full_queue_is_no_fault_of_the_input(monkeypatch, status, param):
    async def refuse(*_):
        raise ApiError(status, "no")

    async def receive():
        await asyncio.Event().wait()

    monkeypatch.setattr(embeddings, "Answers", lambda *_: SimpleNamespace(submit=refuse, abort=lambda: None))
    service = SimpleNamespace(
        engines=SimpleNamespace(capacity=4), metrics=None, executor=None, options=SimpleNamespace(timeout_s=1)
    )
    with pytest.raises(ApiError) as caught:
        asyncio.run(embeddings.vectors_of(service, SimpleNamespace(receive=receive), [[1]], None))
    assert (caught.value.status, caught.value.param) == (status, param)


def test_such_a_package_writes_no_text(embedder, packages, capfd):
    with embedder.client() as client, pytest.raises(openai.BadRequestError, match="Ask for embeddings"):
        client.chat.completions.create(model=MODEL, messages=user("a"))
    assert main(["generate", str(packages(2, **HIDDEN).folder), "--prompt", "a"]) == 2
    assert "was compiled with --hidden-states. Ask for embeddings" in capfd.readouterr().err


def test_a_checkpoint_is_compiled_without_a_head(tmp_path):
    words = [DEMO_CHECKPOINT, "--hidden-states", "--context-length", 64, "--prefill-length", 16, "--port", 0]
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path), "TCIM_LITE_STRICT": "error"}
    with warm_python.Popen("-m", "tcim_lite", "serve", *words, env=environment) as process:
        try:
            url = re.search(r"http://\S+", process.stdout.readline())[0]
            answer = httpx2.post(f"{url}/v1/embeddings", json={"input": ["a", "b"]}, verify=False)
        finally:
            process.terminate()
    assert [item["index"] for item in answer.json()["data"]] == [0, 1]
