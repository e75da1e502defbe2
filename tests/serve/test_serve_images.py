"""Images in chats and responses: as transformers answers, as the engine answers alone, and what is refused."""

from __future__ import annotations

import asyncio
import base64
import struct
import sys
import threading
import zlib
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

pytestmark = pytest.mark.oracle
pytest.importorskip("transformers", reason="the oracle")

from image_models import Gemma, GridModel, png
from serve_live import user

from tcim_lite.llm.engine import MixedPrompt, SamplingParams
from tcim_lite.llm.images.grid import GridReader
from tcim_lite.serve.answer_routes import chat_prompt_of
from tcim_lite.serve.media_parts import open_images
from tcim_lite.serve.options import ServeOptions
from tcim_lite.serve.protocol import ChatRequest, ContentPart, Message
from tcim_lite.serve.service import Service
from tcim_lite.serve.vocabulary import Vocabulary

LIMIT = 5
FIRST, SECOND = png(50, 70, 3), png(90, 60, 4)


def url(file: bytes, kind: str = "image/png") -> str:
    return f"data:{kind};base64,{base64.b64encode(file).decode()}"


def image(file: bytes) -> dict:
    return {"type": "image_url", "image_url": {"url": url(file), "detail": "auto"}}


def text(words: str) -> dict:
    return {"type": "text", "text": words}


ONE = [{"role": "user", "content": [text("What is "), image(FIRST), text("?")]}]
OTHER = [{"role": "user", "content": [text("What is "), image(SECOND), text("?")]}]
TURNS = [
    {"role": "user", "content": [image(FIRST), text("Look.")]},
    {"role": "assistant", "content": "Hm."},
    {"role": "user", "content": [text("And "), image(SECOND), image(SECOND)]},
]
CHATS = {"one": (ONE, [FIRST]), "turns": (TURNS, [FIRST, SECOND, SECOND])}


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """One slot with deepstack and three positions, and two slots with one position."""
    folder, sizes = tmp_path_factory.mktemp, {"context_length": 512}
    return {
        "qwen3_vl": GridModel("qwen3_vl", folder("qwen3_vl"), "64x96", **sizes),
        "gemma4": Gemma("gemma4", folder("gemma4"), "70", batch=2, **sizes),
    }


@pytest.fixture(scope="module")
def servers(models, start):
    return {name: start(folder=model.package.folder) for name, model in models.items()}


@pytest.fixture(params=["qwen3_vl", "gemma4"])
def name(request):
    return request.param


def ask(server, messages):
    body = {"messages": messages, "max_tokens": LIMIT, "temperature": 0, "logprobs": True, "ignore_eos": True}
    done = server.post("/v1/chat/completions", json=body)
    assert done.status_code == 200, done.text
    return done.json()


def answer(server, messages) -> list:
    """What has to be equal wherever a request is answered."""
    (choice,) = ask(server, messages)["choices"]
    return [(item["token"], item["logprob"]) for item in choice["logprobs"]["content"]]


@pytest.mark.parametrize("chat", CHATS)
def test_answers_are_those_of_transformers(models, servers, name, chat):
    model, (messages, files) = models[name], CHATS[chat]
    found = ask(servers[name], messages)
    tokens = servers[name].post("/tokenize", json={"messages": messages}).json()["tokens"]
    assert found["usage"]["prompt_tokens"] == len(tokens)
    compared = 0
    for item in found["choices"][0]["logprobs"]["content"]:
        logprobs, bound = model.logprobs(tokens, files)
        best = int(logprobs[-1].argmax())
        assert abs(item["logprob"] - logprobs[-1, best]) <= bound
        second = np.partition(logprobs[-1], -2)[-2]
        if logprobs[-1, best] - second <= bound:
            break
        tokens, compared = [*tokens, best], compared + 1
    assert compared >= 3


def test_a_stream_and_responses_say_the_same(servers, name):
    server = servers[name]
    with server.client() as client:
        whole = client.chat.completions.create(model=name, messages=TURNS, max_tokens=LIMIT)
        pieces = client.chat.completions.create(model=name, messages=TURNS, max_tokens=LIMIT, stream=True)
        streamed = "".join(chunk.choices[0].delta.content or "" for chunk in pieces)
        items = [
            {"role": message["role"], "content": message["content"]}
            if isinstance(message["content"], str)
            else {"role": "user", "content": [flat(part) for part in message["content"]]}
            for message in TURNS
        ]
        response = client.responses.create(model=name, input=items, max_output_tokens=LIMIT)
    said = whole.choices[0].message.content
    assert said
    assert streamed == response.output_text == said
    assert response.usage.input_tokens == whole.usage.prompt_tokens


def flat(part: dict) -> dict:
    """A part as /v1/responses has it."""
    if part["type"] == "text":
        return {"type": "input_text", "text": part["text"]}
    return {"type": "input_image", "image_url": part["image_url"]["url"]}


def test_images_with_the_same_placeholders_share_no_rows(servers, start, models, name):
    """`cached_tokens` ends where the image begins, and answers are those of a server that saw nothing before."""
    server, tokens = servers[name], servers[name].post("/tokenize", json={"messages": ONE}).json()["tokens"]
    if name == "gemma4":  # of other proportions
        assert tokens != servers[name].post("/tokenize", json={"messages": OTHER}).json()["tokens"]
    begin = tokens.index(models[name].id(models[name].mark))
    seen = [ask(server, messages) for messages in (ONE, OTHER, ONE, OTHER)]
    fresh = start(folder=models[name].package.folder)
    alone = {id(messages): answer(fresh, messages) for messages in (OTHER, ONE)}
    for found, messages in zip(seen, (ONE, OTHER, ONE, OTHER), strict=True):
        content = found["choices"][0]["logprobs"]["content"]
        assert [(item["token"], item["logprob"]) for item in content] == alone[id(messages)]
    assert alone[id(ONE)] != alone[id(OTHER)]
    cached = [found["usage"]["prompt_tokens_details"]["cached_tokens"] for found in seen]
    if name == "qwen3_vl":  # each takes the only slot from the other
        assert cached[1:] == [begin] * 3
    else:
        assert cached[1] <= begin
        assert cached[2:] == [found["usage"]["prompt_tokens"] - 1 for found in seen[2:]]


def test_requests_beside_others_are_answered_as_alone(servers):
    """Of text and of images, over two slots."""
    server = servers["gemma4"]
    chats = [ONE, user("Hello, who are you?"), OTHER, user("7 + 5"), TURNS, ONE]
    alone = [answer(server, messages) for messages in chats]
    with ThreadPoolExecutor(len(chats)) as pool:
        together = list(pool.map(lambda messages: answer(server, messages), chats))
    assert together == alone


def test_text_does_not_wait_for_images(models, monkeypatch):
    """While a tower works, and more images wait for it than threads read requests."""
    package, free, begun = models["qwen3_vl"].package, threading.Event(), threading.Event()
    see = GridReader.see

    def slow(reader, inputs):
        begun.set()
        assert free.wait(60)
        return see(reader, inputs)

    monkeypatch.setattr(GridReader, "see", slow)
    service = Service.open(package, ServeOptions(model="tiny"))

    def prompt(content):
        chat = ChatRequest(messages=[Message(role="user", content=content)])
        return asyncio.ensure_future(chat_prompt_of(service, chat, SamplingParams()))

    async def work():
        files = (url(png(9, 9, 50 + number)) for number in range(8))
        seen = [prompt([ContentPart(type="image_url", image_url=file)]) for file in files]
        try:
            assert await asyncio.to_thread(begun.wait, 60)
            assert len((await asyncio.wait_for(prompt("a"), 60))[1]) > 1
            assert not any(each.done() for each in seen)
        finally:
            free.set()
        return await asyncio.gather(*seen)

    try:
        assert all(isinstance(tokens, MixedPrompt) for _, tokens in asyncio.run(work()))
    finally:
        service.close()


def test_what_the_server_says_of_itself(servers, server):
    for live, seen in ((servers["qwen3_vl"], True), (server, False)):
        assert live.get("/props").json()["modalities"] == {"vision": seen, "audio": False}
        (entry,) = live.get("/v1/models").json()["data"]
        assert entry["architecture"]["input_modalities"] == (["text", "image"] if seen else ["text"])
    prompt = servers["qwen3_vl"].post("/apply-template", json={"messages": ONE}).json()["prompt"]
    assert prompt.count("<|image_pad|>") == 1


def bomb() -> bytes:
    """A PNG of 60,000 x 60,000 pixels in 69 bytes."""
    parts = ((b"IHDR", struct.pack(">IIBBBBB", 60_000, 60_000, 8, 2, 0, 0, 0)), (b"IDAT", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in parts
    )


def at(address: str) -> dict:
    return {"type": "image_url", "image_url": {"url": address}}


@pytest.mark.parametrize(
    ("part", "message"),
    [
        (at("https://example.com/cat.png"), "the server fetches nothing; send the image itself"),
        (at("file:///etc/passwd"), "the server opens no files for its clients"),
        (at("cat.png"), "it is no URL that the server reads"),
        (at(base64.b64encode(FIRST).decode()), "it is no URL that the server reads"),
        (at("data:text/plain;base64,aGk="), "it is no image in base64"),
        (at("data:image/png,abc"), "it is no image in base64"),
        (at("data:image/png;base64,a$b="), "is not base64"),
        (at(url(FIRST)[:-3]), "is not base64"),
        (at("data:image/png;base64,"), "0 bytes, nothing and so on, are no image that can be read; expected PNG"),
        (at(url(FIRST[:500])), "are no image that can be read"),
        (at(url(b"GIF89a" + bytes(30))), "expected PNG, JPEG, WEBP, GIF, BMP, TIFF"),
        (at(url(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n")), "are no image that can be read"),
        (at(url(bomb())), "image 2: an image of more than 64 Mi pixels: make it smaller"),
        ({"type": "image_url"}, "image_url is missing"),
        ({"type": "image_url", "image_url": {}}, "missing required field `url`"),
        (text("<|image_pad|>"), "<|image_pad|> 2 times for 1 images"),
        ({"type": "input_audio", "input_audio": {"data": "", "format": "wav"}}, "a part of type 'input_audio'"),
    ],
)
def test_what_is_no_image_is_refused(servers, part, message):
    body = {"messages": [{"role": "user", "content": [image(FIRST), part]}], "max_tokens": 1}
    done = servers["qwen3_vl"].post("/v1/chat/completions", json=body)
    assert done.status_code == 400, done.text
    error = done.json()["error"]
    assert message in error["message"]
    assert "Traceback" not in error["message"]


def test_base64_may_have_lines(servers):
    """As `base64` and MIME write it."""
    whole, _, data = url(FIRST).partition(",")
    lined = at(f"{whole},{base64.encodebytes(base64.b64decode(data)).decode()}")
    assert answer(servers["qwen3_vl"], [{"role": "user", "content": [lined]}]) == answer(
        servers["qwen3_vl"], [{"role": "user", "content": [image(FIRST)]}]
    )


def test_too_many_images_for_the_context(servers):
    """The message says how many tokens they have."""
    many = [{"role": "user", "content": [image(png(9, 9, seed)) for seed in range(30)]}]
    words = [{"role": "user", "content": [image(FIRST), text("one two three " * 200)]}]
    for messages, message in (
        (many, "messages[0], image 22: the images up to here have 528 tokens, the context holds 512"),
        (words, "24 of them of images, the context holds 512; shorten it, send fewer images"),
    ):
        done = servers["qwen3_vl"].post("/v1/chat/completions", json={"messages": messages})
        assert done.status_code == 400
        assert message in done.json()["error"]["message"]
        assert done.json()["error"]["code"] == "context_length_exceeded"


def test_oldest_turns_go_with_their_images(servers):
    """`truncation` "auto" of /v1/responses."""
    server = servers["qwen3_vl"]
    turns = [{"role": "user", "content": [flat(image(FIRST)), flat(text("One. " * 90))]}] * 2
    asked = {"input": [*turns, {"role": "user", "content": [flat(image(SECOND))]}], "max_output_tokens": 3}
    whole, cut, without_one = (
        server.post("/v1/responses", json=body).json()
        for body in (asked, {**asked, "truncation": "auto"}, {**asked, "input": asked["input"][1:]})
    )
    assert whole["error"]["code"] == "context_length_exceeded"
    assert (cut["usage"]["input_tokens"], said(cut)) == (without_one["usage"]["input_tokens"], said(without_one))


def said(response: dict) -> list:
    return [part["text"] for item in response["output"] for part in item.get("content", ())]


def test_a_package_without_a_tower_says_what_to_serve(server):
    for route, body in (
        ("/v1/chat/completions", {"messages": ONE}),
        ("/v1/responses", {"input": [{"role": "user", "content": [flat(image(FIRST))]}]}),
    ):
        done = server.post(route, json=body)
        assert done.status_code == 400
        assert "has no vision tower, so it sees no images; serve a package" in done.json()["error"]["message"]
        assert done.json()["error"]["code"] == "unsupported_image"


def test_a_file_id_is_refused(servers):
    body = {"input": [{"role": "user", "content": [{"type": "input_image", "file_id": "file-1"}]}]}
    done = servers["qwen3_vl"].post("/v1/responses", json=body)
    assert done.status_code == 400
    assert "file_id: nothing is stored; send the image itself" in done.json()["error"]["message"]


def test_without_pillow_images_are_refused_with_the_extra(models, monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    package = models["qwen3_vl"].package
    why = open_images(package, Vocabulary(package.tokenizer_folder), 0)
    assert why == "qwen3_vl cannot be asked about images here: images need Pillow: pip install 'tcim-lite[images]'"
