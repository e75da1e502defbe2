"""Compiles Whisper into a package folder, and encoders of sounds into those of their language models."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tcim_lite.hmm import WeightEntry

from ..common.checkpoint import Checkpoint, config_of
from ..common.errors import CompileError
from ..common.package import host_files_in
from ..common.profiles import Profile, profile_for
from ..common.weight_spec import CheckpointTensors, RandomTensors, TensorSource
from ..compiler.graph_files import GraphFile
from ..compiler.options import COMMON_OPTIONS, CompileOptions, CompileResult
from ..compiler.parts import OtherGraphs, Part
from ..compiler.prepare import PreparedModel
from ..compiler.source import Source
from ..compiler.write import Contents, write_package
from ..families import titles_of
from . import glm_asr, qwen3_asr, qwen3_omni, whisper_graphs
from .asked import folder_of, warn_unused
from .encoder_file import encoder_graph
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
    raw = config_of(folder)
    config = read_whisper(raw)
    profile = profile_for(options.quant, options.head_quant, options.activations)
    specs = config.specs(profile)
    tensors: TensorSource = RandomTensors(options.seed)
    checkpoint = None
    if not options.random_weights:
        checkpoint = Checkpoint(folder)
        tensors = CheckpointTensors(checkpoint)
        warn_unused(checkpoint.names(), {tensor for spec in specs for tensor in spec.tensors} | {"proj_out.weight"})
    tensors.check(specs)
    name, rows = options.name or MODEL_TYPE, min(options.context_length, config.cache_rows)

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
    return write_package(options.output, Contents(name=name, source=source, parts=[whole]), progress=progress)


def prepare_sound(options: CompileOptions, target: PreparedModel) -> list[Part]:
    """Returns the encoder of sounds of a language model, if config.json has the sizes of one.

    Raises:
        CompileError: The checkpoint or its config does not fit.
    """
    model_type = target.config.family.model_type  # which a file need not say
    if options.audio_frames is not None and model_type not in FRAMED:
        raise CompileError(
            f"--audio-frames is for {titles_of(lambda family: family.model_type in FRAMED)}, whose packages have an "
            "encoder of sounds of so many frames; leave it out"
        )
    read = SOUND_ENCODERS.get(model_type)
    config = None if read is None else read(target.source.config, options.audio_frames, target.config.hidden_size)
    if config is None:
        return []
    names = () if options.random_weights else Checkpoint(folder_of(options.checkpoint)).names()
    message = {"model_type": model_type, "quant": target.profile.quant, "audio_frames": config.frames}
    specs = config.specs(target.profile, names)
    stem = f"{target.name}_{config.file_end}"
    return [encoder_graph(stem, options, target.profile, config, specs, message)]


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
