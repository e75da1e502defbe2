"""Compiles Whisper into a package folder, under the vendor's names."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tcim_lite.hmm import WeightEntry

from ..checkpoints.checkpoint import Checkpoint, config_of
from ..common.errors import CompileError
from ..common.package import host_files_in
from ..common.profiles import Profile, profile_for
from ..compiler.graph_files import GraphFile
from ..compiler.options import CompileOptions
from ..compiler.parts import OtherGraphs
from ..compiler.record import OwnGraphs
from ..compiler.source import Source, folder_of
from ..compiler.write import Contents
from ..weights.spec import CheckpointTensors, RandomTensors, TensorSource
from . import whisper_graphs
from .whisper import MODEL_TYPE, PREFILL_TOKENS, WhisperConfig, read_whisper


def _contents(options: CompileOptions) -> Contents:
    """`NAME_encode.hmm`, `NAME_encode_keys_first.hmm`, `NAME_prefill.hmm` and `NAME_decode.hmm`."""
    _check_context(options)
    folder = folder_of(options.checkpoint)
    raw = config_of(folder)
    config = read_whisper(raw)
    profile = profile_for(options.quant, options.head_quant, options.activations)
    specs = config.specs(profile)
    tensors: TensorSource = RandomTensors(options.seed)
    checkpoint = None
    if not options.random_weights:
        checkpoint = Checkpoint(folder)
        tensors = CheckpointTensors(checkpoint)
    tensors.check(specs)
    name, rows = options.name or MODEL_TYPE, min(options.context, config.cache_rows)

    def graphs(entries: Sequence[WeightEntry]) -> Iterator[GraphFile]:
        made = {
            "encode": whisper_graphs.encoder_graph(config, profile, entries),
            # The vendor's engine in C++ takes outputs of the encoder in another order than its other programs.
            "encode_keys_first": whisper_graphs.encoder_graph(config, profile, entries, keys_first=True),
            "prefill": whisper_graphs.decoder_graph(config, profile, entries, "prefill", PREFILL_TOKENS, rows),
            "decode": whisper_graphs.decoder_graph(config, profile, entries, "decode", 1, rows),
        }
        message = _message(config, profile, rows)
        for stage, graph in made.items():
            yield GraphFile(f"{name}_{stage}.hmm", [graph], message)

    whole = OtherGraphs(
        stem=name,
        weights=specs,
        tensors=tensors,
        constants=lambda: whisper_graphs.constants(profile.tensor_dtype, rows),
        graphs=graphs,
        dtype=profile.tensor_dtype,
        self_contained=options.self_contained,
    )
    source = Source(path=folder, config=raw, tensors=checkpoint, host_files=host_files_in(folder))
    return Contents(name=name, source=source, parts=[whole], unread=("proj_out.weight",))


def _check_context(options: CompileOptions) -> None:
    if options.context < PREFILL_TOKENS:
        raise CompileError(
            f"--context-length {options.context}: expected at least {PREFILL_TOKENS}, the tokens of Whisper's prefill"
        )


def _message(config: WhisperConfig, profile: Profile, rows: int) -> dict[str, Any]:
    return {
        "prefill_length": PREFILL_TOKENS,
        "batch": 1,
        "context_length": rows,
        "all_logits": True,
        "model_type": MODEL_TYPE,
        "quant": profile.quant,
        "head_quant": profile.head_quant,
        "hidden_size": config["d_model"],
        "vocab_size": config["vocab_size"],
    }


WHISPER = OwnGraphs(
    model_type=MODEL_TYPE,
    title="Whisper",
    models="Whisper tiny to large-v3-turbo, Distil-Whisper",
    has="[graphs of its own](speech.md#whisper): an encoder, and a decoder with caches as inputs and outputs",
    options=frozenset({"context_length"}),
    graphs=(
        f"the graphs of Whisper are those of the vendor, an encoder, a prefill of {PREFILL_TOKENS} tokens and a decode"
    ),
    contents=_contents,
)
