"""Compiles MiniCPM-o into a package folder: all graphs that the vendor's demo opens, under their names."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

from ..checkpoints.checkpoint import Checkpoint
from ..common.package import EMBEDDING
from ..compiler.encoder import encoder_graph
from ..compiler.network import network
from ..compiler.options import CompileOptions
from ..compiler.parts import LanguageGraphs, Part
from ..compiler.prepare import PreparedModel, prepare, warn
from ..compiler.record import OwnGraphs
from ..compiler.tables import Table
from ..compiler.vision import prepare_tower
from ..compiler.weights import embedding_spec
from ..compiler.write import Contents
from ..sounds.minicpmo import read_omni_sound
from ..sounds.tensors import table_spec
from ..towers.minicpm import MINICPM_O_2_6
from ..weights.spec import LinearSpec
from ..weights.speech_roles import TEXT_TOKENS
from .minicpmo import HEADS, MODEL_TYPE, TITLE, read_language, read_speech, text_table
from .minicpmo_networks import features_of_codes, mel_of_features, spectrum_of_mel

_LANGUAGE, _SPEECH, _SOUND = "llm", "tts", "audio"
_CODES = ("dvae_part1", "dvae_part2")
_VOCODER, _VOCODER_FOLDER = "vocos", Path("assets/vocos")
# Tokens of text that the model of speech reads at a time, behind its first two, and rows of its caches.
_SPEECH_PREFILL, _SPEECH_ROWS = 12, 2048
_NETWORKS = ("tts.dvae.", "vpm.", "resampler.")
_FILES = (*(f"{part}_{stage}" for part in (_LANGUAGE, _SPEECH) for stage in ("prefill", "decode")), _SOUND, *_CODES)


def _contents(options: CompileOptions) -> Contents:
    """`NAME_llm_prefill.hmm` and so on; lengths are those of the language model."""
    options.check_lengths()
    name = options.name or MODEL_TYPE
    language = prepare(replace(options, name=f"{name}_{_LANGUAGE}"), part=read_language)
    small = replace(options, name=f"{name}_{_SPEECH}", prefill_length=_SPEECH_PREFILL, context_length=_SPEECH_ROWS)
    speech = prepare(small, part=read_speech)
    source, profile = language.source, language.profile
    sound = read_omni_sound(source.config, language.config.hidden_size)
    tables = dict(_speech_tables(speech, text_table(source.config)))
    speech.tensors.check(list(tables.values()))
    parts: list[Part] = [
        LanguageGraphs(language),
        LanguageGraphs(speech),
        *prepare_tower(options, name, source, language.config),
        Table.of(language, EMBEDDING, bare=True),
        *(Table.of(language, path, spec, bare=True) for path, spec in tables.items()),
        encoder_graph(
            f"{name}_{_SOUND}",
            options,
            profile,
            sound,
            sound.specs(profile),
            {"model_type": MODEL_TYPE, "quant": profile.quant},
        ),
    ]
    if source.tensors is not None:
        parts += _networks(name, source.path, profile.tensor_dtype)
    ends = (_LANGUAGE, _SPEECH, *_FILES, _VOCODER)
    return Contents(name=name, source=source, parts=parts, ends=ends, unread=_NETWORKS)


def _speech_tables(model: PreparedModel, text: tuple[str, tuple[int, int]]) -> Iterator[tuple[Path, LinearSpec]]:
    """Yields where the tables of the model of speech go, of text and of each code of a frame."""
    stem, codes = f"{EMBEDDING.name}_{_SPEECH}", embedding_spec(model.config)
    yield EMBEDDING.with_name(stem), table_spec(TEXT_TOKENS, *text)
    shape = codes.tensor_shapes[0]
    for number in range(HEADS):
        yield (
            EMBEDDING.with_name(f"{stem}_code_{number}"),
            table_spec(TEXT_TOKENS, codes.tensors[number], (shape[0], shape[1])),
        )


def _networks(name: str, checkpoint: Path, dtype: str) -> Iterator[Part]:
    """From codes to sound."""
    tensors = Checkpoint(checkpoint)
    for part, make in zip(_CODES, (features_of_codes, mel_of_features), strict=True):
        yield network(f"{name}_{part}", partial(make, tensors), dtype)
    if not (own := checkpoint / _VOCODER_FOLDER).is_dir():
        warn(
            f"{own} does not exist, so {name}_{_VOCODER}.hmm is left out; save the tensors of assets/Vocos.pt there as "
            "model.safetensors (docs/speech.md)"
        )
        return
    yield network(f"{name}_{_VOCODER}", partial(spectrum_of_mel, Checkpoint(own)), dtype)


MINICPM_O = OwnGraphs(
    model_type=MODEL_TYPE,
    title=TITLE,
    models="MiniCPM-o 2.6",
    has=(
        "[graphs of its own](speech.md#minicpm-o): a language model as Qwen2, an encoder of sounds, a model of speech, "
        "its codes and a vocoder"
    ),
    images=MINICPM_O_2_6.images,
    options=frozenset({"prefill_length", "context_length", "vision", "vision_quant"}),
    graphs=f"the graphs of {TITLE} are those of the vendor, for one sequence",
    contents=_contents,
)
