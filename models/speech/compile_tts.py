"""Compiles Qwen3-TTS into a package folder: talker, code predictor and projection of text, under the vendor's names."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

from ..common.checkpoint import Checkpoint, config_of
from ..common.pack_stream import worker_pool
from ..common.package import EMBEDDING, files_in, staged_package, write_host_files
from ..common.progress import Progress
from ..compiler.graph_files import check_neighbours, owned_files, write_graphs
from ..compiler.options import COMMON_OPTIONS, CompileOptions, CompileResult
from ..compiler.prepare import prepare, warn
from ..compiler.weight_files import write_embedding, write_weights
from ..compiler.weights import embedding_spec
from ..onnx import onnx_bytes
from .asked import warn_unused
from .codec_config import MODEL_TYPE as CODEC_TYPE
from .codec_config import CodecConfig, read_codec
from .encoder_file import write_encoder
from .qwen3_tts import MODEL_TYPE, TITLE, read_code_predictor, read_talker, read_text_projection, text_table
from .qwen3_tts_codec import CHUNK, FRAMES, streamed_codec, whole_codec

_OPTIONS = COMMON_OPTIONS | {"prefill_length", "context_length"}
_GRAPHS = (
    f"the graphs of {TITLE} are those of the vendor: prefill and decode of a talker and of a code predictor, for one "
    "sequence"
)
_TALKER, _PREDICTOR, PROJECTION = "talker", "code_predictor", "text_projection"
_CODEC, _STREAMED = "speech_tokenizer", "stateful_decoder"
PREDICTOR_PREFILL = 2  # the talker's hidden state and the first code of a frame
MORE_ROWS = 2  # of the predictor's caches than codes of a frame, as in the vendor's
# Where embeddings are; the talker's has the usual name.
_TABLES = {_TALKER: EMBEDDING, _PREDICTOR: EMBEDDING.with_name(f"{EMBEDDING.name}_{_PREDICTOR}")}
_TEXT_TABLE = EMBEDDING.with_name("text_embedding")
_ELSEWHERE = ("speaker_encoder.",)  # networks of the checkpoint that its ONNX exports hold


def compile_qwen3_tts(options: CompileOptions, *, progress: bool = False) -> CompileResult:
    """Writes the package `options` describe: `NAME_talker_prefill.hmm` and so on, as the vendor's demo opens them.

    Args:
        options: What to compile. `prefill_length` and `context_length` are the talker's.
        progress: Show a bar on stderr where that is a terminal.

    Raises:
        CompileError: The checkpoint, its config or an option does not fit, or the output cannot be written.

    Warns:
        CompileWarning: No tokenizer, values beyond fp16, tensors without a place in the graphs.
    """
    options.refuse_others(_OPTIONS, _GRAPHS)
    options.check_lengths()
    name = options.name or MODEL_TYPE
    talker = prepare(replace(options, name=f"{name}_{_TALKER}"), part=read_talker)
    rows = read_code_predictor(talker.source.config).heads + 1 + MORE_ROWS
    small = replace(options, name=f"{name}_{_PREDICTOR}", prefill_length=PREDICTOR_PREFILL, context_length=rows)
    models = {_TALKER: talker, _PREDICTOR: prepare(small, part=read_code_predictor)}
    projection = read_text_projection(talker.source.config)
    text = text_table(talker.source.config)
    specs = projection.specs(talker.profile)
    talker.tensors.check([*specs, text])
    if not options.random_weights:
        placed = {tensor for model in models.values() for spec in model.weights for tensor in spec.tensors}
        placed |= {tensor for model in models.values() for tensor in embedding_spec(model.config).tensors}
        placed |= {tensor for spec in [*specs, text] for tensor in spec.tensors}
        warn_unused(Checkpoint(talker.source.path).names(), placed, _ELSEWHERE)

    codec = _codec_of(talker.source.path) if not options.random_weights else None
    check_neighbours(options.output, name)
    with staged_package(options.output, owned_files(name, (_CODEC, _STREAMED))) as staging:
        if not write_host_files(talker.source.host_files, staging):
            without = "has no tokenizer files; the package works, but programs will not find a tokenizer"
            warn(f"{talker.source.path} {without}")
        (staging / EMBEDDING).parent.mkdir(exist_ok=True)
        elements = sum(model.elements for model in models.values()) + math.prod(text.shape)
        with Progress(elements, visible=progress) as bar, worker_pool() as workers:
            for part, model in models.items():
                entries, sibling = write_weights(staging, model, workers, bar)
                write_graphs(staging, model, entries, sibling)
                table, dtype = embedding_spec(model.config), model.profile.tensor_dtype
                write_embedding(staging / _TABLES[part], table, model.tensors, dtype, bar)
            write_embedding(staging / _TEXT_TABLE, text, talker.tensors, talker.profile.tensor_dtype, bar)
        message = {"model_type": MODEL_TYPE, "quant": talker.profile.quant}
        write_encoder(staging, f"{name}_{PROJECTION}", options, talker.profile, projection, specs, message)
        if codec is not None:
            _write_codec(staging, name, talker.profile.tensor_dtype, codec)
        files = files_in(staging)
    return CompileResult(output=options.output, files=files)


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


def _write_codec(folder: Path, name: str, quant: str, codec: CodecConfig) -> None:
    """Its two graphs, in floats in every package, and what the vendor's host asks for the length of a sound."""
    for part, model in ((_CODEC, whole_codec(codec, FRAMES)), (_STREAMED, streamed_codec(codec, CHUNK))):
        (folder / f"{name}_{part}.hmm").write_bytes(onnx_bytes(model, quant))
    groups = codec["num_quantizers"]
    lengths = {f"1_{groups}_{count}": [1, 1, count * codec.samples] for count in range(1, FRAMES + 1)}
    (folder / EMBEDDING.with_name("decode_padding_shapes.json")).write_text(json.dumps(lengths, indent=2))
