"""Compiles a Qwen3 checkpoint into a package folder.

A package `OUT` named `qwen3` holds::

    qwen3_prefill.hmm  qwen3_decode.hmm  qwen3.hmw    graphs, and the weights they share
    qwen3_verify.hmm                                  with --verify-length
    qwen3_prefill_part0.hmm  qwen3_decode_part0.hmm   and so on with --pipeline
    hmquant/quant_embedding.bin, .pt                  the embedding, [V, H], row-major
    tokenizer/                                        tokenizer files and config.json of the checkpoint

The embedding is fp16, in a `float32` package fp32. `custom_msg` of each graph is a JSON object that says which
(`embedding_dtype`), beside the keys the vendor's builds carry. docs/compile.md describes options and layouts.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tcim_lite.hmm import Sibling, WeightEntry, WeightsWriter

from ..common.checkpoint import Checkpoint, config_of
from ..common.embedding import pt_hint, write_embedding_bin, write_embedding_pt
from ..common.errors import CompileWarning
from ..common.pack_stream import row_chunks, worker_pool
from ..common.package import EMBEDDING_BIN, EMBEDDING_PT, TOKENIZER_DIR, copy_tokenizer, staged_package
from ..common.packing import BLOCK
from ..common.profiles import Profile, profile_for
from ..common.progress import Progress
from ..common.rope import rope_table
from ..common.weight_spec import CheckpointTensors, LinearSpec, RandomTensors, TensorSource, VectorSpec
from .config import Qwen3Config
from .graph_files import graph_specs, owned_files, write_graphs
from .options import CompileOptions, CompileResult
from .weights import EMBEDDING, ROPE_COS, ROPE_SIN, weight_specs


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
    folder = options.checkpoint
    if options.random_weights and folder.name == "config.json":
        folder = folder.parent
    config = Qwen3Config.from_json(config_of(folder))
    config.check_context(options.context_length)
    if options.context_length > config.max_position_embeddings:
        _warn(
            f"--context-length {options.context_length} is beyond the checkpoint's "
            f"max_position_embeddings={config.max_position_embeddings}"
        )
    profile = profile_for(options.quant, options.head_quant)
    graphs = graph_specs(options, config)
    checkpoint = None if options.random_weights else Checkpoint(folder)
    if checkpoint is not None and config.tie_word_embeddings and not _head_is_the_embedding(checkpoint):
        _warn(
            "config.json says tie_word_embeddings, but the checkpoint's lm_head.weight differs from its embedding; "
            "taking lm_head.weight, as transformers does"
        )
        config = replace(config, tie_word_embeddings=False)
    specs = weight_specs(config, profile)
    table = LinearSpec(
        name="embedding",
        format="linear_f16",
        shape=(config.vocab_size, config.hidden_size),
        tensors=(EMBEDDING,),
        tensor_shapes=((config.vocab_size, config.hidden_size),),
    )
    tensors: TensorSource = RandomTensors(options.seed) if checkpoint is None else CheckpointTensors(checkpoint)
    # Everything that can be refused is refused before the long work.
    tensors.check([*specs, table])
    if checkpoint is not None and (unused := _unused_tensors(checkpoint, [*specs, table])):
        _warn(
            f"the checkpoint holds {len(unused)} tensors that config.json does not ask for, such as {unused[0]!r}; "
            "they are left out"
        )

    notes = []
    total = sum(math.prod(spec.shape) for spec in (*specs, table) if isinstance(spec, LinearSpec))
    with staged_package(options.output, owned_files(options.name)) as staging:
        if not copy_tokenizer(folder, staging / TOKENIZER_DIR):
            _warn(f"{folder} has no tokenizer files; the package works, but chat programs will not find a tokenizer")
        (staging / EMBEDDING_BIN).parent.mkdir()
        with Progress(total, visible=progress) as bar:
            with worker_pool() as workers:
                entries, sibling = _write_weights(staging, options, config, profile, specs, tensors, workers, bar)
            embedding = tensors.matrix(EMBEDDING, table.shape)
            saturated = write_embedding_bin(staging / EMBEDDING_BIN, embedding, profile.tensor_dtype, bar.advance)
        if saturated:
            _warn_saturated(saturated, "of the embedding")
        write_graphs(staging, options, config, profile, graphs, entries, sibling)
        if not write_embedding_pt(staging / EMBEDDING_PT, staging / EMBEDDING_BIN, table.shape, profile.tensor_dtype):
            notes.append(pt_hint(options.output))
        files = tuple(sorted(path.relative_to(staging) for path in staging.rglob("*") if path.is_file()))
    return CompileResult(output=options.output, files=files, notes=tuple(notes))


def _write_weights(
    staging: Path,
    options: CompileOptions,
    config: Qwen3Config,
    profile: Profile,
    specs: Sequence[LinearSpec | VectorSpec],
    tensors: TensorSource,
    workers: ThreadPoolExecutor,
    bar: Progress,
) -> tuple[list[WeightEntry], Sibling]:
    file = f"{options.name}.hmw"
    saturated: list[int] = []
    rope = rope_table(
        head_dim=config.head_dim,
        theta=config.rope_theta,
        scaling=config.rope_scaling,
        max_position_embeddings=config.max_position_embeddings,
        context_length=options.context_length,
    )
    with WeightsWriter(staging / file) as writer:
        entries = [
            writer.add(name, profile.tensor_dtype, "dense", part.shape, part.astype(profile.tensor_dtype))
            for name, part in ((ROPE_COS, rope.cos), (ROPE_SIN, rope.sin))
        ]
        for spec in specs:
            if isinstance(spec, VectorSpec):
                entries.append(writer.add(spec.name, "float32", "dense", spec.shape, tensors.vector(spec)))
            else:
                chunks = _counted(tensors.packed(spec, workers, saturated.append), spec, bar)
                entries.append(writer.add(spec.name, spec.dtype, spec.format, spec.shape, chunks))
    if saturated:
        _warn_saturated(sum(saturated), "of the weights")
    assert writer.id is not None
    return entries, Sibling(file=file, id=writer.id)


def _counted(chunks: Iterator[NDArray[np.uint8]], spec: LinearSpec, bar: Progress) -> Iterator[NDArray[np.uint8]]:
    for chunk in chunks:
        yield chunk
        bar.advance(len(chunk) * BLOCK * spec.shape[1])


def _head_is_the_embedding(checkpoint: Checkpoint) -> bool:
    """False only where a head is stored whose values are not those of the embedding."""
    head = "lm_head.weight"
    if head not in checkpoint or EMBEDDING not in checkpoint:
        return True
    shape = checkpoint.shape(head)
    return checkpoint.shape(EMBEDDING) == shape and all(
        np.array_equal(checkpoint.read(head, *rows), checkpoint.read(EMBEDDING, *rows)) for rows in row_chunks(shape)
    )


def _unused_tensors(checkpoint: Checkpoint, specs: Sequence[LinearSpec | VectorSpec]) -> list[str]:
    used = {name for spec in specs for name in spec.tensors} | {"lm_head.weight"}
    # Old checkpoints carry the RoPE frequencies, which are computed here.
    return [name for name in checkpoint.names() if name not in used and not name.endswith("rotary_emb.inv_freq")]


def _warn(text: str) -> None:
    warnings.warn(text, CompileWarning, stacklevel=3)


def _warn_saturated(count: int, what: str) -> None:
    _warn(f"{count} values {what} are beyond the fp16 range and were clamped to +-65504")
