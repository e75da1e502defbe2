"""The files that a server of an encoder needs beside its graph: they are the checkpoint's, copied as they are."""

from __future__ import annotations

import filecmp
import json
import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tcim_lite.text_encoders import NEEDED_FILES, TOKENS

from ..common.errors import CompileError
from ..common.package import TOKENIZER_DIR

if TYPE_CHECKING:
    from .compile import OnnxOptions

_OF_A_TEXT = (TOKENS, "attention_mask", "token_type_ids")  # inputs of the shape [batch, length]
_COPIED = (
    *NEEDED_FILES,
    "tokenizer_config.json",
    "special_tokens_map.json",
    "modules.json",
    "sentence_bert_config.json",
    "config_sentence_transformers.json",
)


def for_lengths(options: OnnxOptions, lengths: Sequence[int]) -> Iterator[OnnxOptions]:
    """Yields options for each number of tokens; the length becomes a part of the graph's name.

    Raises:
        CompileError: A length below 1 or given twice, a model that takes no ids of tokens, or a rest, which would have
            one file for all.
    """
    from .read import load

    if any(length < 1 for length in lengths) or len(set(lengths)) < len(lengths):
        raise CompileError(f"--lengths {','.join(map(str, lengths))}: expected numbers above 0, each once")
    if options.rest is not None:
        raise CompileError("--rest writes one file; leave --lengths out, and give the shapes with --shape")
    inputs = [info.name for info in load(options.model).graph.input]
    if TOKENS not in inputs:
        raise CompileError(f"--lengths is for encoders of texts; {options.model.name} has no input {TOKENS}")
    if given := [name for name in _OF_A_TEXT if name in options.shapes]:
        raise CompileError(f"--shape {given[0]}: its shape follows from --lengths and --batch; leave one of them out")
    batch = 1 if options.batch is None else options.batch
    stem = options.model.stem if options.name is None else options.name
    for length in lengths:
        shapes = {name: (batch, length) for name in _OF_A_TEXT if name in inputs}
        yield replace(options, name=f"{stem}_{length}", batch=None, shapes={**shapes, **options.shapes})


def encoder_folder(options: OnnxOptions, inputs: Iterable[str]) -> Path | None:
    """The folder of the checkpoint, given or beside the file, if the network is an encoder and there is one.

    Raises:
        CompileError: A folder or a pooling is given that cannot be used.
    """
    is_encoder, given = TOKENS in inputs, options.tokenizer
    if not is_encoder and (given is not None or options.pooling is not None):
        option = "--tokenizer" if given is not None else "--pooling"
        raise CompileError(f"{option} is for encoders of texts; {options.model.name} has no input {TOKENS}")
    assert options.output is not None
    holds_another = any(options.output.glob("*_prefill*.hmm*"))
    if given is not None:
        if missing := [name for name in NEEDED_FILES if not (given / name).is_file()]:
            raise CompileError(f"--tokenizer {given}: there is no {missing[0]}; give the folder of the checkpoint")
        if holds_another:
            raise CompileError(
                f"{options.output} holds a package compiled from a checkpoint, whose tokenizer would be replaced; "
                "write to a folder of its own"
            )
        return given
    places = (options.model.parent, options.model.parent.parent)  # optimum writes checkpoint/onnx/model.onnx
    found = [place for place in places if all((place / name).is_file() for name in NEEDED_FILES)]
    if found and is_encoder and not holds_another:
        return found[0]
    if options.pooling is not None:
        raise CompileError(
            f"--pooling {options.pooling}: there is no {' and '.join(NEEDED_FILES)} beside {options.model.name}; name "
            "the folder of the checkpoint with --tokenizer"
        )
    return None


def write_encoder_files(options: OnnxOptions, folder: Path, staging: Path, graph: str) -> None:
    """Copies the files of a checkpoint into the tokenizer folder of a package.

    Raises:
        CompileError: The package holds graphs of another checkpoint.
    """
    assert options.output is not None
    target, there = staging / TOKENIZER_DIR, options.output / TOKENIZER_DIR
    others = [path.name for path in options.output.glob("*.hmm") if path.name != graph]
    for name in NEEDED_FILES:
        own = there / name
        if others and own.is_file() and not filecmp.cmp(own, folder / name, shallow=False):
            raise CompileError(f"{own} is of another checkpoint, which {others[0]} needs; write to a folder of its own")
    target.mkdir()
    for name in _COPIED:
        if (folder / name).is_file():
            shutil.copyfile(folder / name, target / name)
    if options.pooling is not None:
        (target / "1_Pooling").mkdir()
        (target / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode": options.pooling}) + "\n")
        return
    for path in sorted(folder.glob("*_Pooling/config.json"))[:1]:
        (target / path.parent.name).mkdir()
        shutil.copyfile(path, target / path.parent.name / path.name)
