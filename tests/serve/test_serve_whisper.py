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
from transformers.models.whisper.generation_whisper import WhisperGenerationMixin
from whisper_models import bound, random_model, transformers

from tcim_lite.llm import Package
from tcim_lite.llm.media import Configs, MediaError
from tcim_lite.llm.sounds.mel import long_log_mel
from tcim_lite.llm.sounds.whisper import FallbackThresholds, WhisperReader
from tcim_lite.llm.sounds.windows import LongSound, cut

END, START, UNTIMED = "<|end|>", "<|startoftranscript|>", "<|notimestamps|>"
NAMES = [END, START, "<|en|>", "<|de|>", "<|translate|>", "<|transcribe|>", "<|startofprev|>", UNTIMED]
ROUTE = "/v1/audio/transcriptions"
FIRST, SECOND, LONG, LONGER = wav(0.7, 3), wav(0.9, 4), wav(2.5, 5), wav(4.73, 6)
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
            no_timestamps_token_id=self.id(UNTIMED),
            prev_sot_token_id=self.id("<|startofprev|>"),
            suppress_tokens=list(range(0, self.end, 2)),
            begin_suppress_tokens=list(range(1, self.end, 4)),
            max_initial_timestamp_index=5,
        )
        if many:
            self.model.generation_config.lang_to_id = {name: self.id(name) for name in ("<|en|>", "<|de|>")}
            tasks = {name: self.id(f"<|{name}|>") for name in ("transcribe", "translate")}
            self.model.generation_config.task_to_id = tasks
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

    def written(self, names: list[str], file: bytes, before: str = "") -> list[int]:
        """What it writes behind tokens of these names, until two are too near to each other."""
        tokens, made = list(map(self.id, names)), []
        if before:
            tokens[:0] = [self.id("<|startofprev|>"), *self.tokenizer.encode(before, add_special_tokens=False).ids]
        self.sum, first_time, told = 0.0, self.id(UNTIMED) + 1, self.model.generation_config
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
            scores[:, first_time:] = -np.inf
            second, best = np.partition(scores[0], -2)[-2:]
            if best - second <= near or (token := int(scores[0].argmax())) == self.end:
                break
            made.append(token)
            self.sum += float(torch.as_tensor(scores[0]).log_softmax(0)[token])
        assert len(made) >= 3
        return made

    def segments(self, file: bytes, prompt: str = "", *, limit: int = LIMIT, **told) -> list[dict]:
        """The text with times as `generate` of transformers makes it, window after window."""
        extractor = transformers.WhisperFeatureExtractor(feature_size=80, chunk_length=1)
        samples = samples_of(file)
        long = {"truncation": False, "padding": "longest"} if len(samples) > 16000 else {}
        features = extractor(samples, sampling_rate=16000, return_tensors="pt", **long).input_features
        if prompt:
            told["prompt_ids"] = torch.tensor(
                [self.id("<|startofprev|>"), *self.tokenizer.encode(prompt, add_special_tokens=False).ids]
            )
        told = {"language": "en", "task": "transcribe", "return_timestamps": True, "temperature": 0.0, **told}
        made = self.model.generate(features, max_new_tokens=limit, return_segments=True, **told)
        found = made["segments"][0]
        assert min((float(near) for segment in found for near in self._distances(segment)), default=1) > 0
        return found

    def _distances(self, segment: dict) -> list[float]:
        """Where a result has scores: how far the two likeliest tokens lie apart, less what float32 may differ."""
        if not isinstance(segment.get("result"), dict):
            return []
        found = []
        for scores in segment["result"]["scores"]:
            best = scores.topk(2).values
            found.append(best[0] - best[1] - 2 * bound(self.model.config) * scores[scores.isfinite()].abs().max())
        return found

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


def as_said(many, segments: list[dict], seconds: float) -> list[tuple]:
    """Begin, end, tokens and text of segments of transformers."""
    first_time = many.id(UNTIMED) + 1
    found = []
    for segment in segments:
        tokens = segment["tokens"].tolist()
        times = (round(min(float(segment[name]), seconds), 3) for name in ("start", "end"))
        words = many.decode([token for token in tokens if token < first_time])
        if words:
            found.append((*times, tokens, " ".join(words.split())))
    return found


def told(found: dict) -> list[tuple]:
    """The same of an answer."""
    return [(each["start"], each["end"], each["tokens"], each["text"]) for each in found["segments"]]


@pytest.mark.parametrize("conditions", [True, False, None])
@pytest.mark.parametrize("prompt", ["", "Names: Anna, Bert"])
@pytest.mark.parametrize(("file", "seconds"), [(LONG, 2.5), (LONGER, 4.73)])
def test_long_texts_are_those_of_transformers(many, server, file, seconds, prompt, conditions):
    """Each window begins where the text before it says, and may be told of that text."""
    scores = {"return_dict_in_generate": True, "output_scores": True}
    want = many.segments(file, prompt, condition_on_prev_tokens=conditions is not False, **scores)
    form = {"language": "en", "max_completion_tokens": str(LIMIT), **({"prompt": prompt} if prompt else {})}
    if conditions is not None:
        form["condition_on_previous_text"] = str(conditions).lower()
    if prompt and conditions is not False:
        want = want[1:] if len(want[0]) == 1 else want
    found = asked(server, file, response_format="verbose_json", **form)
    assert told(found) == as_said(many, want, seconds)
    assert found["duration"] == seconds
    assert len({each["seek"] for each in found["segments"]}) > seconds  # windows that begin between whole seconds
    if conditions is None:  # the default is that a window is told of the text, which changes what follows
        apart = asked(server, file, response_format="verbose_json", **form, condition_on_previous_text="false")
        assert told(apart) != told(found)


def test_times_are_those_that_the_model_writes(many, server):
    pieces = 0
    for file, seconds in ((FIRST, 0.7), (SECOND, 0.9)):
        want = as_said(many, many.segments(file), seconds)
        form = {"language": "en", "max_completion_tokens": str(LIMIT), "condition_on_previous_text": "false"}
        found = asked(server, file, response_format="verbose_json", **form)
        made = told(found)
        assert made == want[: len(made)]  # transformers also hears the silence behind the sound
        assert made[-1][1] == seconds or len(made) == len(want)
        pieces += len(made)
        assert (found["language"], found["duration"], found["task"]) == ("english", seconds, "transcribe")
        clocks = [f"00:00:{begin:06.3f} --> 00:00:{end:06.3f}" for begin, end, *_ in made]
        vtt = asked(server, file, response_format="vtt", **form)
        assert [line for line in vtt.splitlines() if "-->" in line] == clocks
        assert vtt.startswith("WEBVTT\n")
        srt = asked(server, file, response_format="srt", **form)
        assert [line for line in srt.splitlines() if "-->" in line] == [clock.replace(".", ",") for clock in clocks]
        assert [line for line in srt.splitlines() if line.isdigit()][:1] == ["1"]
    assert pieces > 2


def test_a_long_sound_in_every_form(many, server):
    form = {"language": "en", "max_completion_tokens": str(LIMIT)}
    whole = asked(server, LONG, **form)["text"]
    found = asked(server, LONG, response_format="verbose_json", **form)
    assert found["text"] == whole
    assert "".join(whole.split()) == "".join("".join(part["text"].split()) for part in found["segments"])
    assert asked(server, LONG, response_format="text", **form).strip() == whole
    vtt = asked(server, LONG, response_format="vtt", **form)
    assert [line for line in vtt.splitlines()[2:] if line and "-->" not in line] == [
        part["text"] for part in found["segments"] if part["start"] < part["end"]
    ]
    with server.client() as client:
        create = client.audio.transcriptions.create
        more = {"language": "en", "extra_body": {"max_completion_tokens": LIMIT}}
        events = list(create(model="whisper", file=("a.wav", LONG), stream=True, **more))
        parsed = create(
            model="whisper",
            file=("a.wav", LONG),
            response_format="verbose_json",
            timestamp_granularities=["segment"],
            **more,
        )
    assert "".join(event.delta for event in events[:-1]) == events[-1].text == whole
    assert len(events) > 2  # one for each window that has a text
    assert [part.tokens for part in parsed.segments] == [part["tokens"] for part in found["segments"]]
    assert all(
        part.avg_logprob < 0 < part.compression_ratio and 0 < part.no_speech_prob < 1 for part in parsed.segments
    )
    windows = len({part.seek for part in parsed.segments})
    assert events[-1].usage.input_token_details.audio_tokens >= windows > 2


def test_a_model_of_english_from_its_checkpoint(start, tmp_path_factory):
    folder = tmp_path_factory.mktemp("english")
    model = Whisper(folder, many=False)
    env = {"XDG_CACHE_HOME": str(folder / "cache")}
    server = start("--quant", "float32", folder=model.checkpoint, env=env)
    want = model.written([START, UNTIMED], FIRST)
    form = {"max_completion_tokens": str(len(want))}
    for language in ({}, {"language": "en"}):
        assert asked(server, FIRST, **form, **language)["text"] == model.decode(want)
    found = asked(server, FIRST, response_format="verbose_json", max_completion_tokens=str(LIMIT))
    want = as_said(model, model.segments(FIRST, language=None, task=None, condition_on_prev_tokens=True), 0.7)
    assert told(found) == want[: len(found["segments"])] != []
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


def test_windows_in_which_nobody_speaks_are_left_out(server, many, doubting):
    form = {"language": "en", "max_completion_tokens": str(LIMIT), "response_format": "verbose_json"}
    chances = sorted({part["no_speech_prob"] for part in asked(server, LONGER, **form)["segments"]})
    middle = sum(chances[len(chances) // 2 - 1 :][:2]) / 2
    scores = {"return_dict_in_generate": True, "output_scores": True, "condition_on_prev_tokens": True}
    want = many.segments(LONGER, logprob_threshold=1.0, no_speech_threshold=middle, **scores)
    server = doubting(logprob_threshold=1.0, no_speech_threshold=middle)
    found = asked(server, LONGER, temperature="1e-7", **form)  # one try, which is the likeliest text
    assert told(found) == as_said(many, want, 4.73)
    assert 0 < len({part["seek"] for part in found["segments"]}) < len(chances)


def test_texts_are_cut_at_times_as_transformers_cuts_them():
    first, rng = 100, np.random.default_rng(7)
    long = LongSound(np.ones(35000, np.float32), 20, 100)
    lengths = {"time_precision": 0.02, "time_precision_features": 0.01, "input_stride": 2}
    for _ in range(500):
        tokens, time = [first], 0
        while len(tokens) < rng.integers(2, 14):
            tokens += [5] * rng.integers(1, 4)
            time = min(time + rng.integers(1, 9), 50)
            tokens += [first + time] * rng.integers(0, 3)
        seek = int(rng.integers(0, 218))
        want, step = WhisperGenerationMixin._retrieve_segment(
            seek_sequence=torch.tensor(tokens),
            seek_outputs=[None],
            time_offset=torch.tensor([seek / 100], dtype=torch.float64),
            timestamp_begin=first,
            seek_num_frames=torch.tensor([long.frames_from(seek)]),
            prev_idx=0,
            idx=0,
            return_token_timestamps=False,
            decoder_input_ids=torch.zeros(1, 4),
            **lengths,
        )
        found, behind = cut(tokens, first, seek, long.frames_from(seek))
        assert behind == seek + int(step)
        assert [list(each.tokens) for each in found] == [each["tokens"].tolist() for each in want]
        # transformers rounds the end of a window without times down, by float32
        near = 1e-6 if any(token > first for token in tokens) else 0.0201
        for each, segment in zip(found, want, strict=True):
            assert (each.begin, each.end) == pytest.approx((float(segment["start"]), float(segment["end"])), abs=near)


def test_features_of_a_long_sound_are_those_of_transformers():
    """However many windows are computed at a time."""
    samples = samples_of(LONGER)
    extractor = transformers.WhisperFeatureExtractor(feature_size=20)
    want = extractor(samples, sampling_rate=16000, truncation=False, padding="longest", return_tensors="np")
    for block in (7, 100, 1000):
        assert long_log_mel(samples, 20, block) == pytest.approx(want.input_features, abs=1e-4)


def test_a_text_that_repeats_itself_is_measured_as_transformers_does(many):
    for tokens in ([5] * 40, [5, 6, 7] * 9, list(range(30))):
        want = WhisperGenerationMixin._retrieve_compression_ratio(torch.tensor(tokens), 51866)
        ratio = FallbackThresholds.ratio(tokens, 51866)
        for more, repeats in ((-1e-6, True), (1e-6, False)):
            assert (
                FallbackThresholds(compression_ratio=want + more, logprob=None, no_speech=None).repeats(ratio)
                == repeats
            )


@pytest.mark.parametrize(
    ("form", "file", "message"),
    [
        ({}, b"ID3" + bytes(9), "file: 12 bytes"),
        ({}, wav(0.001, 3), "a sound of 16 samples; expected 160 or more"),
        ({"language": "xx"}, FIRST, "language='xx': this Whisper has not learned it; expected one of de, en, or"),
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


@pytest.mark.parametrize(("said", "conditions"), [(True, True), (False, False), (None, True)])
def test_the_checkpoint_says_whether_windows_are_told_of_earlier_ones(many, tmp_path, said, conditions):
    shutil.copytree(many.checkpoint, tmp_path / "hf")
    tell(tmp_path / "hf", condition_on_prev_tokens=said)
    assert WhisperReader(tmp_path / "hf", Configs(tmp_path / "hf", many.tokenizer)).conditions == conditions


@pytest.mark.parametrize("said", [0, 1, "false", []])
def test_what_is_neither_true_nor_false_is_refused(many, tmp_path, said):
    shutil.copytree(many.checkpoint, tmp_path / "hf")
    tell(tmp_path / "hf", condition_on_prev_tokens=said)
    with pytest.raises(MediaError, match=r"condition_on_prev_tokens=.*expected true, false or null"):
        WhisperReader(tmp_path / "hf", Configs(tmp_path / "hf", many.tokenizer))
