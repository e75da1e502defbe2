"""Whisper behind the server: it writes what transformers says, with times, in parts, as a stream."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest

pytestmark = pytest.mark.oracle
pytest.importorskip("transformers", reason="the oracle")

import torch
from llm_packages import DEMO_CHECKPOINT, compile_package
from sound_chats import samples_of, tokenizers, wav
from whisper_models import bound, random_model, transformers

from tcim_lite.llm import Package
from tcim_lite.llm.sounds.whisper import FallbackThresholds

END, START, UNTIMED = "<|end|>", "<|startoftranscript|>", "<|notimestamps|>"
NAMES = [END, START, "<|en|>", "<|de|>", "<|translate|>", "<|transcribe|>", "<|startofprev|>", UNTIMED]
ROUTE = "/v1/audio/transcriptions"
FIRST, SECOND, LONG = wav(0.7, 3), wav(0.9, 4), wav(2.5, 5)
LIMIT = 8


def tell(folder, **told) -> None:
    """Changes generation_config.json."""
    path = folder / "generation_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **told}))


class Whisper:
    """A tiny model of transformers, whose encoder takes a second; half of its tokens are never written."""

    def __init__(self, folder, many: bool):
        torch.manual_seed(3)
        self.tokenizer = tokenizers.Tokenizer.from_file(str(DEMO_CHECKPOINT / "tokenizer.json"))
        self.tokenizer.add_special_tokens(NAMES)
        size = self.tokenizer.get_vocab_size()
        if many:  # as in later checkpoints; in earlier ones the tokenizer has none
            self.tokenizer.add_tokens([f"<|{number * 0.02:.2f}|>" for number in range(51)])
        self.model = random_model(vocab_size=size + 51, tie_word_embeddings=False)
        with torch.no_grad():
            self.model.proj_out.weight[size:] *= 1.3  # else it would hardly write a time
        self.end = self.id(END)
        self.model.generation_config = transformers.GenerationConfig(
            eos_token_id=self.end,
            pad_token_id=self.end,
            decoder_start_token_id=self.id(START),
            is_multilingual=many,
            lang_to_id={name: self.id(name) for name in ("<|en|>", "<|de|>")},
            task_to_id={name: self.id(f"<|{name}|>") for name in ("transcribe", "translate")},
            no_timestamps_token_id=self.id(UNTIMED),
            prev_sot_token_id=self.id("<|startofprev|>"),
            suppress_tokens=list(range(0, self.end, 2)),
            begin_suppress_tokens=list(range(1, self.end, 4)),
            max_initial_timestamp_index=5,
        )
        self.checkpoint = folder / "hf"
        self.model.save_pretrained(self.checkpoint)
        tell(self.checkpoint, logprob_threshold=None)  # else no text of a random model would be believed
        self.tokenizer.save(str(self.checkpoint / "tokenizer.json"))
        shutil.copyfile(DEMO_CHECKPOINT / "tokenizer_config.json", self.checkpoint / "tokenizer_config.json")

    def id(self, name: str) -> int:
        return self.tokenizer.token_to_id(name)

    def logits(self, tokens: list[int], file: bytes) -> np.ndarray:
        extractor = transformers.WhisperFeatureExtractor(feature_size=80, chunk_length=1)
        features = extractor(samples_of(file), sampling_rate=16000, return_tensors="pt").input_features
        with torch.no_grad():
            return self.model(input_features=features, decoder_input_ids=torch.tensor([tokens])).logits[0, -1].numpy()

    def language(self, file: bytes) -> str:
        logits = self.logits([self.id(START)], file)
        return max(("en", "de"), key=lambda code: logits[self.id(f"<|{code}|>")])

    def written(self, names: list[str], file: bytes, before: str = "", *, timed: bool = False) -> list[int]:
        """What it writes behind tokens of these names, until two are too near to each other."""
        tokens, made = list(map(self.id, names)), []
        if before:
            tokens[:0] = [self.id("<|startofprev|>"), *self.tokenizer.encode(before, add_special_tokens=False).ids]
        self.sum, first_time, told = 0.0, self.id(UNTIMED) + 1, self.model.generation_config
        if timed:
            tokens.pop()
        rules = [
            transformers.SuppressTokensAtBeginLogitsProcessor(told.begin_suppress_tokens, len(tokens)),
            transformers.SuppressTokensLogitsProcessor(told.suppress_tokens),
        ]
        while len(made) < LIMIT:
            logits, ids = self.logits([*tokens, *made], file), torch.tensor([[*tokens, *made]])
            near = bound(self.model.config) * np.abs(logits).max()
            scores = torch.tensor(logits)[None]
            for rule in rules:
                scores = rule(ids, scores)
            if timed:
                before = transformers.WhisperTimeStampLogitsProcessor(told, len(tokens), False)(ids, scores)[0]
                if abs(before[first_time:].logsumexp(0) - before[:first_time].max()) <= 2 * near:
                    break
                scores = transformers.WhisperTimeStampLogitsProcessor(told, len(tokens))(ids, scores)
            else:
                scores[:, first_time:] = -np.inf
            second, best = np.partition(scores[0], -2)[-2:]
            if best - second <= near or (token := int(scores[0].argmax())) == self.end:
                break
            made.append(token)
            self.sum += float(torch.as_tensor(scores[0]).log_softmax(0)[token])
        assert len(made) >= 3
        return made

    def generated(self, language: str, file: bytes, count: int) -> list[int]:
        """The text with times as `generate` of transformers makes it, in the first of its windows at least."""
        extractor = transformers.WhisperFeatureExtractor(feature_size=80, chunk_length=1)
        features = extractor(samples_of(file), sampling_rate=16000, return_tensors="pt").input_features
        told = {"language": language, "task": "transcribe", "return_timestamps": True}
        return self.model.generate(features, **told, max_new_tokens=count)[0].tolist()

    def decode(self, tokens: list[int]) -> str:
        return self.tokenizer.decode(tokens).strip()


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    return Whisper(tmp_path_factory.mktemp("many"), many=True)


@pytest.fixture(scope="module")
def server(many, start):
    """Two replicas, of one slot each."""
    package = compile_package(many.checkpoint, many.checkpoint.parent / "out", quant="float32")
    return start("--devices", "0,1", "--replicas", "2", folder=package.folder, env={"TCIM_LITE_DEVICE_NUM": "2"})


def asked(server, file: bytes, route: str = ROUTE, **form) -> object:
    done = server.post(route, data=form, files={"file": ("a.wav", file)})
    assert done.status_code == 200, done.text
    return done.text if form.get("response_format") in ("text", "srt", "vtt") else done.json()


@pytest.mark.parametrize("prompt", ["", "Names: Anna, Bert"])
@pytest.mark.parametrize("language", [None, "de", "German"])
@pytest.mark.parametrize("task", ["transcribe", "translate"])
def test_texts_are_those_of_transformers(many, server, task, language, prompt):
    """The second sound has the same prompt, and may use no row of the first."""
    form = {name: value for name, value in (("language", language), ("prompt", prompt)) if value}
    for file in (FIRST, SECOND):
        code = "de" if language else many.language(file)
        want = many.written([START, f"<|{code}|>", f"<|{task}|>", UNTIMED], file, prompt)
        route = ROUTE if task == "transcribe" else "/v1/audio/translations"
        found = asked(server, file, route, max_completion_tokens=str(len(want)), **form)
        assert found["text"] == many.decode(want)
        assert found["usage"]["output_tokens"] == len(want)


def test_times_are_those_that_the_model_writes(many, server):
    pieces = 0
    for file, seconds in ((FIRST, 0.7), (SECOND, 0.9)):
        tokens = many.written([START, "<|en|>", "<|transcribe|>", UNTIMED], file, timed=True)
        is_time = [token > many.id(UNTIMED) for token in tokens]
        cuts = [place for place in range(1, len(tokens)) if is_time[place - 1] and is_time[place]]
        same = cuts[-1] if cuts else len(tokens)  # behind a last cut the next window begins
        assert many.generated("en", file, len(tokens))[:same] == tokens[:same]
        want, begin, words = [], 0.0, []
        for token in [*tokens, None]:
            if token is None or token > many.id(UNTIMED):
                end = seconds if token is None else (token - many.id(UNTIMED) - 1) * 0.02
                end = min(max(end, begin), seconds)
                want += [(round(begin, 3), round(end, 3), " ".join(many.decode(words).split()))] if words else []
                begin, words = end, []
            else:
                words.append(token)
        pieces += len(want)
        form = {"language": "en", "max_completion_tokens": str(len(tokens))}
        found = asked(server, file, response_format="verbose_json", **form)
        assert [(part["start"], part["end"], part["text"]) for part in found["segments"]] == want
        assert (found["language"], found["duration"], found["task"]) == ("english", seconds, "transcribe")
        clocks = [f"00:00:{begin:06.3f} --> 00:00:{end:06.3f}" for begin, end, text in want if text]
        vtt = asked(server, file, response_format="vtt", **form)
        assert [line for line in vtt.splitlines() if "-->" in line] == clocks
        assert vtt.startswith("WEBVTT\n")
        srt = asked(server, file, response_format="srt", **form)
        assert [line for line in srt.splitlines() if "-->" in line] == [clock.replace(".", ",") for clock in clocks]
        assert [line for line in srt.splitlines() if line.isdigit()][:1] == ["1"][: len(clocks)]
    assert pieces > 2  # so times stand between words


def test_a_long_sound_is_heard_in_parts_whole_and_as_a_stream(many, server):
    form = {"language": "en", "max_completion_tokens": str(LIMIT)}
    whole = asked(server, LONG, **form)["text"]
    found = asked(server, LONG, response_format="verbose_json", **form)
    times = [time for part in found["segments"] for time in (part["start"], part["end"])]
    assert (times, found["duration"]) == (sorted(times), 2.5)
    assert {int(part["start"]) for part in found["segments"]} == {0, 1, 2}
    assert asked(server, LONG, response_format="text", **form).strip() == whole
    with server.client() as client:
        events = list(
            client.audio.transcriptions.create(
                model="whisper",
                file=("a.wav", LONG),
                language="en",
                stream=True,
                extra_body={"max_completion_tokens": LIMIT},
            )
        )
    assert "".join(event.delta for event in events[:-1]) == events[-1].text == whole
    assert len(events) > 1  # as many as parts, if the first is not the last that is believed


def test_a_model_of_english_from_its_checkpoint(start, tmp_path_factory):
    folder = tmp_path_factory.mktemp("english")
    model = Whisper(folder, many=False)
    env = {"XDG_CACHE_HOME": str(folder / "cache")}
    server = start("--quant", "float32", folder=model.checkpoint, env=env)
    want = model.written([START, UNTIMED], FIRST)
    form = {"max_completion_tokens": str(len(want))}
    for language in ({}, {"language": "en"}):
        assert asked(server, FIRST, **form, **language)["text"] == model.decode(want)
    timed = model.written([START, UNTIMED], FIRST, timed=True)
    words = [token for token in timed if token < model.id(UNTIMED)]
    found = asked(server, FIRST, response_format="verbose_json", max_completion_tokens=str(len(timed)))
    assert found["text"] == model.decode(words) != ""
    for path, fields in ((ROUTE, {"language": "de"}), ("/v1/audio/translations", {})):
        done = server.post(path, data=fields, files={"file": ("a.wav", FIRST)})
        assert done.status_code == 400
        assert "knows English alone" in done.json()["error"]["message"]


@pytest.fixture
def doubting(server, start, tmp_path, many):
    """Serves the package with other thresholds."""

    def make(**told):
        package = Package.open(tmp_path / "out")
        tell(package.tokenizer_folder, **told)
        return start(folder=package.folder)

    shutil.copytree(many.checkpoint.parent / "out", tmp_path / "out")
    return make


def test_a_text_that_is_not_believed_is_made_again(many, doubting):
    """By the mean of its logarithms, as transformers computes it: as it is just above, and otherwise just below."""
    want = many.written([START, "<|en|>", "<|transcribe|>", UNTIMED], FIRST)
    mean, begun = many.sum / len(want), many.logits([many.id(START)], FIRST)
    near = 2 * bound(many.model.config) * float(np.abs(begun).max())
    silence = float(torch.tensor(begun).softmax(0)[many.id(UNTIMED) - 1])
    form = {"language": "en", "max_completion_tokens": str(len(want))}
    believed = doubting(logprob_threshold=mean - near, no_speech_threshold=0.0)
    assert asked(believed, FIRST, **form)["text"] == many.decode(want)
    server = doubting(logprob_threshold=mean + near, no_speech_threshold=silence * 1.01)
    found = asked(server, FIRST, **form)["text"]
    assert found not in (many.decode(want), "")
    assert asked(server, FIRST, **form)["text"] == found  # with the same seeds
    assert asked(server, FIRST, temperature="0.01", **form)["text"] == many.decode(want)
    done = server.post(ROUTE, data={**form, "stream": "true"}, files={"file": ("a.wav", FIRST)})
    assert json.loads(done.text.split("data: ")[-2])["text"] == found
    silent = doubting(logprob_threshold=mean + near, no_speech_threshold=silence * 0.99)
    assert asked(silent, FIRST, **form)["text"] == ""


def test_a_text_that_repeats_itself_is_measured_as_transformers_does(many):
    from transformers.models.whisper.generation_whisper import WhisperGenerationMixin

    for tokens in ([5] * 40, [5, 6, 7] * 9, list(range(30))):
        ratio = WhisperGenerationMixin._retrieve_compression_ratio(torch.tensor(tokens), 51866)
        for more, repeats in ((-1e-6, True), (1e-6, False)):
            assert (
                FallbackThresholds(compression_ratio=ratio + more, logprob=None, no_speech=None).repeats(tokens, 51866)
                == repeats
            )


@pytest.mark.parametrize(
    ("form", "file", "message"),
    [
        ({}, b"ID3" + bytes(9), "file: 12 bytes"),
        ({}, wav(0.001, 3), "a sound of 16 samples; expected 160 to 16000"),
        ({"language": "xx"}, FIRST, "language='xx': this Whisper has not learned it; expected one of de, en"),
        ({"stream": "true", "response_format": "vtt"}, FIRST, "a stream has the form json"),
        ({"response_format": "html"}, FIRST, "response_format"),
        ({"max_completion_tokens": "-2"}, FIRST, "max_completion_tokens=-2: expected at least 1"),
    ],
)
def test_what_is_refused(server, form, file, message):
    done = server.post(ROUTE, data=form, files={"file": ("a.wav", file)})
    assert done.status_code == 400, done.text
    assert message in done.json()["error"]["message"]


def test_a_prompt_of_text_alone_is_refused(server):
    done = server.post("/v1/completions", json={"prompt": "hi", "max_tokens": 1})
    assert done.status_code == 400
    assert "this model only writes down what is said" in done.json()["error"]["message"]
