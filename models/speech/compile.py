"""Adds encoders of sounds to packages of their language models."""

from __future__ import annotations

from collections.abc import Callable

from ..common.checkpoint import Checkpoint
from ..common.errors import CompileError
from ..compiler.options import CompileOptions
from ..compiler.parts import Part
from ..compiler.prepare import PreparedModel
from ..families import titles_of
from . import glm_asr, qwen3_asr, qwen3_omni
from .asked import folder_of
from .encoder_file import encoder_graph
from .glm_asr import GlmSound
from .qwen3_asr import SoundConfig

# What reads the config of an encoder, by the model type of its language model.
SOUND_ENCODERS: dict[str, Callable[..., SoundConfig | GlmSound | None]] = {
    qwen3_asr.MODEL_TYPE: qwen3_asr.read_sound,
    glm_asr.MODEL_TYPE: glm_asr.read_sound,
    qwen3_omni.MODEL_TYPE: qwen3_asr.read_chunk,
}
# Those that take sounds of any length.
FRAMED = (qwen3_asr.MODEL_TYPE, glm_asr.MODEL_TYPE)


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
