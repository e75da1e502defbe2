"""Compiles Fun-Audio-Chat into a package folder: what the vendor's demo makes text and codes of speech with."""

from __future__ import annotations

from dataclasses import replace

from ..common.package import EMBEDDING
from ..compiler.encoder import encoder_graph
from ..compiler.options import CompileOptions
from ..compiler.parts import LanguageGraphs, Part
from ..compiler.prepare import PreparedModel, prepare
from ..compiler.record import OwnGraphs
from ..compiler.tables import LinearFile, Table
from ..compiler.write import Contents
from ..sounds.funaudiochat import ChatSound, CodeGroup, read_chat_sound
from .funaudiochat import MODEL_TYPE, SPEAKING, TITLE, UNREAD, group_size, pre_matching, read_codes, read_language

_SOUND, _CODES, _DECODER = "audio_encoder", "audio_tower", "audio_decoder"
_AUDIO_TABLE = EMBEDDING.with_name("quant_audio_embedding")
_PRE_MATCHING = EMBEDDING.with_name("audio_decoder_pre_matching.pt")
_FRAMES = 800  # of the eight seconds that the demo cuts sounds to


def _contents(options: CompileOptions) -> Contents:
    """`NAME_prefill.hmm`, `NAME_audio_encoder.hmm` and so on; `audio_frames` are those of the encoder."""
    options.check_lengths()
    name = options.name or MODEL_TYPE
    frames = options.audio_frames or _FRAMES
    model = prepare(replace(options, name=name, audio_frames=None, all_logits=True), part=read_language)
    source, profile = model.source, model.profile
    sound, codes = read_chat_sound(source.config, frames, model.config.hidden_size)
    encoders: dict[str, ChatSound | CodeGroup] = {_SOUND: sound, _CODES: codes}
    message = {"model_type": MODEL_TYPE, "quant": profile.quant, "audio_frames": frames}
    parts: list[Part] = [
        LanguageGraphs(model),
        Table.of(model, EMBEDDING),
        Table.of(model, _AUDIO_TABLE, codes.table),
    ]
    for part, encoder in encoders.items():
        parts.append(encoder_graph(f"{name}_{part}", options, profile, encoder, encoder.specs(profile), message))
    if (group := group_size(source.config)) is not None:
        decoder, (weight, bias) = _decoder(options, name, group), pre_matching(group, model.config.hidden_size)
        decoder.tensors.check([weight, bias])
        parts += [
            LanguageGraphs(decoder),
            LinearFile(path=_PRE_MATCHING, weight=weight, bias=bias, tensors=decoder.tensors),
        ]
    unread = UNREAD if group is not None else (SPEAKING,)
    stages = (f"{_DECODER}_prefill", f"{_DECODER}_decode")
    return Contents(name=name, source=source, parts=parts, ends=(*encoders, _DECODER, *stages), unread=unread)


def _decoder(options: CompileOptions, name: str, group: int) -> PreparedModel:
    """Its prefill takes the rows of a whole prefill of the language model, which its caches hold, as the vendor's."""
    rows = group * options.prefill_length
    own = replace(
        options,
        name=f"{name}_{_DECODER}",
        prefill_length=rows,
        context_length=rows,
        audio_frames=None,
        all_logits=True,
    )
    return prepare(own, part=read_codes)


FUN_AUDIO_CHAT = OwnGraphs(
    model_type=MODEL_TYPE,
    title=TITLE,
    models="Fun-Audio-Chat 8B",
    has=(
        "[graphs of its own](speech.md#fun-audio-chat): a language model as Qwen3, an encoder of sounds, one of "
        "groups of codes, and a decoder of codes"
    ),
    options=frozenset({"prefill_length", "context_length", "audio_frames"}),
    graphs=f"the graphs of {TITLE} are those of the vendor, for one sequence",
    contents=_contents,
)
