"""Tiny models of transformers that hear, as packages in float32, and what transformers says of their prompts."""

from __future__ import annotations

import io
import shutil
import wave
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from llm_packages import DEMO_CHECKPOINT, compile_package
from oracle import logit_bound, random_weights

torch = pytest.importorskip("torch", reason="the oracle")
transformers = pytest.importorskip("transformers", reason="the oracle")
tokenizers = pytest.importorskip("tokenizers", reason="needs the extra [chat]")
pytest.importorskip("transformers.models.glmasr", reason="the oracle has no GLM-ASR")
pytest.importorskip("transformers.models.qwen3_asr", reason="the oracle has no Qwen3-ASR")

import minicpmo_checkpoint
import test_gemma_audio
import test_glm_asr
import test_qwen3_asr
from qwen3_omni_checkpoint import random_omni

FRAMES, RATE = 400, 16000
# As real templates: text, or parts of which sounds are written as placeholders.
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n"
    "{% if message.content is string %}{{ message.content }}{% else %}{% for part in message.content %}"
    "{% if part.type == 'audio' %}MARK{% else %}{{ part.text }}{% endif %}{% endfor %}{% endif %}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
SPECIAL = {
    "qwen3_asr": ["<|audio_start|>", "<|audio_pad|>", "<|audio_end|>"],
    "glmasr": ["<|begin_of_audio|>", "<|pad|>", "<|end_of_audio|>"],
    "qwen3_omni_moe": ["<|audio_start|>", "<|audio_pad|>", "<|audio_end|>"],
    "minicpmo": ["<|audio_start|>", "<unk>", "<|audio_end|>"],
    "gemma4": ["<|audio>", "<|audio|>", "<audio|>"],
}


def wav(seconds: float, seed: int, rate: int = RATE) -> bytes:
    """A file of noise in 16 bits."""
    made = io.BytesIO()
    samples = np.random.default_rng(seed).integers(-9000, 9000, round(seconds * rate)).astype("<i2")
    with wave.open(made, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(samples.tobytes())
    return made.getvalue()


class HearingModel:
    """A language model that hears.

    Attributes:
        package: In float32.
        model: Of transformers.
        mark: What stands for a token of a sound.
        special: What stands before, for and behind a sound.
    """

    def __init__(self, family: str, folder: Path, **options: Any):
        self.family, self.special, self.mark = family, SPECIAL[family], SPECIAL[family][1]
        self.tokenizer = tokenizers.Tokenizer.from_file(str(DEMO_CHECKPOINT / "tokenizer.json"))
        self.tokenizer.add_special_tokens(SPECIAL[family])
        torch.manual_seed(6)
        self.model = self._make()
        own = {"qwen3_omni_moe": "thinker", "minicpmo": "language"}.get(family)  # the part of a larger model
        if own is None:
            random_weights(self.model.model.language_model if family == "gemma4" else self.model)
        self.language, hf = self.model if own is None else getattr(self.model, own), folder / "hf"
        getattr(self.model, "save" if family == "minicpmo" else "save_pretrained")(hf)
        self.tokenizer.save(str(hf / "tokenizer.json"))
        shutil.copyfile(DEMO_CHECKPOINT / "tokenizer_config.json", hf / "tokenizer_config.json")
        written = self.mark if family == "gemma4" else "".join(SPECIAL[family])
        (hf / "chat_template.jinja").write_text(TEMPLATE.replace("MARK", written))
        sizes = {"prefill_length": 16, "context_length": 256, **options}
        if own is None:  # the encoder of Qwen3-Omni takes a chunk at a time, that of MiniCPM-o what its config says
            sizes["audio_frames"] = FRAMES
        self.package = compile_package(hf, folder / "out", quant="float32", **sizes)

    def id(self, text: str) -> int:
        return self.tokenizer.token_to_id(text)

    def placeholders(self, rows: int) -> str:
        """What stands for a sound of so many rows in a prompt."""
        begin, mark, end = self.special
        if self.family == "minicpmo":  # a line of its own, with marks around each second
            return "".join(f"{begin}{mark * min(25, rows - at)}{end}" for at in range(0, rows, 25)) + "\n"
        return f"{begin}{mark * rows}{end}"

    def _make(self) -> Any:
        if self.family == "minicpmo":
            return minicpmo_checkpoint.Oracle(self.tokenizer.get_vocab_size(), FRAMES // 2)
        if self.family == "qwen3_omni_moe":
            model = random_omni(enable_audio_output=False)
            model.thinker.resize_token_embeddings(self.tokenizer.get_vocab_size(), mean_resizing=False)
            model.config.thinker_config.audio_token_id = self.id(self.mark)
            return model
        text = {"vocab_size": self.tokenizer.get_vocab_size(), "tie_word_embeddings": False}
        if self.family == "gemma4":
            names = ("boa_token_id", "audio_token_id", "eoa_token_index")
            layers = {"hidden_size_per_layer_input": 32, "vocab_size_per_layer_input": text["vocab_size"]}
            tokens = {
                "image_token_id": 7,
                "video_token_id": 8,
                **dict(zip(names, map(self.id, self.special), strict=True)),
            }
            return test_gemma_audio.random_model(test_gemma_audio.TEXT | text | layers, tokens)
        tests, kind, config, model = {
            "glmasr": (
                test_glm_asr,
                "glmasr_encoder",
                transformers.GlmAsrConfig,
                transformers.GlmAsrForConditionalGeneration,
            ),
            "qwen3_asr": (
                test_qwen3_asr,
                "qwen3_asr_encoder",
                transformers.Qwen3ASRConfig,
                transformers.Qwen3ASRForConditionalGeneration,
            ),
        }[self.family]
        made = config(
            audio_config={"model_type": kind, **tests.AUDIO},
            text_config=tests.TEXT | text,
            audio_token_id=self.id(self.mark),
            tie_word_embeddings=False,
            attn_implementation="eager",
        )
        return model(made).float().eval()

    def rows(self, samples: np.ndarray) -> Any:
        """Of a sound, by the model's encoder; transformers computes the features, too."""
        if self.family == "gemma4":
            found = transformers.Gemma4AudioFeatureExtractor()([samples], return_tensors="pt")
            with torch.no_grad():
                seen = self.model.model.get_audio_features(found.input_features, found.input_features_mask)
            return seen.pooler_output[seen.attention_mask]
        if self.family == "qwen3_omni_moe":
            extractor = transformers.WhisperFeatureExtractor(feature_size=20)
            whole = {"padding": True, "truncation": False, "return_attention_mask": True, "return_tensors": "pt"}
            found = extractor([samples], sampling_rate=RATE, **whole)
            with torch.no_grad():
                heard = self.model.thinker.get_audio_features(found.input_features, found.attention_mask)
            return heard.last_hidden_state
        if self.family == "minicpmo":  # whose features and rows end with the sound
            extractor = transformers.WhisperFeatureExtractor(feature_size=20, chunk_length=FRAMES // 100)
            features = extractor(samples, sampling_rate=RATE, return_tensors="pt").input_features
            row = torch.arange(-(-len(samples) // 320))
            hidden = row[None, :] // 50 > row[:, None] // 50  # of later seconds
            with torch.no_grad():
                return self.model.hear(features[:, :, : 2 * len(row)], torch.where(hidden, -torch.inf, 0.0)[None, None])
        bins = self.model.config.audio_config.num_mel_bins
        extractor = transformers.WhisperFeatureExtractor(feature_size=bins, chunk_length=FRAMES // 100)
        features = torch.tensor(extractor(samples, sampling_rate=RATE, return_tensors="np").input_features)
        mask = (torch.arange(FRAMES) < len(samples) // 160)[None].long()
        if self.family == "qwen3_asr":
            features = features * mask[:, None]
        with torch.no_grad():
            return self.model.model.get_audio_features(features, mask, return_dict=True).pooler_output

    def logprobs(self, tokens: Sequence[int], sounds: Sequence[np.ndarray]) -> tuple[np.ndarray, float]:
        """By transformers, [N, V], and how far off ours may be."""
        ids, model = torch.tensor(list(tokens)), self.language
        with torch.no_grad():
            rows = model.get_input_embeddings()(ids)
            rows[ids == self.id(self.mark)] = torch.cat([self.rows(samples) for samples in sounds])
            inner = {}
            if self.family == "gemma4":  # whose layers have inputs of their own, of a token of padding for sounds
                padded = torch.where(ids == self.id(self.mark), self.model.config.text_config.pad_token_id, ids)
                inner["per_layer_inputs"] = self.model.model.language_model.get_per_layer_inputs(padded[None], None)
            logits = model(inputs_embeds=rows[None], **inner).logits[0]
        # Twice: the logarithm of a sum is off by as much as a logit. And as much again for the sums of the encoder.
        bound = 4 * logit_bound(model.config.get_text_config()) * float(logits.abs().max())
        return torch.log_softmax(logits, -1).numpy(), bound


def samples_of(file: bytes) -> np.ndarray:
    """Of a file of `wav`, by the standard library."""
    with wave.open(io.BytesIO(file)) as opened:
        return np.frombuffer(opened.readframes(opened.getnframes()), "<i2").astype(np.float32) / 2**15
