"""`tcim-lite compile`: a Hugging Face checkpoint, a GGUF file or an ONNX network to a package folder."""

from __future__ import annotations

import argparse
import sys
import time
import warnings

HELP = "compile a checkpoint or an ONNX network into a package folder"
DESCRIPTION = (
    "Compiles a checkpoint into OUT: prefill and decode graphs, shared weights, embedding, tokenizer. docs/compile.md "
    "lists the model families. Needs pip install 'tcim-lite[compile]', for GGUF 'tcim-lite[gguf]'. MODEL.onnx, or the "
    "config.yml of the vendor's hmatc that names one, becomes one graph (docs/onnx.md; 'tcim-lite[onnx]')."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from .compile_options import SECTIONS

    parser.formatter_class = argparse.ArgumentDefaultsHelpFormatter
    for section in SECTIONS:
        group = parser.add_argument_group(section.title, section.about) if section.title else parser
        for option in section.options:
            option.add(group)
    parser.set_defaults(default_of=parser.get_default)


def run(args: argparse.Namespace) -> int:
    """Compiles and prints what was written."""
    from ..models.common.errors import CompileError, CompileWarning
    from ..models.compiler import compile_checkpoint
    from ..models.onnx import is_onnx
    from .compile_onnx import refuse_without_images, run_onnx
    from .compile_options import compile_options, given
    from .hmatc_config import is_config

    if is_onnx(args.checkpoint) or is_config(args.checkpoint):
        return run_onnx(args)
    if option := given(args, "network"):
        raise CompileError(f"{option} is for ONNX networks; {args.checkpoint} is no .onnx file")
    refuse_without_images(args)
    if not hasattr(args, "output"):
        raise CompileError("-o OUT is missing: the package folder to write")
    options = compile_options(args)
    start = time.monotonic()
    with warnings.catch_warnings():
        warnings.simplefilter("always", CompileWarning)
        warnings.showwarning = _print_warning
        result = compile_checkpoint(options, progress=not args.quiet)
    if not args.quiet:
        print(f"{result.output}: {len(result.files)} files in {time.monotonic() - start:.1f} s")
        for file in result.files:
            print(f"  {(result.output / file).stat().st_size / 1e6:10.2f} MB  {file}")
    return 0


def _print_warning(message: Warning | str, *_: object, **__: object) -> None:
    print(f"warning: {message}", file=sys.stderr)
