"""Adds to a package of Qwen3-Omni what speaks: talker, code predictor, projection of text and codec."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from ..common.checkpoint import Checkpoint
from ..common.language_tensors import VOICE
from ..common.package import EMBEDDING
from ..common.progress import Progress
from ..compiler.graph_files import write_graphs
from ..compiler.options import CompileOptions
from ..compiler.prepare import PreparedModel, prepare
from ..compiler.weight_files import write_embedding, write_weights
from ..compiler.weights import embedding_spec
from ..onnx import onnx_bytes
from .asked import warn_unused
from .codec_config import CodecConfig, read_code2wav
from .compile_tts import MORE_ROWS, PREDICTOR_PREFILL, PROJECTION
from .encoder_file import write_encoder
from .qwen3_omni import MODEL_TYPE, read_code_predictor, read_talker, read_text_projection, speaks
from .qwen3_tts import TextProjection
from .qwen3_tts_codec import whole_codec

_TALKER, _PREDICTOR, _CODEC = "talker", "talker_prediction", "code2wav"
NETWORKS = (_CODEC,)  # files that other packages do not have
_FRAMES = 256  # that the codec's graph takes
# Where embeddings are, and what the vendor calls a list of several.
_TABLES = {_TALKER: ("talker", ""), _PREDICTOR: ("codec", "codec_embeddings")}


@dataclass(frozen=True, slots=True, kw_only=True)
class Voice:
    """Models that are ready to be written; the codec is None where weights are drawn."""

    name: str
    options: CompileOptions
    models: Mapping[str, PreparedModel]
    projection: TextProjection
    codec: CodecConfig | None

    @property
    def elements(self) -> int:
        """Numbers to read, for a progress bar."""
        return sum(model.elements for model in self.models.values())


def prepare_voice(options: CompileOptions, target: PreparedModel) -> Voice | None:
    """Returns what makes speech of what the thinker `target` says; None of a checkpoint without it.

    Raises:
        CompileError: The checkpoint or its config does not fit.

    Warns:
        CompileWarning: Tensors without a place in the graphs.
    """
    raw = target.source.config
    if not speaks(raw):
        return None
    rows = read_code_predictor(raw).heads + 1 + MORE_ROWS
    models = {
        _TALKER: prepare(_part(options, f"{target.name}_{_TALKER}"), part=read_talker),
        _PREDICTOR: prepare(
            _part(options, f"{target.name}_{_PREDICTOR}", PREDICTOR_PREFILL, rows), part=read_code_predictor
        ),
    }
    projection = read_text_projection(raw, options.prefill_length)
    specs = projection.specs(target.profile)
    models[_TALKER].tensors.check(specs)
    codec = None
    if not options.random_weights:
        checkpoint = Checkpoint(target.source.path)
        codec = read_code2wav(raw, checkpoint)
        placed = {tensor for model in models.values() for spec in model.weights for tensor in spec.tensors}
        placed |= {tensor for model in models.values() for tensor in embedding_spec(model.config).tensors}
        placed |= {f"{codec.prefix}{name}" for name, _ in codec.shapes()}
        placed |= {tensor for spec in specs for tensor in spec.tensors}
        stored = models[_TALKER].source.tensors
        assert stored is not None
        warn_unused((name for name in stored.names() if name.startswith(VOICE)), placed)
    return Voice(name=target.name, options=options, models=models, projection=projection, codec=codec)


def write_voice(folder: Path, voice: Voice, workers: ThreadPoolExecutor, bar: Progress) -> None:
    """Writes graphs, weights and embeddings."""
    for part, model in voice.models.items():
        entries, sibling = write_weights(folder, model, workers, bar)
        write_graphs(folder, model, entries, sibling)
        table, dtype = embedding_spec(model.config), model.profile.tensor_dtype
        end, listed = _TABLES[part]
        path = EMBEDDING.with_name(f"{EMBEDDING.name}_{end}")
        write_embedding(folder / path, table, model.tensors, dtype, bar, listed=listed)
    talker = voice.models[_TALKER]
    profile, projection = talker.profile, voice.projection
    message = {"model_type": MODEL_TYPE, "quant": profile.quant}
    stem, specs = f"{voice.name}_{PROJECTION}", projection.specs(profile)
    write_encoder(folder, stem, voice.options, profile, projection, specs, message)
    if voice.codec is not None:
        network = whole_codec(voice.codec, _FRAMES)
        (folder / f"{voice.name}_{_CODEC}.hmm").write_bytes(onnx_bytes(network, profile.tensor_dtype))


def _part(options: CompileOptions, name: str, prefill: int | None = None, rows: int | None = None) -> CompileOptions:
    """Options of a language model that has no others: prefill and decode for one sequence."""
    return CompileOptions(
        checkpoint=options.checkpoint,
        output=options.output,
        name=name,
        prefill_length=prefill or options.prefill_length,
        context_length=rows or options.context_length,
        quant=options.quant,
        head_quant=options.head_quant,
        activations=options.activations,
        random_weights=options.random_weights,
        seed=options.seed,
        self_contained=options.self_contained,
    )
