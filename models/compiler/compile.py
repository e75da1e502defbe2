"""Compiles a checkpoint into a package folder. docs/compile.md describes options and layouts.

A package `OUT` named `qwen3` holds::

    qwen3_prefill.hmm  qwen3_decode.hmm  qwen3.hmw    graphs, and the weights they share
    qwen3_verify.hmm                                  with --verify-length
    qwen3_prefill_mtp.hmm  qwen3_decode_mtp.hmm       with --mtp; decode then verifies several tokens
    qwen3_prefill_part0.hmm  qwen3_decode_part0.hmm   and so on with --pipeline
    qwen3_prefill.hmms  qwen3_decode.hmms             with --ndevice
    qwen3_prefill_draft.hmm  qwen3_decode_draft.hmm  qwen3_draft.hmw    with --draft
    gemma4_assistant.hmm  gemma4_assistant.hmw        with --draft of an assistant; decode then verifies several tokens
    qwen3_visual.hmm  qwen3_visual_m96.hmm  qwen3_visual.hmw            with --vision, named by the kind of tower
    qwen3_NAME_prefill_lora_input/                    a .npy for each input of a LoRA called NAME, with --lora; the same
    qwen3_NAME_decode_lora_input/                     files for decode
    hmquant/quant_embedding.bin, .pt                  the embedding, [V, H], row-major
    draft/hmquant/quant_embedding.bin, .pt            and target/, with --draft: where the vendor's demo looks
    hmquant/per_layer_input_embedding.pt              of Gemma 4 E, what layers take of each token, [V, layers * size]
    tokenizer/                                        tokenizer files and configs of the checkpoint
    config.json, tokenizer.json, ...                  the same, where other tools look

The embedding is fp16, in a `float32` package fp32. `custom_msg` of each graph is a JSON object that says which
(`embedding_dtype`), beside the keys the vendor's builds carry.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..common.errors import CompileError
from ..common.package import EMBEDDING, ROLE_EMBEDDINGS
from .assistant import ASSISTANT, assistant_in, prepare_assistant
from .options import CompileOptions, CompileResult
from .parts import LanguageGraphs, LoraFiles, Part
from .prepare import PreparedModel, prepare
from .sound import prepare_sound
from .tables import LayerTable, Table, names_of_table
from .vision import prepare_tower
from .write import Contents, write_package

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
        CompileWarning: No tokenizer, values beyond fp16, a context shorter than usual or beyond what the model was made
            for, a head that should be tied and is not, tensors without a place in the graph.
    """
    # They use parts of this package.
    from ..own_graphs import own_graphs_of
    from ..speech import NETWORKS, prepare_voice

    if (own := own_graphs_of(options.checkpoint)) is not None:
        return own.compile(options, progress=progress)
    options.check_lengths()
    assistant = assistant_in(options)
    target = prepare(options, assisted=assistant is not None)
    options = target.options
    draft = None
    if options.has_draft and assistant is None:
        draft = prepare(options.of_draft(target.name), options.draft_layers, "_draft")
        _check_vocabularies(target, draft)
    models = [model for model in (target, draft) if model is not None]
    parts: list[Part] = [LanguageGraphs(model) for model in models]
    parts += prepare_tower(options, target.name, target.source, target.config)
    parts += prepare_sound(options, target)
    voice = [] if target.config.hidden_after is None else prepare_voice(options, target)
    parts += [*voice, Table.of(target, EMBEDDING)]
    if options.lora is not None:
        parts.append(LoraFiles(target.name, options.lora.resolve().name, target.lora, target.profile.tensor_dtype))
    if target.config.layer_inputs:
        parts.append(LayerTable(target))
    if draft is not None:
        parts += _names_of_pair(target, draft)
    if assistant is not None:
        parts.append(prepare_assistant(options, target, assistant))
    ends = NETWORKS if voice else () if target.config.family.assistant is None else (ASSISTANT,)
    contents = Contents(name=target.name, source=target.source, parts=parts, ends=ends)
    return write_package(options.output, contents, progress=progress)


def _names_of_pair(target: PreparedModel, draft: PreparedModel) -> Iterator[Part]:
    """The table of a draft, if it is another than the target's, and names of both."""
    source = EMBEDDING
    if draft.table_source != target.table_source:
        source = ROLE_EMBEDDINGS["draft"][0]
        yield Table.of(draft, source)
    yield from names_of_table(source, ROLE_EMBEDDINGS["draft"])
    yield from names_of_table(EMBEDDING, ROLE_EMBEDDINGS["target"])


def _check_vocabularies(target: PreparedModel, draft: PreparedModel) -> None:
    ours, theirs = target.config.vocab_size, draft.config.vocab_size
    if ours != theirs:
        raise CompileError(
            f"the draft {draft.source.path} has vocab_size={theirs}, the target {target.source.path} {ours}; a pair "
            "must use one tokenizer"
        )
