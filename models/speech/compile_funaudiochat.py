"""Compiles Fun-Audio-Chat into a package folder: the graphs of the vendor's demo from speech to text."""

from __future__ import annotations

from dataclasses import replace

from ..common.package import EMBEDDING
from ..compiler.encoder import encoder_graph
from ..compiler.options import CompileOptions
from ..compiler.parts import LanguageGraphs, Part, Table
from ..compiler.prepare import prepare, warn_unused
from ..compiler.weights import embedding_spec
from ..compiler.write import Contents
from ..sounds.funaudiochat import read_chat_sound
from ..sounds.kind import Encoder
from ..weights.spec import LinearSpec, VectorSpec
from .funaudiochat import MODEL_TYPE, TITLE, read_language
from .record import SpeechModel

_SOUND, _CODES = "audio_encoder", "audio_tower"
_AUDIO_TABLE = EMBEDDING.with_name("quant_audio_embedding")
_SPEAKING = ("audio_invert_tower.",)  # what makes codes of hidden states
_FRAMES = 800  # of the eight seconds that the demo cuts sounds to


def _contents(options: CompileOptions) -> Contents:
    """`NAME_prefill.hmm`, `NAME_audio_encoder.hmm` and so on; `audio_frames` are those of the encoder."""
    options.check_lengths()
    name = options.name or MODEL_TYPE
    frames = options.audio_frames or _FRAMES
    model = prepare(replace(options, name=name, audio_frames=None, all_logits=True), part=read_language)
    source, profile = model.source, model.profile
    sound, codes = read_chat_sound(source.config, frames, model.config.hidden_size)
    encoders: dict[str, tuple[Encoder, list[LinearSpec | VectorSpec]]] = {
        _SOUND: (sound, sound.specs(profile)),
        _CODES: (codes, codes.specs(profile)),
    }
    tables = {EMBEDDING: embedding_spec(model.config), _AUDIO_TABLE: codes.table}
    if source.tensors is not None:
        specs = [*model.weights, *tables.values(), *(spec for _, part in encoders.values() for spec in part)]
        warn_unused(source.tensors.names(), {tensor for spec in specs for tensor in spec.tensors}, _SPEAKING)

    message = {"model_type": MODEL_TYPE, "quant": profile.quant, "audio_frames": frames}
    written: list[Part] = [
        LanguageGraphs(model),
        *(
            Table(path=path, spec=spec, tensors=model.tensors, dtype=profile.tensor_dtype)
            for path, spec in tables.items()
        ),
        *(
            encoder_graph(f"{name}_{part}", options, profile, encoder, specs, message)
            for part, (encoder, specs) in encoders.items()
        ),
    ]
    return Contents(name=name, source=source, parts=written, ends=tuple(encoders))


FUN_AUDIO_CHAT = SpeechModel(
    model_type=MODEL_TYPE,
    title=TITLE,
    models="Fun-Audio-Chat 8B",
    has=(
        "[graphs of its own](speech.md#fun-audio-chat): a language model as Qwen3, an encoder of sounds and one of "
        "groups of codes; what it speaks with is left out"
    ),
    options=frozenset({"prefill_length", "context_length", "audio_frames"}),
    graphs=f"the graphs of {TITLE} are those of the vendor, for one sequence",
    contents=_contents,
)
