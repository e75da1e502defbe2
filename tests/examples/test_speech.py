"""The speech example on a tiny random model: its text is what transformers makes of the same sound."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from llm_packages import DEMO_CHECKPOINT
from wav_files import write_wav

pytestmark = [pytest.mark.oracle, pytest.mark.slow]

torch = pytest.importorskip("torch", reason="the oracle")
transformers = pytest.importorskip("transformers", reason="the oracle")
tokenizers = pytest.importorskip("tokenizers", reason="needs the extra [chat]")

from tcim_lite.cli import main
from tcim_lite.llm.sounds import read_wav

SPECIAL = ["<|endoftext|>", "<|startoftranscript|>", "<|en|>", "<|de|>", "<|zh|>", "<|translate|>", "<|transcribe|>"]
SPECIAL += ["<|notimestamps|>"]
FRAMES, LIMIT = 300, 14


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A model of transformers, its tokenizer and its package in float32."""
    sys.path.insert(0, str(Path(__file__).parent.parent / "llm"))
    from whisper_models import random_model

    folder = tmp_path_factory.mktemp("speech")
    tokenizer = tokenizers.Tokenizer.from_file(str(DEMO_CHECKPOINT / "tokenizer.json"))
    tokenizer.add_special_tokens(SPECIAL)
    model = random_model(vocab_size=tokenizer.get_vocab_size(), max_source_positions=FRAMES // 2)
    model.save_pretrained(folder / "hf")
    tokenizer.save(str(folder / "hf/tokenizer.json"))
    shutil.copyfile(DEMO_CHECKPOINT / "tokenizer_config.json", folder / "hf/tokenizer_config.json")
    assert main(["compile", str(folder / "hf"), "-o", str(folder / "out"), "--quant", "float32", "-q"]) == 0
    return model, tokenizer, folder / "out"


def greedy(model, features: np.ndarray, prompt: list[int], end: int) -> list[int]:
    tokens = list(prompt)
    while len(tokens) <= LIMIT:
        with torch.no_grad():
            given = {"input_features": torch.tensor(features), "decoder_input_ids": torch.tensor([tokens])}
            tokens.append(int(model(**given).logits[0, -1].argmax()))
        if tokens[-1] == end:
            return tokens[len(prompt) : -1]
    return tokens[len(prompt) : LIMIT]


@pytest.mark.parametrize("options", [[], ["--language", "de", "--task", "translate"]])
def test_text_is_that_of_transformers(made, tmp_path, run_example, shown_tokens, options):
    model, tokenizer, package = made
    samples = write_wav(tmp_path / "speech.wav", 2.5)
    extractor = transformers.WhisperFeatureExtractor(chunk_length=FRAMES // 100)
    features = extractor(samples, sampling_rate=16000, return_tensors="np").input_features.astype(np.float32)
    end, start, *languages = (tokenizer.token_to_id(name) for name in SPECIAL[:5])
    with torch.no_grad():
        given = {"input_features": torch.tensor(features), "decoder_input_ids": torch.tensor([[start]])}
        logits = model(**given).logits[0, -1]
    language = SPECIAL[2:5][int(logits[languages].argmax())] if not options else "<|de|>"
    task = "<|translate|>" if options else "<|transcribe|>"
    prompt = [start, *map(tokenizer.token_to_id, (language, task, "<|notimestamps|>"))]
    arguments = ("--audio", tmp_path / "speech.wav", "--max-tokens", LIMIT, "--show-tokens", *options)
    done = run_example("speech_recognition.py", package, *arguments)
    assert done.returncode == 0, done.stderr
    assert f"language: {language[2:-2]}\n" in done.stdout
    assert shown_tokens(done.stdout) == [greedy(model, features, prompt, end)]


@pytest.fixture(scope="module")
def english(made, tmp_path_factory):
    """The same package as one of a .en checkpoint, whose tokenizer has the tokens of languages too."""
    folder = tmp_path_factory.mktemp("english") / "out"
    shutil.copytree(made[2], folder)
    (folder / "tokenizer/generation_config.json").write_text('{"is_multilingual": false}')
    return folder


def test_a_model_of_english_alone_gets_no_language(made, english, tmp_path, run_example, shown_tokens):
    model, tokenizer, _ = made
    samples = write_wav(tmp_path / "speech.wav", 2.5)
    extractor = transformers.WhisperFeatureExtractor(chunk_length=FRAMES // 100)
    features = extractor(samples, sampling_rate=16000, return_tensors="np").input_features.astype(np.float32)
    prompt = [tokenizer.token_to_id(name) for name in ("<|startoftranscript|>", "<|notimestamps|>")]
    arguments = ("--audio", tmp_path / "speech.wav", "--max-tokens", LIMIT, "--show-tokens")
    done = run_example("speech_recognition.py", english, *arguments)
    assert done.returncode == 0, done.stderr
    assert "language: en\n" in done.stdout
    assert shown_tokens(done.stdout) == [greedy(model, features, prompt, tokenizer.token_to_id(SPECIAL[0]))]


@pytest.mark.parametrize("options", [("--language", "de"), ("--task", "translate")])
def test_a_model_of_english_alone_refuses_other_languages(english, tmp_path, run_example, options):
    write_wav(tmp_path / "speech.wav", 0.1)
    done = run_example("speech_recognition.py", english, "--audio", tmp_path / "speech.wav", *options)
    assert done.returncode == 1
    assert "this model knows English alone; leave out --language and --task" in done.stderr


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda path: path.write_bytes(b""), "speech.wav: 0 bytes, nothing and so on, are no WAV file; convert"),
        (lambda path: path.write_bytes(b"RIFF    WAVE"), "speech.wav: the WAV file is cut short"),
        (lambda path: None, "No such file"),
    ],
)
def test_other_files_are_refused_in_one_line(made, tmp_path, run_example, write, message):
    write(tmp_path / "speech.wav")
    done = run_example("speech_recognition.py", made[2], "--audio", tmp_path / "speech.wav")
    assert done.returncode == 1
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_an_unknown_language_is_refused(made, tmp_path, run_example):
    write_wav(tmp_path / "speech.wav", 0.1)
    done = run_example("speech_recognition.py", made[2], "--audio", tmp_path / "speech.wav", "--language", "xx")
    assert done.returncode == 1
    assert "the tokenizer lacks <|xx|>" in done.stderr


@pytest.mark.parametrize("left", [3, 4, 5, 7])
def test_a_file_that_is_cut_short_gives_its_whole_samples(tmp_path, left):
    path = tmp_path / "speech.wav"
    samples = write_wav(path, 0.01)
    path.write_bytes(path.read_bytes()[: 44 + left])
    assert np.array_equal(read_wav(path), samples[: left // 4].astype(np.float32))
