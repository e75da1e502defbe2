"""Compiles Qwen3-TTS into a package folder: language models, projection of text and codec, under the vendor's names."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

from ..checkpoints.checkpoint import Checkpoint, config_of
from ..common.package import EMBEDDING
from ..compiler.encoder import encoder_graph
from ..compiler.network import network
from ..compiler.options import CompileOptions
from ..compiler.parts import Beside, LanguageGraphs, Part
from ..compiler.prepare import PreparedModel, prepare, warn
from ..compiler.record import OwnGraphs
from ..compiler.tables import Table
from ..compiler.write import Contents
from .codec_config import MODEL_TYPE as CODEC_TYPE
from .codec_config import CodecConfig, read_codec
from .codec_encoder import FRAMES as HEARD
from .codec_encoder import EncoderConfig, read_sound_encoder, sound_encoder
from .qwen3_tts import MODEL_TYPE, TITLE, read_code_predictor, read_talker, read_text_projection, text_table
from .qwen3_tts_codec import CHUNK, FRAMES, streamed_codec, whole_codec
from .speaker_encoder import FRAMES as MEL_FRAMES
from .speaker_encoder import PREFIX as SPEAKER_PREFIX
from .speaker_encoder import read_speaker_encoder, speaker_encoder

_TALKER, _PREDICTOR, PROJECTION = "talker", "code_predictor", "text_projection"
_CODEC, _STREAMED = "speech_tokenizer", "stateful_decoder"
_SOUNDS, _SPEAKER = "speech_tokenizer_encoder", "speaker_encoder"  # that Base hears a voice with
_ENDS = (_TALKER, _PREDICTOR, PROJECTION, _CODEC, _STREAMED, _SOUNDS, _SPEAKER)  # of files that others do not have
PREDICTOR_PREFILL = 2  # the talker's hidden state and the first code of a frame
MORE_ROWS = 2  # of the predictor's caches than codes of a frame, as in the vendor's
# Where embeddings are; the talker's has the usual name.
_TABLES = {_TALKER: EMBEDDING, _PREDICTOR: EMBEDDING.with_name(f"{EMBEDDING.name}_{_PREDICTOR}")}
_TEXT_TABLE = EMBEDDING.with_name("text_embedding")


def _contents(options: CompileOptions) -> Contents:
    """`NAME_talker_prefill.hmm` and so on, as the vendor's demo opens them; lengths are the talker's."""
    options.check_lengths()
    name = options.name or MODEL_TYPE
    talker = prepare(replace(options, name=f"{name}_{_TALKER}"), part=read_talker)
    rows = read_code_predictor(talker.source.config).heads + 1 + MORE_ROWS
    small = replace(options, name=f"{name}_{_PREDICTOR}", prefill_length=PREDICTOR_PREFILL, context_length=rows)
    models = {_TALKER: talker, _PREDICTOR: prepare(small, part=read_code_predictor)}
    projection = read_text_projection(talker.source.config)
    text = text_table(talker.source.config)
    talker.tensors.check([text])
    message = {"model_type": MODEL_TYPE, "quant": talker.profile.quant}
    specs = projection.specs(talker.profile)
    parts: list[Part] = []
    for part, model in models.items():
        parts += [LanguageGraphs(model), Table.of(model, _TABLES[part])]
    parts += [
        Table.of(talker, _TEXT_TABLE, text),
        encoder_graph(f"{name}_{PROJECTION}", options, talker.profile, projection, specs, message),
    ]
    if not options.random_weights:
        parts += _networks(name, talker)
    return Contents(name=name, source=talker.source, parts=parts, ends=_ENDS)


def _networks(name: str, talker: PreparedModel) -> Iterator[Part]:
    """The codec, and what a Base model hears a voice with; others have their speakers among the codes."""
    raw, folder, dtype = talker.source.config, talker.source.path, talker.profile.tensor_dtype
    voice = None
    if raw.get("tts_model_type") == "base":
        voice = read_speaker_encoder(raw, Checkpoint(folder), talker.config.hidden_size)
    if (codec := _codec_of(folder)) is not None:
        yield from _codec_parts(name, dtype, codec)
        if voice is not None:
            heard = _sound_encoder_of(folder)
            yield network(f"{name}_{_SOUNDS}", partial(sound_encoder, heard, HEARD), dtype)
    if voice is not None:
        names = (f"{SPEAKER_PREFIX}{tensor}" for tensor, _ in voice.shapes())
        yield network(f"{name}_{_SPEAKER}", partial(speaker_encoder, voice, MEL_FRAMES), dtype, names)


def _sound_encoder_of(folder: Path) -> EncoderConfig:
    own = folder / _CODEC
    return read_sound_encoder(config_of(own), Checkpoint(own))


def _codec_of(folder: Path) -> CodecConfig | None:
    """The codec, where the checkpoint has it beside its language models."""
    own = folder / _CODEC
    if not (own / "config.json").is_file():
        return None
    raw = config_of(own)
    if (kind := raw.get("model_type")) != CODEC_TYPE:
        warn(f"{own} is of model_type={kind!r:.80}, expected {CODEC_TYPE!r}; its graphs are left out")
        return None
    return read_codec(raw, Checkpoint(own))


def _codec_parts(name: str, dtype: str, codec: CodecConfig) -> Iterator[Part]:
    """Its two graphs, and what the vendor's host asks for the length of a sound."""
    yield network(f"{name}_{_CODEC}", partial(whole_codec, codec, FRAMES), dtype)
    yield network(f"{name}_{_STREAMED}", partial(streamed_codec, codec, CHUNK), dtype)
    groups = codec["num_quantizers"]
    lengths = {f"1_{groups}_{count}": [1, 1, count * codec.samples] for count in range(1, FRAMES + 1)}
    yield Beside(EMBEDDING.with_name("decode_padding_shapes.json"), json.dumps(lengths, indent=2).encode)


QWEN3_TTS = OwnGraphs(
    model_type=MODEL_TYPE,
    title=TITLE,
    models="Qwen3-TTS 12Hz 0.6B, 1.7B",
    has=(
        "[graphs of its own](speech.md#qwen3-tts): a talker, a predictor of codes, a projection of text, a codec; of "
        "Base also two encoders that hear a voice"
    ),
    options=frozenset({"prefill_length", "context_length"}),
    graphs=(
        f"the graphs of {TITLE} are those of the vendor: prefill and decode of a talker and of a code predictor, for "
        "one sequence"
    ),
    contents=_contents,
)
