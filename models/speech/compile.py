"""Compiles Whisper into a package folder, and encoders of sounds into those of their language models."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..common.checkpoint import Checkpoint, config_of
from ..common.errors import CompileError
from ..common.pack_stream import worker_pool
from ..common.package import files_in, host_files_in, staged_package, write_host_files
from ..common.profiles import Profile, profile_for
from ..common.progress import Progress
from ..common.weight_spec import CheckpointTensors, LinearSpec, RandomTensors, TensorSource
from ..compiler.graph_files import GraphFile, check_neighbours, owned_files, write_graph_files
from ..compiler.options import COMMON_OPTIONS, CompileOptions, CompileResult
from ..compiler.prepare import warn
from ..compiler.weight_files import write_encoder_weights
from ..model_config import ModelConfig
from . import glm_asr, qwen3_asr, qwen3_omni, whisper_graphs
from .asked import folder_of, warn_unused
from .encoder_file import write_encoder
from .glm_asr import GlmSound
from .qwen3_asr import SoundConfig
from .whisper import MODEL_TYPE, PREFILL_TOKENS, WhisperConfig, read_whisper

# What reads the config of an encoder, by the model type of its language model.
SOUND_ENCODERS: dict[str, Callable[..., SoundConfig | GlmSound | None]] = {
    qwen3_asr.MODEL_TYPE: qwen3_asr.read_sound,
    glm_asr.MODEL_TYPE: glm_asr.read_sound,
    qwen3_omni.MODEL_TYPE: qwen3_asr.read_chunk,
}
# Those that take sounds of any length.
FRAMED = (qwen3_asr.MODEL_TYPE, glm_asr.MODEL_TYPE)
# The options that Whisper has; all others must be left out.
_OPTIONS = COMMON_OPTIONS | {"context_length"}
_WHAT = f"the graphs of Whisper are those of the vendor, an encoder, a prefill of {PREFILL_TOKENS} tokens and a decode"


def compile_whisper(options: CompileOptions, *, progress: bool = False) -> CompileResult:
    """Writes the package `options` describe: `NAME_encode.hmm`, `NAME_encode_keys_first.hmm`, `NAME_prefill.hmm` and
    `NAME_decode.hmm`.

    Args:
        options: What to compile. The caches have `context_length` rows, at most those of the vendor's.
        progress: Show a bar on stderr where that is a terminal.

    Raises:
        CompileError: The checkpoint, its config or an option does not fit, or the output cannot be written.

    Warns:
        CompileWarning: No tokenizer, values beyond fp16, tensors without a place in the graphs.
    """
    options.refuse_others(_OPTIONS, _WHAT)
    _check_context(options)
    folder = folder_of(options.checkpoint)
    config = read_whisper(config_of(folder))
    profile = profile_for(options.quant, options.head_quant, options.activations)
    specs = config.specs(profile)
    tensors: TensorSource = RandomTensors(options.seed)
    if not options.random_weights:
        checkpoint = Checkpoint(folder)
        tensors = CheckpointTensors(checkpoint)
        warn_unused(checkpoint.names(), {tensor for spec in specs for tensor in spec.tensors} | {"proj_out.weight"})
    tensors.check(specs)
    name, rows = options.name or MODEL_TYPE, min(options.context_length, config.cache_rows)
    check_neighbours(options.output, name)
    with staged_package(options.output, owned_files(name)) as staging:
        if not write_host_files(host_files_in(folder), staging):
            warn(f"{folder} has no tokenizer files; the package works, but programs will not find a tokenizer")
        elements = sum(int(np.prod(spec.shape)) for spec in specs if isinstance(spec, LinearSpec))
        with Progress(elements, visible=progress) as bar, worker_pool() as workers:
            file = staging / f"{name}.hmw"
            constants = whisper_graphs.constants(profile.tensor_dtype, rows)
            entries, sibling = write_encoder_weights(
                file, specs, constants, tensors, profile.tensor_dtype, workers, bar
            )
        graphs = {
            "encode": whisper_graphs.encoder_graph(config, profile, entries),
            # The vendor's engine in C++ takes outputs of the encoder in another order than its other programs.
            "encode_keys_first": whisper_graphs.encoder_graph(config, profile, entries, keys_first=True),
            "prefill": whisper_graphs.decoder_graph(config, profile, entries, "prefill", PREFILL_TOKENS, rows),
            "decode": whisper_graphs.decoder_graph(config, profile, entries, "decode", 1, rows),
        }
        message = _message(config, profile, rows)
        written = [GraphFile(f"{name}_{stage}.hmm", [graph], message) for stage, graph in graphs.items()]
        write_graph_files(staging, written, entries, sibling, self_contained=options.self_contained)
        files = files_in(staging)
    return CompileResult(output=options.output, files=files)


def write_sound_encoder(
    folder: Path, name: str, options: CompileOptions, raw: Mapping[str, Any], model: ModelConfig, profile: Profile
) -> None:
    """Writes the graph of an encoder and its weights, if config.json has the sizes of one.

    Args:
        folder: To write into.
        name: Of the package.
        options: Its checkpoint, and what is the same for both.
        raw: Its config.json.
        model: The language model.
        profile: Formats of the weights.

    Raises:
        CompileError: The checkpoint or its config does not fit.
    """
    model_type = model.family.model_type  # which a file need not say
    config = SOUND_ENCODERS[model_type](raw, options.audio_frames, model.hidden_size)
    if config is None:
        return
    names = () if options.random_weights else Checkpoint(folder_of(options.checkpoint)).names()
    message = {"model_type": model_type, "quant": profile.quant, "audio_frames": config.frames}
    specs = config.specs(profile, names)
    write_encoder(folder, f"{name}_{config.file_end}", options, profile, config, specs, message)


def _check_context(options: CompileOptions) -> None:
    if options.context_length < PREFILL_TOKENS:
        raise CompileError(
            f"--context-length {options.context_length}: expected at least {PREFILL_TOKENS}, the tokens of Whisper's "
            "prefill"
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
