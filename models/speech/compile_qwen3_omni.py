"""Adds to a package of Qwen3-Omni what speaks: talker, code predictor, projection of text and codec."""

from __future__ import annotations

from functools import partial

from ..checkpoints.checkpoint import Checkpoint
from ..checkpoints.language_tensors import VOICE
from ..common.package import EMBEDDING
from ..compiler.encoder import encoder_graph
from ..compiler.network import network
from ..compiler.options import CompileOptions
from ..compiler.parts import LanguageGraphs, Part, names_in
from ..compiler.prepare import PreparedModel, prepare, warn_unused
from ..compiler.tables import Table
from .codec_config import read_code2wav
from .compile_qwen3_tts import MORE_ROWS, PREDICTOR_PREFILL, PROJECTION
from .qwen3_omni import MODEL_TYPE, read_code_predictor, read_talker, read_text_projection
from .qwen3_tts_codec import whole_codec

_TALKER, _PREDICTOR, _CODEC = "talker", "talker_prediction", "code2wav"
NETWORKS = (_TALKER, _PREDICTOR, PROJECTION, _CODEC)  # files that other packages do not have
_FRAMES = 256  # that the codec's graph takes
# Where embeddings are, and what the vendor calls a list of several.
_TABLES = {_TALKER: ("talker", ""), _PREDICTOR: ("codec", "codec_embeddings")}


def prepare_voice(options: CompileOptions, target: PreparedModel) -> list[Part]:
    """Returns what makes speech of what the thinker `target` says; nothing of a checkpoint without it.

    Raises:
        CompileError: The checkpoint or its config does not fit.

    Warns:
        CompileWarning: Tensors without a place in the graphs.
    """
    raw = target.source.config
    if target.config.hidden_after is None:
        return []
    rows = read_code_predictor(raw).heads + 1 + MORE_ROWS
    name = f"{target.name}_{_PREDICTOR}"
    predictor = options.of_part(name=name, prefill_length=PREDICTOR_PREFILL, context_length=rows)
    models = {
        _TALKER: prepare(options.of_part(name=f"{target.name}_{_TALKER}"), part=read_talker),
        _PREDICTOR: prepare(predictor, part=read_code_predictor),
    }
    projection = read_text_projection(raw, options.prefill_length)
    specs = projection.specs(target.profile)
    parts: list[Part] = []
    for part, model in models.items():
        end, listed = _TABLES[part]
        path = EMBEDDING.with_name(f"{EMBEDDING.name}_{end}")
        parts += [LanguageGraphs(model), Table.of(model, path, listed=listed)]
    profile = models[_TALKER].profile
    message = {"model_type": MODEL_TYPE, "quant": profile.quant}
    parts.append(encoder_graph(f"{target.name}_{PROJECTION}", options, profile, projection, specs, message))
    if not options.random_weights:
        codec = read_code2wav(raw, Checkpoint(target.source.path))
        names = (f"{codec.prefix}{name}" for name, _ in codec.shapes())
        make = partial(whole_codec, codec, _FRAMES)
        parts.append(network(f"{target.name}_{_CODEC}", make, profile.tensor_dtype, names))
        stored = models[_TALKER].source.tensors
        assert stored is not None
        warn_unused((name for name in stored.names() if name.startswith(VOICE)), names_in(parts))
    return parts
