"""The speech example on tiny language models that hear: their text is what transformers makes of the same sound."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from imported import imported
from llm_packages import DEMO_CHECKPOINT
from wav_files import write_wav

pytestmark = [pytest.mark.oracle, pytest.mark.slow]

torch = pytest.importorskip("torch", reason="the oracle")
transformers = pytest.importorskip("transformers", reason="the oracle")
tokenizers = pytest.importorskip("tokenizers", reason="needs the extra [chat]")
pytest.importorskip("transformers.models.glmasr", reason="the oracle has no GLM-ASR")
pytest.importorskip("transformers.models.qwen3_asr", reason="the oracle has no Qwen3-ASR")

from tcim_lite.cli import main
from tcim_lite.llm.sounds import log_mel

sys.path.insert(0, str(Path(__file__).parent.parent / "llm"))
import test_glm_asr
import test_qwen3_asr
from oracle import random_weights

EXAMPLES = Path(__file__).parents[2] / "examples"
LIMIT, FRAMES = 9, 400
SPECIAL = {
    "qwen3_asr": ["<|im_start|>", "<|im_end|>", "<|audio_start|>", "<|audio_end|>", "<|audio_pad|>"],
    "glmasr": ["<|user|>", "<|assistant|>", "<|begin_of_audio|>", "<|end_of_audio|>", "<|pad|>"],
}


def model_of(kind: str, vocabulary: int, sound: int):
    text = {"vocab_size": vocabulary, "tie_word_embeddings": False}
    if kind == "glmasr":
        config = transformers.GlmAsrConfig(
            audio_config={"model_type": "glmasr_encoder", **test_glm_asr.AUDIO},
            text_config=test_glm_asr.TEXT | text,
            audio_token_id=sound,
            tie_word_embeddings=False,
            attn_implementation="eager",
        )
        return transformers.GlmAsrForConditionalGeneration(config).eval()
    config = transformers.Qwen3ASRConfig(
        audio_config={"model_type": "qwen3_asr_encoder", **test_qwen3_asr.AUDIO},
        text_config=test_qwen3_asr.TEXT | text,
        audio_token_id=sound,
        tie_word_embeddings=False,
        attn_implementation="eager",
    )
    return transformers.Qwen3ASRForConditionalGeneration(config).eval()


@pytest.fixture(scope="module", params=SPECIAL)
def made(request, tmp_path_factory):
    """A model of transformers, its tokenizer and its package in float32."""
    folder = tmp_path_factory.mktemp(request.param)
    tokenizer = tokenizers.Tokenizer.from_file(str(DEMO_CHECKPOINT / "tokenizer.json"))
    tokenizer.add_special_tokens(SPECIAL[request.param])
    torch.manual_seed(6)
    model = model_of(request.param, tokenizer.get_vocab_size(), tokenizer.token_to_id(SPECIAL[request.param][-1]))
    random_weights(model)
    model.save_pretrained(folder / "hf")
    tokenizer.save(str(folder / "hf/tokenizer.json"))
    (folder / "hf/tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast"}))
    options = ("--quant", "float32", "--audio-frames", str(FRAMES), "--prefill-length", "32", "--context-length", "256")
    assert main(["compile", str(folder / "hf"), "-o", str(folder / "out"), "-q", *options]) == 0
    return request.param, model, tokenizer, folder / "out"


def greedy(kind: str, model, tokenizer, samples: np.ndarray) -> list[int]:
    """By transformers, with its own count of the sound's rows."""
    prompted = imported(EXAMPLES / "prompted_speech.py")
    bins = model.config.audio_config.num_mel_bins
    features = torch.tensor(log_mel(samples, bins, FRAMES))
    mask = (torch.arange(FRAMES) < len(samples) // 160)[None].long()
    prompt = prompted.prompt_for(tokenizer.get_vocab())
    before, after = (tokenizer.encode(text, add_special_tokens=False).ids for text in (prompt.before, prompt.after))
    with torch.no_grad():
        sound = features * mask[:, None] if kind == "qwen3_asr" else features
        rows = model.model.get_audio_features(sound, mask, return_dict=True).pooler_output
        table, tokens = model.get_input_embeddings().weight, []
        prefix = torch.cat([table[before], rows, table[after]])
        while len(tokens) < LIMIT:
            tokens.append(int(model(inputs_embeds=torch.cat([prefix, table[tokens]])[None]).logits[0, -1].argmax()))
    return tokens


@pytest.mark.parametrize("seconds", [3.4, 4.0, 5.5])
def test_text_is_that_of_transformers(made, tmp_path, run_example, shown_tokens, seconds):
    kind, model, tokenizer, package = made
    samples = write_wav(tmp_path / "speech.wav", seconds).astype(np.float32)
    parts = [samples[start : start + FRAMES * 160] for start in range(0, len(samples), FRAMES * 160)]
    arguments = ("--audio", tmp_path / "speech.wav", "--max-tokens", LIMIT, "--show-tokens")
    done = run_example("speech_recognition.py", package, *arguments)
    assert done.returncode == 0, done.stderr
    assert shown_tokens(done.stdout) == [greedy(kind, model, tokenizer, part) for part in parts]


def test_options_of_whisper_and_short_sounds_are_refused(made, tmp_path, run_example):
    write_wav(tmp_path / "speech.wav", 0.05)
    for options, message in ((("--language", "en"), "leave out --language and --task"), ((), "are too few")):
        done = run_example("speech_recognition.py", made[3], "--audio", tmp_path / "speech.wav", *options)
        assert done.returncode == 1
        assert message in done.stderr
