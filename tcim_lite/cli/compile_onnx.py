"""`tcim-lite compile MODEL.onnx`, and `config.yml` of hmatc, which names such a file."""

from __future__ import annotations

import argparse
import sys
import time
import zipfile
from collections import Counter
from typing import Any

import numpy as np

from ..models.common.errors import CompileError
from ..models.onnx import ImageInput, OnnxOptions, check_onnx, compile_onnx, for_lengths
from .compile_options import given
from .hmatc_config import is_config, read_config

_EXPERIMENTAL = "HMONNX is read by guesses that no vendor file has confirmed (docs/onnx.md)"


def run_onnx(args: argparse.Namespace) -> int:
    """Compiles, or with `--check` counts ops; status 1 when some are not supported."""
    if option := given(args, "language"):
        raise CompileError(f"{option} is for language models; {args.checkpoint} is a network")
    refuse_without_images(args)
    options = _options(args)
    lengths = _lengths(args)
    every = list(for_lengths(options, lengths)) if lengths else [options]
    if args.check:
        return _check(every[0])
    if options.output is None:
        raise CompileError("-o OUT is missing: the package folder to write")
    for each in every:
        _compile(each, quiet=args.quiet)
    return 0


def _compile(options: OnnxOptions, *, quiet: bool) -> None:
    start = time.monotonic()
    result = compile_onnx(options)
    if result.saturated:
        print(
            f"warning: {result.saturated} weights are beyond the fp16 range and were clamped to +-65504",
            file=sys.stderr,
        )
    if result.experimental:
        print(f"warning: {_EXPERIMENTAL}", file=sys.stderr)
    if result.clamped_codes:
        print(f"warning: {result.clamped_codes} weight codes of -128 became -127", file=sys.stderr)
    if not quiet:
        ops = ", ".join(f"{count} {op}" for op, count in result.ops.most_common())
        print(f"{options.output}: 1 file in {time.monotonic() - start:.1f} s")
        print(f"  {result.path.stat().st_size / 1e6:10.2f} MB  {result.path.name}: {ops}")
        if result.checkpoint is not None:
            print(f"  tokenizer and configs of {result.checkpoint}")


def _lengths(args: argparse.Namespace) -> list[int]:
    """Those of --lengths; none without the option."""
    if not hasattr(args, "lengths"):
        return []
    try:
        return [int(part) for part in args.lengths.split(",")]
    except ValueError:
        raise CompileError(f"--lengths {args.lengths}: expected numbers such as 32,128,512") from None


def _options(args: argparse.Namespace) -> OnnxOptions:
    """Those of the command; those that it does not give are the configuration's, if it names one."""
    values: dict[str, Any] = {"model": args.checkpoint, "batch": getattr(args, "batch", 1)}
    if is_config(args.checkpoint):
        values |= read_config(args.checkpoint, getattr(args, "batch", None))
    named = ("output", "name", "quant", "rest", "tokenizer", "pooling")
    values |= {key: getattr(args, key) for key in named if hasattr(args, key)}
    if hasattr(args, "shape"):
        values["shapes"] = {**values.get("shapes", {}), **_shapes(args.shape)}
    if hasattr(args, "image"):
        values["images"] = dict(_image(text, args) for text in args.image)
    return OnnxOptions(
        **values,
        ends=tuple(getattr(args, "end_at", [])),
        begins=tuple(getattr(args, "begin_at", [])),
        constants=_constants(getattr(args, "constant", [])),
    )


def refuse_without_images(args: argparse.Namespace) -> None:
    """Raises CompileError for an option that says how images are fed, where none are."""
    if not hasattr(args, "image") and (option := given(args, "images")):
        raise CompileError(f"{option} goes with --image INPUT=FORMAT,H,W, which is missing")


def _check(options: OnnxOptions) -> int:
    found = check_onnx(options)
    inside = Counter({op: reasons.total() for op, reasons in found.missing.items() if op not in found.ops})
    for op, count in [*found.ops.most_common(), *inside.most_common()]:  # those inside other nodes come last
        print(f"{count:6}  {op}{_reasons(found.missing[op], count) if op in found.missing else ''}")
    if found.deciding is not None:
        print(found.deciding)
    if found.cut is not None:
        print(found.cut)
    missing = f"not supported: {', '.join(sorted(found.missing))}" if found.missing else "all supported"
    print(f"{sum(found.ops.values())} nodes; {missing}")
    if found.experimental:
        print(_EXPERIMENTAL)
    return 1 if found.missing else 0


def _reasons(reasons: Counter[str], nodes: int) -> str:
    """Why nodes of an op are not supported, with their number where it is not all of them."""
    texts = [
        (f"{count} of them: " if count < nodes else "") + reason if reason else "" for reason, count in reasons.items()
    ]
    said = "; ".join(text for text in texts if text)
    return f"  not supported: {said}" if said else "  not supported"


def _image(text: str, args: argparse.Namespace) -> tuple[str, ImageInput]:
    """ "name=YUV420SP,720,1024"; a name may have "=" in it."""
    name, _, form = text.rpartition("=")
    parts = form.split(",")
    if not name or len(parts) != 3 or not all(part.isdecimal() for part in parts[1:]):
        raise CompileError(f"--image {text}: expected INPUT=FORMAT,HEIGHT,WIDTH such as images=YUV420SP,720,1024")
    red, green, blue = _three(args.image_fill, "fill")
    return name, ImageInput(
        format=parts[0],
        height=int(parts[1]),
        width=int(parts[2]),
        dynamic=args.image_crop == "dynamic",
        part=_part(args.image_crop),
        parts=args.image_parts,
        matrix=args.image_matrix,
        mean=_three(args.image_mean, "mean"),
        deviation=_three(args.image_std, "std"),
        swap=args.image_bgr,
        fill=(round(red), round(green), round(blue)),
    )


def _part(text: str) -> tuple[int, int, int, int] | None:
    """ "0,8,720,640"; None for `static` and `dynamic`."""
    if text in ("static", "dynamic"):
        return None
    numbers = text.split(",")
    if len(numbers) != 4 or not all(number.isdecimal() for number in numbers):
        raise CompileError(f"--image-crop {text}: expected static, dynamic or Y,X,HEIGHT,WIDTH such as 0,8,720,640")
    y, x, height, width = map(int, numbers)
    return y, x, height, width


def _three(text: str, what: str) -> tuple[float, float, float]:
    try:
        first, second, third = (float(part) for part in text.split(","))
    except ValueError:
        raise CompileError(f"--image-{what} {text}: expected three numbers such as 123.7,116.3,103.5") from None
    return first, second, third


def _shapes(texts: list[str]) -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {}
    for name, shape in map(_shape, texts):
        if shapes.setdefault(name, shape) != shape:
            raise CompileError(f"--shape gives the input '{name}' two shapes; expected one")
    return shapes


def _constants(texts: list[str]) -> dict[str, tuple[float, ...]]:
    """ "name=1200,1800", or a file of numbers; a name may have "=" in it."""
    constants: dict[str, tuple[float, ...]] = {}
    for text in texts:
        name, _, numbers = text.rpartition("=")
        try:
            values = _saved(numbers) if numbers.endswith(".npy") else tuple(map(float, numbers.split(",")))
        except OSError as error:
            raise CompileError(f"--constant {text}: {error.strerror}") from error
        except (AttributeError, EOFError, TypeError, ValueError, zipfile.BadZipFile):
            values = ()
        if not name or not values:
            raise CompileError(
                f"--constant {text}: expected INPUT=NUMBER,.. such as orig_im_size=1200,1800, or a file of such "
                "numbers that numpy saved as INPUT=FILE.npy"
            )
        if constants.setdefault(name, values) != values:
            raise CompileError(f"--constant gives the input '{name}' two values; expected one")
    return constants


def _saved(path: str) -> tuple[float, ...]:
    with open(path, "rb") as file:
        return tuple(np.load(file).astype(np.float64).ravel().tolist())


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
