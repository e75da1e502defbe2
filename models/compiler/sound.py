"""The encoder of sounds in the package of a language model."""

from __future__ import annotations

from ..checkpoints.checkpoint import Checkpoint
from ..common.errors import CompileError
from ..families import titles_of
from ..family import Family
from .encoder import encoder_graph
from .options import CompileOptions
from .parts import Part
from .prepare import PreparedModel
from .source import folder_of


def prepare_sound(options: CompileOptions, target: PreparedModel) -> list[Part]:
    """Returns the encoder of a family that has one, if config.json has its sizes.

    Raises:
        CompileError: The checkpoint or its config does not fit.
    """
    family = target.config.family
    if options.audio_frames is not None and not _is_framed(family):
        raise CompileError(
            f"--audio-frames is for {titles_of(_is_framed)}, whose packages have an encoder of sounds of so many "
            "frames; leave it out"
        )
    if family.sound is None:
        return []
    sound = family.sound.read(target.source.config, options.audio_frames, target.config.hidden_size)
    if sound is None:
        return []
    names = () if options.random_weights else Checkpoint(folder_of(options.checkpoint)).names()
    message = {"model_type": family.model_type, "quant": target.profile.quant, "audio_frames": sound.frames}
    specs = sound.specs(target.profile, names)
    return [encoder_graph(f"{target.name}_{sound.file_end}", options, target.profile, sound, specs, message)]


def _is_framed(family: Family) -> bool:
    return family.sound is not None and family.sound.framed
