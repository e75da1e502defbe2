"""`tcim-lite compile MODEL.onnx`."""

from __future__ import annotations

import argparse
import sys
import time

from ..models.common.errors import CompileError
from ..models.onnx import OnnxOptions, check_onnx, compile_onnx

# Options of language models, and what they are when nobody gives them.
_OTHERS = {
    "prefill_length": 256, "context_length": 2048, "all_logits": False, "position_ids": False, "verify_length": None,
    "pipeline": 1, "ndevice": 1, "no_single_device": False, "head_quant": None, "activations": "a8", "draft": None,
    "draft_quant": None, "draft_layers": None, "random_weights": False, "seed": 0,
}  # fmt: skip


def run_onnx(args: argparse.Namespace) -> int:
    """Compiles, or with `--check` counts ops; status 1 when some are not supported."""
    for option, default in _OTHERS.items():
        if getattr(args, option, default) != default:
            raise CompileError(f"--{option.replace('_', '-')} is for language models; {args.checkpoint} is a network")
    options = OnnxOptions(
        model=args.checkpoint,
        output=getattr(args, "output", None),
        name=getattr(args, "name", None),
        quant=getattr(args, "quant", "w8a8h1_sefp"),
        batch=args.batch,
        shapes=dict(_shape(text) for text in getattr(args, "shape", [])),
    )
    if args.check:
        return _check(options)
    if options.output is None:
        raise CompileError("-o OUT is missing: the package folder to write")
    start = time.monotonic()
    result = compile_onnx(options)
    if result.saturated:
        print(
            f"warning: {result.saturated} weights are beyond the fp16 range and were clamped to +-65504",
            file=sys.stderr,
        )
    if not args.quiet:
        ops = ", ".join(f"{count} {op}" for op, count in result.ops.most_common())
        print(f"{options.output}: 1 file in {time.monotonic() - start:.1f} s")
        print(f"  {result.path.stat().st_size / 1e6:10.2f} MB  {result.path.name}: {ops}")
    return 0


def _check(options: OnnxOptions) -> int:
    ops, missing = check_onnx(options)
    for op, count in ops.most_common():
        print(f"{count:6}  {op}{'  not supported' if op in missing else ''}")
    print(
        f"{sum(ops.values())} nodes; "
        + (f"not supported: {', '.join(sorted(missing))}" if missing else "all supported")
    )
    return 1 if missing else 0


def _shape(text: str) -> tuple[str, tuple[int, ...]]:
    """ "name=1,3,224,224"; a name may have "=" in it."""
    name, _, extents = text.rpartition("=")
    try:
        shape = tuple(int(extent) for extent in extents.split(",")) if extents else ()
    except ValueError:
        shape = (0,)
    if not name or any(extent < 1 for extent in shape):
        raise CompileError(f"--shape {text}: expected INPUT=N,N,.. such as images=1,3,640,640")
    return name, shape
