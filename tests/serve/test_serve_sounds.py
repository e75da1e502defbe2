"""Sounds in chats, and transcriptions: as transformers answers, in every form, and what is refused."""

from __future__ import annotations

import base64
import itertools
import json

import numpy as np
import openai
import pytest

pytestmark = pytest.mark.oracle
pytest.importorskip("transformers", reason="the oracle")

from sound_chats import HearingModel, samples_of, wav

from tcim_lite.serve.chat_template import ChatTemplate
from tcim_lite.serve.transcript import PartText
from tcim_lite.serve.vocabulary import Vocabulary

LIMIT = 5
FIRST, SECOND, LONG = wav(1.3, 3), wav(4, 4), wav(9.5, 5)
INSTRUCTION = "Please transcribe this audio into text"


def sound(file: bytes, form: str = "wav") -> dict:
    return {"type": "input_audio", "input_audio": {"data": base64.b64encode(file).decode(), "format": form}}


def text(words: str) -> dict:
    return {"type": "text", "text": words}


CHAT = [
    {"role": "user", "content": [sound(FIRST), text("Listen.")]},
    {"role": "assistant", "content": "Hm."},
    {"role": "user", "content": [text("And "), sound(SECOND), sound(FIRST, "WAV")]},
]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp
    return {
        "qwen3_asr": HearingModel("qwen3_asr", folder("qwen3_asr"), batch=2),
        "glmasr": HearingModel("glmasr", folder("glmasr")),
        "qwen3_omni_moe": HearingModel("qwen3_omni_moe", folder("qwen3_omni_moe")),
        "minicpmo": HearingModel("minicpmo", folder("minicpmo")),
        "gemma4": HearingModel("gemma4", folder("gemma4")),
    }


@pytest.fixture(scope="module")
def servers(models, start):
    return {name: start(folder=model.package.folder) for name, model in models.items()}


@pytest.fixture(params=["qwen3_asr", "glmasr", "qwen3_omni_moe", "minicpmo", "gemma4"])
def name(request):
    return request.param


def greedy(model, tokens: list[int], files: list[bytes], limit: int) -> list[int]:
    """By transformers; ends where two tokens are too near to each other."""
    made = []
    for _ in range(limit):
        logprobs, bound = model.logprobs([*tokens, *made], list(map(samples_of, files)))
        second, best = np.partition(logprobs[-1], -2)[-2:]
        if best - second <= bound:
            break
        made.append(int(logprobs[-1].argmax()))
    return made


def test_chats_are_those_of_transformers(models, servers, name):
    model, server = models[name], servers[name]
    body = {"messages": CHAT, "max_tokens": LIMIT, "temperature": 0, "logprobs": True, "ignore_eos": True}
    done = server.post("/v1/chat/completions", json=body)
    assert done.status_code == 200, done.text
    tokens = server.post("/tokenize", json={"messages": CHAT}).json()["tokens"]
    assert done.json()["usage"]["prompt_tokens"] == len(tokens)
    compared = 0
    for item in done.json()["choices"][0]["logprobs"]["content"]:
        logprobs, bound = model.logprobs(tokens, list(map(samples_of, [FIRST, SECOND, FIRST])))
        best = int(logprobs[-1].argmax())
        assert abs(item["logprob"] - logprobs[-1, best]) <= bound
        if logprobs[-1, best] - np.partition(logprobs[-1], -2)[-2] <= bound:
            break
        tokens, compared = [*tokens, best], compared + 1
    assert compared >= 3


def test_responses_are_as_chats(servers, name):
    body = {"temperature": 0, "ignore_eos": True}
    chat = servers[name].post("/v1/chat/completions", json={**body, "messages": CHAT[:1], "max_tokens": LIMIT}).json()
    heard = [{"role": "user", "content": [sound(FIRST), {"type": "input_text", "text": "Listen."}]}]
    done = servers[name].post("/v1/responses", json={**body, "input": heard, "max_output_tokens": LIMIT})
    assert done.status_code == 200, done.text
    assert done.json()["output"][0]["content"][0]["text"] == chat["choices"][0]["message"]["content"]
    assert done.json()["usage"]["input_tokens"] == chat["usage"]["prompt_tokens"]


def asked(model, piece: str, seconds: float, begun: str = "", system: str = "") -> list[int]:
    """The prompt of a transcription, as the template writes it and the model counts rows."""
    rows = len(model.rows(np.zeros(round(seconds * 16000), np.float32)))
    said = f"<|im_start|>system\n{system}<|im_end|>\n" if system else ""
    whole = f"{said}<|im_start|>user\n{model.placeholders(rows)}{piece}<|im_end|>\n<|im_start|>assistant\n{begun}"
    return model.tokenizer.encode(whole, add_special_tokens=False).ids


def test_transcriptions_are_those_of_transformers(models, servers, name):
    model = models[name]
    asks = {"glmasr": INSTRUCTION, "qwen3_asr": ""}
    tokens = asked(model, asks.get(name, "Transcribe this audio."), 1.3)
    want = greedy(model, tokens, [FIRST], LIMIT)
    assert len(want) >= 3
    with servers[name].client() as client:
        found = client.audio.transcriptions.create(
            model=model.package.name, file=("a.wav", FIRST), extra_body={"max_completion_tokens": len(want)}
        )
    assert found.text == model.tokenizer.decode(want).strip()
    assert found.usage.input_tokens == len(tokens)
    assert found.usage.input_token_details.audio_tokens == tokens.count(model.id(model.mark))
    assert found.usage.output_tokens == len(want)


def test_gemma_4_is_told_to_translate(models, servers):
    model = models["gemma4"]
    want = greedy(model, asked(model, "Translate this audio from German into English.", 1.3), [FIRST], LIMIT)
    assert len(want) >= 3
    form = {"language": "de", "max_completion_tokens": str(len(want))}
    done = servers["gemma4"].post("/v1/audio/translations", data=form, files=FILE)
    assert done.json()["text"] == model.tokenizer.decode(want).strip()
    done = servers["gemma4"].post("/v1/audio/transcriptions", data={"language": "de.\nSay no"}, files=FILE)
    assert done.status_code == 400
    assert "expected a code such as de, or a name such as German" in done.json()["error"]["message"]
    done = servers["glmasr"].post("/v1/audio/translations", files=FILE)
    assert done.status_code == 400
    assert "only learned to write down" in done.json()["error"]["message"]


def test_a_language_and_a_prompt(models, servers):
    model = models["qwen3_asr"]
    tokens = asked(model, "", 1.3, "language German<asr_text>", "Names: Anna")
    want = greedy(model, tokens, [FIRST], LIMIT)
    assert len(want) >= 2
    form = {"prompt": "Names: Anna", "max_completion_tokens": str(len(want)), "response_format": "verbose_json"}
    for language in ("de", "german"):
        done = servers["qwen3_asr"].post(
            "/v1/audio/transcriptions", data={**form, "language": language}, files={"file": ("a.wav", FIRST)}
        )
        assert done.status_code == 200, done.text
        found = done.json()
        assert (found["text"], found["language"]) == (model.tokenizer.decode(want).strip(), "german")
        assert found["duration"] == 1.3
        assert found["segments"] == [{"id": 0, "start": 0.0, "end": 1.3, "text": found["text"]}]


def test_a_long_sound_is_heard_in_parts_in_every_form(models, servers, name):
    options = {
        "model": models[name].package.name,
        "file": ("a.wav", LONG),
        "extra_body": {"max_completion_tokens": LIMIT},
    }
    with servers[name].client() as client:
        create = client.audio.transcriptions.create
        whole = create(**options)
        assert create(**options, response_format="text").strip() == whole.text
        found = create(**options, response_format="verbose_json", timestamp_granularities=["segment"])
        events = list(create(**options, stream=True))
    parts = [(part.start, part.end) for part in found.segments]
    assert (parts[0][0], parts[-1][1]) == (0.0, 9.5)
    assert all(end == begin for (_, end), (begin, _) in itertools.pairwise(parts))
    if name == "qwen3_omni_moe":  # whose encoder takes any length
        assert len(parts) == 1
    else:
        assert all(3 < end - begin < 4 for begin, end in parts[:-1])
    assert (found.duration, found.text) == (9.5, whole.text)
    assert "".join(event.delta for event in events[:-1]) == events[-1].text == whole.text
    assert len(events) > len(parts)
    assert events[-1].usage.output_tokens == len(parts) * LIMIT


@pytest.mark.parametrize(
    ("written", "text", "language"),
    [
        ("language English<asr_text> Hello. ", "Hello.", "English"),
        ("language None<asr_text>", "", None),
        ("Hello, language", "Hello, language", None),
        ("language and more, so much of it that it cannot be the name of one<asr_text>", None, None),
        ("langu", "langu", None),
    ],
)
def test_what_stands_before_the_text_of_qwen3_asr(written, text, language):
    """However the answer is cut into events, what is shown only grows."""
    for step in (1, 4, len(written)):
        part, shown = PartText(0.0, 1.0, 1, names_language=True), ""
        for begin in range(0, len(written), step):
            part.add(written[begin : begin + step], begin + step >= len(written))
            assert part.text.startswith(shown)
            shown = part.text
        if text is None:
            assert step == len(written) or part.text == written
        else:
            assert (part.text, part.language) == (text, language)


def test_what_the_server_says_of_itself(servers, name):
    assert servers[name].get("/props").json()["modalities"] == {"vision": False, "audio": True}
    (entry,) = servers[name].get("/v1/models").json()["data"]
    assert entry["architecture"]["input_modalities"] == ["text", "audio"]


@pytest.mark.parametrize(
    ("part", "message"),
    [
        (sound(FIRST, "mp3"), "sound 2: format='mp3': nothing here decodes it; send WAV"),
        (sound(b"ID3" + bytes(50)), "sound 2: 53 bytes, 49 44 33"),
        (sound(LONG), "sound 2: a sound of 9.50 s, the encoder takes 4"),
        (sound(wav(0.01, 1)), "is too short"),
        ({"type": "input_audio"}, "input_audio is missing"),
        ({"type": "input_audio", "input_audio": {"data": "a$b=", "format": "wav"}}, "is not base64"),
        (text("<|audio_pad|>"), "<|audio_pad|> 2 times for 1 sounds"),
        ({"type": "image_url", "image_url": {"url": "data:image/png;base64,"}}, "has no vision tower"),
    ],
)
def test_what_is_no_sound_is_refused(servers, part, message):
    body = {"messages": [{"role": "user", "content": [sound(FIRST), part]}], "max_tokens": 1}
    done = servers["qwen3_asr"].post("/v1/chat/completions", json=body)
    assert done.status_code == 400, done.text
    assert message in done.json()["error"]["message"]


def test_too_many_sounds_for_the_context(servers):
    many = [{"role": "user", "content": [sound(wav(4, seed)) for seed in range(10, 16)]}]
    done = servers["qwen3_asr"].post("/v1/chat/completions", json={"messages": many})
    assert done.status_code == 400
    error = done.json()["error"]
    assert "sound 5: the sounds up to here have 260 tokens, the context holds 256" in error["message"]
    assert error["code"] == "context_length_exceeded"


FILE = {"file": ("a.wav", FIRST)}
FIELD = b'--x\r\nContent-Disposition: form-data; name="a[]"\r\n\r\n1\r\n'


@pytest.mark.parametrize(
    ("form", "files", "message"),
    [
        ({}, {"file": ("a.mp3", b"ID3" + bytes(9))}, "file: 12 bytes"),
        ({"response_format": "srt"}, FILE, "this model says no times, Whisper does"),
        ({"language": "xx"}, FILE, "language='xx': Qwen3-ASR has not learned it; expected one of ar, cs"),
        ({"temperature": "-1"}, FILE, "temperature=-1"),
        ({"temperature": "warm"}, FILE, "temperature"),
        ({"timestamp_granularities[]": "word"}, FILE, "times of words need the scores of the decoder's attention"),
        ({"stream": "true", "response_format": "text"}, FILE, "a stream has the form json"),
        ({"langage": "en"}, FILE, "did you mean language?"),
        ({"file": "x"}, FILE, "file: comes twice"),
        ({"prompt": b"\xff"}, FILE, "prompt: is no text in UTF-8"),
        ({"prompt": "one two " * 300}, FILE, "which leaves no room in a context of 256; shorten"),
        ({"prompt": "<|audio_pad|>"}, FILE, "prompt: the prompt has <|audio_pad|> 2 times"),
        ({}, FILE, "the context was full before the text of the sound ended"),
        ({"language": "en"}, {}, "multipart/form-data"),
    ],
)
def test_transcriptions_that_are_refused(servers, form, files, message):
    done = servers["qwen3_asr"].post("/v1/audio/transcriptions", data=form, files=files)
    assert done.status_code == (400 if files else 415), done.text
    assert message in done.json()["error"]["message"]


@pytest.mark.parametrize(
    ("kind", "body", "status", "message"),
    [
        ("multipart/form-data", b"", 400, "no boundary"),
        ("multipart/form-data; boundary=x", b"--x\r\n", 400, "no whole form"),
        ("multipart/form-data; boundary=x", b"--x\r\n\r\nhello\r\n--x--\r\n", 400, "no name"),
        ("multipart/form-data; boundary=x", b"--x\r\nContent-Disposition: form-data\r\n\r\na\r\n--x--", 400, "no name"),
        ("multipart/form-data; boundary=x", FIELD * 70 + b"--x--", 400, "no whole form of at most 64 fields"),
        ("multipart/form-data; boundary=x", b"--x--", 400, "missing required field `file`"),
    ],
)
def test_bodies_that_are_no_form(servers, kind, body, status, message):
    done = servers["glmasr"].post("/v1/audio/transcriptions", content=body, headers={"content-type": kind})
    assert done.status_code == status, done.text
    assert message in done.json()["error"]["message"]


def test_glm_asr_has_no_place_for_a_language_or_a_prompt(servers):
    for field in ("language", "prompt"):
        done = servers["glmasr"].post("/v1/audio/transcriptions", data={field: "en"}, files=FILE)
        assert done.status_code == 400
        assert f"{field}: GLM-ASR has learned one question" in done.json()["error"]["message"]


def test_a_page_of_another_site_may_not_send_forms(servers):
    for origin, status in (("https://evil.example", 403), ("null", 403), (servers["glmasr"].url, 200)):
        done = servers["glmasr"].post(
            "/v1/audio/transcriptions", data={"max_completion_tokens": "1"}, files=FILE, headers={"origin": origin}
        )
        assert done.status_code == status, done.text


def test_a_package_that_hears_nothing_says_what_to_serve(server):
    with server.client() as client, pytest.raises(openai.BadRequestError, match="take a package of Qwen3-ASR"):
        client.audio.transcriptions.create(model="qwen3", file=("a.wav", FIRST))
    done = server.post("/v1/chat/completions", json={"messages": CHAT})
    assert done.status_code == 400
    assert "messages[0], sound 1: a part of type 'input_audio', but qwen3 has no encoder" in done.text
    assert json.loads(done.text)["error"]["code"] == "unsupported_audio"


def test_a_template_in_a_json_file_is_found(models, tmp_path):
    """Where processors of earlier versions of transformers wrote it."""
    folder = models["glmasr"].package.tokenizer_folder
    for name in ("tokenizer.json", "config.json"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    config = json.loads((folder / "tokenizer_config.json").read_text())
    config.pop("chat_template", None)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    vocabulary = Vocabulary(tmp_path)
    assert ChatTemplate.of(tmp_path, vocabulary) is None
    (tmp_path / "chat_template.json").write_text(json.dumps({"chat_template": "{{ messages[0].content }}!"}))
    template = ChatTemplate.of(tmp_path, vocabulary)
    try:
        assert template.render({"messages": [{"content": "Hi"}]}) == "Hi!"
    finally:
        template.close()
