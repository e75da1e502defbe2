"""Compiles Fun-Audio-Chat into a package folder: the graphs of the vendor's demo from speech to text."""

from __future__ import annotations

import math
from dataclasses import replace

from ..common.pack_stream import worker_pool
from ..common.package import EMBEDDING, files_in, staged_package, write_host_files
from ..common.progress import Progress
from ..common.weight_spec import LinearSpec, VectorSpec
from ..compiler.graph_files import check_neighbours, owned_files, write_graphs
from ..compiler.options import COMMON_OPTIONS, CompileOptions, CompileResult
from ..compiler.prepare import prepare, warn
from ..compiler.weight_files import write_embedding, write_weights
from ..compiler.weights import embedding_spec
from .asked import warn_unused
from .encoder_file import Part, write_encoder
from .funaudiochat import MODEL_TYPE, TITLE, read_language
from .funaudiochat_sound import read_chat_sound

_OPTIONS = COMMON_OPTIONS | {"prefill_length", "context_length", "audio_frames"}
_GRAPHS = f"the graphs of {TITLE} are those of the vendor, for one sequence"
_SOUND, _CODES = "audio_encoder", "audio_tower"
_AUDIO_TABLE = EMBEDDING.with_name("quant_audio_embedding")
_SPEAKING = ("audio_invert_tower.",)  # what makes codes of hidden states
_FRAMES = 800  # of the eight seconds that the demo cuts sounds to


def compile_funaudiochat(options: CompileOptions, *, progress: bool = False) -> CompileResult:
    """Writes the package `options` describe: `NAME_prefill.hmm`, `NAME_audio_encoder.hmm` and so on.

    Args:
        options: What to compile. `audio_frames` are those of the encoder.
        progress: Show a bar on stderr where that is a terminal.

    Raises:
        CompileError: The checkpoint, its config or an option does not fit, or the output cannot be written.

    Warns:
        CompileWarning: No tokenizer, values beyond fp16, tensors without a place in the graphs.
    """
    options.refuse_others(_OPTIONS, _GRAPHS)
    options.check_lengths()
    name = options.name or MODEL_TYPE
    frames = options.audio_frames or _FRAMES
    model = prepare(replace(options, name=name, audio_frames=None, all_logits=True), part=read_language)
    source, profile = model.source, model.profile
    sound, codes = read_chat_sound(source.config, frames, model.config.hidden_size)
    parts: dict[str, tuple[Part, list[LinearSpec | VectorSpec]]] = {
        _SOUND: (sound, sound.specs(profile)),
        _CODES: (codes, codes.specs(profile)),
    }
    tables = {EMBEDDING: embedding_spec(model.config), _AUDIO_TABLE: codes.table}
    for _, specs in parts.values():
        model.tensors.check(specs)
    if source.tensors is not None:
        specs = [*model.weights, *tables.values(), *(spec for _, part in parts.values() for spec in part)]
        warn_unused(source.tensors.names(), {tensor for spec in specs for tensor in spec.tensors}, _SPEAKING)

    check_neighbours(options.output, name)
    with staged_package(options.output, owned_files(name, tuple(parts))) as staging:
        if not write_host_files(source.host_files, staging):
            warn(f"{source.path} has no tokenizer files; the package works, but programs will not find a tokenizer")
        (staging / EMBEDDING).parent.mkdir(exist_ok=True)
        elements = model.elements + sum(math.prod(spec.shape) for spec in tables.values())
        with Progress(elements, visible=progress) as bar, worker_pool() as workers:
            entries, sibling = write_weights(staging, model, workers, bar)
            write_graphs(staging, model, entries, sibling)
            for path, spec in tables.items():
                write_embedding(staging / path, spec, model.tensors, profile.tensor_dtype, bar)
        message = {"model_type": MODEL_TYPE, "quant": profile.quant, "audio_frames": frames}
        for part, (what, specs) in parts.items():
            write_encoder(staging, f"{name}_{part}", options, profile, what, specs, message)
        files = files_in(staging)
    return CompileResult(output=options.output, files=files)
