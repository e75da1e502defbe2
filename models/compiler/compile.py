"""Compiles a checkpoint into a package folder. docs/compile.md describes options and layouts.

A package `OUT` named `qwen3` holds::

    qwen3_prefill.hmm  qwen3_decode.hmm  qwen3.hmw    graphs, and the weights they share
    qwen3_verify.hmm                                  with --verify-length
    qwen3_prefill_mtp.hmm  qwen3_decode_mtp.hmm       with --mtp; decode then verifies several tokens
    qwen3_prefill_part0.hmm  qwen3_decode_part0.hmm   and so on with --pipeline
    qwen3_prefill.hmms  qwen3_decode.hmms             with --ndevice
    qwen3_prefill_draft.hmm  qwen3_decode_draft.hmm  qwen3_draft.hmw    with --draft
    qwen3_visual.hmm  qwen3_visual_m96.hmm  qwen3_visual.hmw            with --vision, named by the kind of tower
    hmquant/quant_embedding.bin, .pt                  the embedding, [V, H], row-major
    draft/hmquant/quant_embedding.bin, .pt            and target/, with --draft: where the vendor's demo looks
    hmquant/per_layer_input_embedding.pt              of Gemma 4 E, what layers take of each token, [V, layers * size]
    tokenizer/                                        tokenizer files and configs of the checkpoint
    config.json, tokenizer.json, ...                  the same, where other tools look

The embedding is fp16, in a `float32` package fp32. `custom_msg` of each graph is a JSON object that says which
(`embedding_dtype`), beside the keys the vendor's builds carry.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from ..common.errors import CompileError
from ..common.pack_stream import worker_pool
from ..common.package import (
    EMBEDDING,
    EMBEDDING_SUFFIXES,
    LAYER_TABLE,
    ROLE_EMBEDDINGS,
    files_in,
    link_or_copy,
    staged_package,
    write_host_files,
)
from ..common.progress import Progress
from ..families import titles_of
from .graph_files import check_neighbours, owned_files, write_graphs
from .options import CompileOptions, CompileResult
from .prepare import PreparedModel, prepare, warn
from .vision import prepare_tower, write_tower
from .weight_files import write_embedding, write_layer_table, write_weights
from .weights import embedding_spec

__all__ = ["CompileOptions", "CompileResult", "compile_checkpoint"]


def compile_checkpoint(options: CompileOptions, *, progress: bool = False) -> CompileResult:
    """Writes the package `options` describe. Memory holds a few tensor chunks, never the model.

    Args:
        options: What to compile.
        progress: Show a bar on stderr where that is a terminal.

    Raises:
        CompileError: The checkpoint or its config does not fit, or the output cannot be written. `options.output` is
            then as it was.

    Warns:
        CompileWarning: No tokenizer, values beyond fp16, a context beyond what the model was made for, a head that
            should be tied and is not, tensors without a place in the graph.
    """
    from ..speech import (
        FRAMED,
        NETWORKS,
        SOUND_ENCODERS,
        compiler_of,
        prepare_voice,
        write_sound_encoder,
        write_voice,
    )  # they use parts of this package

    if (own := compiler_of(options.checkpoint)) is not None:
        return own(options, progress=progress)
    options.check_lengths()
    target = prepare(options)
    draft = None
    if options.has_draft:
        draft = prepare(options.of_draft(target.name), options.draft_layers, "_draft")
        _check_vocabularies(target, draft)
    models = [model for model in (target, draft) if model is not None]
    tower = prepare_tower(options, target.name, target.source, target.config)
    voice = None if target.config.hidden_after is None else prepare_voice(options, target)
    has_sound = target.config.family.model_type in SOUND_ENCODERS
    if options.audio_frames is not None and target.config.family.model_type not in FRAMED:
        raise CompileError(
            f"--audio-frames is for {titles_of(lambda family: family.model_type in FRAMED)}, whose packages have an "
            "encoder of sounds of so many frames; leave it out"
        )

    check_neighbours(options.output, target.name)
    with staged_package(options.output, owned_files(target.name, () if voice is None else NETWORKS)) as staging:
        if not write_host_files(target.source.host_files, staging):
            warn(
                f"{target.source.path} has no tokenizer files; the package works, but chat programs will not find a "
                "tokenizer"
            )
        if has_sound:
            write_sound_encoder(staging, target.name, options, target.source.config, target.config, target.profile)
        (staging / EMBEDDING).parent.mkdir(exist_ok=True)
        elements = sum(part.elements for part in (*models, tower, voice) if part is not None)
        with Progress(elements, visible=progress) as bar, worker_pool() as workers:
            for model in models:
                entries, sibling = write_weights(staging, model, workers, bar)
                write_graphs(staging, model, entries, sibling)
            if tower is not None:
                write_tower(staging, tower, workers, bar)
            if voice is not None:
                write_voice(staging, voice, workers, bar)
            _write_embedding(staging / EMBEDDING, target, bar)
            if target.config.layer_inputs:
                write_layer_table(staging / LAYER_TABLE, target, bar)
            if draft is not None:
                source = EMBEDDING
                if draft.table_source != target.table_source:
                    source = ROLE_EMBEDDINGS["draft"][0]
                    _write_embedding(staging / source, draft, bar)
                _name_again(staging, source, ROLE_EMBEDDINGS["draft"])
                _name_again(staging, EMBEDDING, ROLE_EMBEDDINGS["target"])
        files = files_in(staging)
    return CompileResult(output=options.output, files=files)


def _check_vocabularies(target: PreparedModel, draft: PreparedModel) -> None:
    ours, theirs = target.config.vocab_size, draft.config.vocab_size
    if ours != theirs:
        raise CompileError(
            f"the draft {draft.source.path} has vocab_size={theirs}, the target {target.source.path} {ours}; a pair "
            "must use one tokenizer"
        )


def _write_embedding(path: Path, model: PreparedModel, bar: Progress) -> None:
    spec, scale = embedding_spec(model.config), model.config.embedding_scale
    write_embedding(path, spec, model.tensors, model.profile.tensor_dtype, bar, scale)


def _name_again(folder: Path, source: Path, others: Iterable[Path]) -> None:
    """Gives embedding files second names, at no cost where the file system can."""
    for suffix in EMBEDDING_SUFFIXES:
        path = folder / source.with_suffix(suffix)
        for other in others:
            if not path.exists() or other == source:
                continue
            named = folder / other.with_suffix(suffix)
            named.parent.mkdir(parents=True, exist_ok=True)
            link_or_copy(path, named)
