"""Compiles an ONNX file into a package: `NAME.hmm`, and `custom_msg` as the vendor's converter writes it."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tcim_lite.hmm import Value, model_bytes, write_model
from tcim_lite.text_encoders import POOLINGS

from ..common.errors import CompileError
from ..common.package import checkpoint_of, staged_package
from ..common.profiles import Profile, profile_for
from .cut import Cut, cut_of
from .deciding import Deciding, deciding_inputs
from .encoder_files import encoder_folder, write_encoder_files
from .errors import UnsupportedNodeError
from .fuse import fuse
from .hmonnx import is_hmonnx
from .lowering import lower_network
from .network import Network
from .read import expanded, load, read
from .resizer import NO_RESIZER, ImageInput
from .rest import rest_of
from .survey import ShapesOnly, WeightsRead, survey

if TYPE_CHECKING:
    import onnx

QUANTS = ("w8a8h1_sefp", "float16", "float32")


@dataclass(frozen=True, kw_only=True)
class OnnxOptions:
    """What `compile_onnx` does.

    Attributes:
        model: The ONNX file.
        output: Package folder to write; None for `check_onnx`.
        name: Of the `.hmm`, without its ending; None: the file's, with "/" and ":" as "_".
        quant: One of `QUANTS`.
        batch: Extent of axis 0 of inputs whose file leaves it open; None: there are none.
        shapes: Of inputs, by name, whose file leaves extents open.
        images: Inputs that are fed with uint8 YUV images, by name.
        ends: Values that are the outputs instead of the file's; none: the file's are.
        begins: Values that are the first inputs; what they are made of is left out.
        constants: Numbers of inputs that are constants instead, by name; one number fills an input.
        tokenizer: Folder of the checkpoint of an encoder of texts, whose tokenizer and configs the package gets; None:
            the folder of `model`, or the one above it, if that has them.
        pooling: How an encoder makes a vector of hidden states, one of `POOLINGS`; None: as the checkpoint says.
        rest: ONNX file to write with what is left to the host behind `ends`; without `ends`, those of `cut_of`.
    """

    model: Path
    output: Path | None = None
    name: str | None = None
    quant: str = "w8a8h1_sefp"
    batch: int | None = None
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    images: Mapping[str, ImageInput] = field(default_factory=dict)
    ends: tuple[str, ...] = ()
    begins: tuple[str, ...] = ()
    constants: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    rest: Path | None = None
    tokenizer: Path | None = None
    pooling: str | None = None

    def __post_init__(self) -> None:
        """Raises CompileError for a value that cannot be."""
        if self.quant not in QUANTS:
            raise CompileError(f"--quant {self.quant} is not for ONNX models; choose from {', '.join(QUANTS)}")
        if self.batch is not None and self.batch < 1:
            raise CompileError(f"--batch {self.batch}: expected 1 or more")
        if self.pooling is not None and self.pooling not in POOLINGS:
            raise CompileError(f"--pooling {self.pooling}: choose from {', '.join(POOLINGS)}")


@dataclass(frozen=True)
class OnnxResult:
    """What was written.

    Attributes:
        path: The `.hmm`.
        ops: How many of each op its graph has.
        saturated: Weights beyond fp16 that were clamped.
        clamped_codes: Of HMONNX, 8-bit codes of -128, which became -127.
        experimental: The model is HMONNX.
        checkpoint: Where the tokenizer and the configs of an encoder were copied from.
    """

    path: Path
    ops: Counter[str]
    saturated: int
    clamped_codes: int = 0
    experimental: bool = False
    checkpoint: Path | None = None


@dataclass(frozen=True)
class OnnxCheck:
    """What `check_onnx` found.

    Attributes:
        ops: How many of each op the model has.
        missing: Of those that are not supported, how many nodes for which reason; "" where the op is unknown here.
        experimental: The model is HMONNX.
        cut: Where to end the model, if anything is missing and it can be ended before.
        deciding: Which inputs, as constants, make the first node supported that is not.
    """

    ops: Counter[str]
    missing: dict[str, Counter[str]]
    experimental: bool
    cut: Cut | None = None
    deciding: Deciding | None = None


def is_onnx(path: Path) -> bool:
    """Whether a path names an ONNX file, by its ending."""
    return path.suffix.lower() == ".onnx"


def compile_onnx(options: OnnxOptions) -> OnnxResult:
    """Writes the package that `options` describe.

    Raises:
        CheckpointError: The file is no ONNX model, or contradicts itself.
        UnsupportedNodeError: A node that is not supported, named; and the `constants` that make it so, or the `ends`
            before it, if there are some.
        CompileError: An input's shape is not known, or the output cannot be written.
    """
    output = options.output
    assert output is not None
    name = options.name if options.name is not None else re.sub(r"[/:]", "_", options.model.stem)
    if not name.strip() or re.search(r"[/\0]", name):
        raise CompileError(f"--name {name!r} is no file name")
    _check_place(output / f"{name}.hmm")
    if options.rest is not None:
        _check_rest(options.rest, options.model, output / f"{name}.hmm")
    if options.rest is not None and not options.ends:
        options = replace(options, ends=_ends(options))
    network, profile = _network(options), profile_for(options.quant)
    try:
        network = fuse(network, profile=profile)
        graph, weights, emit = lower_network(network, profile, options.images)
    except UnsupportedNodeError as error:
        cut, deciding = cut_of(_network(options)), deciding_inputs(partial(_network, options))
        raise UnsupportedNodeError("; ".join(str(part) for part in (error, deciding, cut) if part)) from error
    checkpoint = encoder_folder(options, [port.name for port in network.inputs])
    with staged_package(output, re.compile(re.escape(f"{name}.hmm")), of_a_network=True) as staging:
        try:
            write_model(staging / f"{name}.hmm", graph, weights, custom_msg=_custom_msg(network, options.images))
        except ValueError as error:
            raise CompileError(f"{options.model.name}: {error}") from error
        if checkpoint is not None:
            write_encoder_files(options, checkpoint, staging, f"{name}.hmm")
        rest = None if options.rest is None else _rest(options, [graph.values[i] for i in graph.outputs])
    if options.rest is not None and rest is not None:
        _save(rest, options.rest)  # which may be in the folder of the package
    ops = Counter(op.kind for op in graph.ops)
    path = output / f"{name}.hmm"
    return OnnxResult(path, ops, emit.saturated, emit.clamped_codes, is_hmonnx(network), checkpoint)


def _ends(options: OnnxOptions) -> tuple[str, ...]:
    """Where to end so that the rest is what cannot be compiled."""
    cut = cut_of(_network(options))
    if cut is None or not cut.left:
        missing = _missing(_network(options))
        found = "nothing can be compiled before what is not supported" if missing else "every node is supported"
        raise CompileError(f"--rest: {found}; leave it out, or say with --end-at where to end")
    return cut.ends


def _rest(options: OnnxOptions, ends: Sequence[Value]) -> onnx.ModelProto:
    whole = survey(_network(replace(options, ends=()))).values
    return rest_of(expanded(load(options.model), options.model)[0], whole, ends, options.begins)


def _check_rest(rest: Path, model: Path, package: Path) -> None:
    """Refuses, before anything is written, what cannot be written or would replace what is needed."""
    if rest.resolve() in (model.resolve(), package.resolve()):
        raise CompileError(f"--rest {rest}: this is the file of the model or of the package; name another one")
    if rest.is_dir():
        raise CompileError(f"--rest {rest}: this is a folder; name a file")
    if not rest.parent.is_dir() and rest.parent.resolve() != package.parent.resolve():
        raise CompileError(f"--rest {rest}: there is no folder {rest.parent}; make it, or name another file")


def _save(model: onnx.ModelProto, path: Path) -> None:
    import onnx

    try:
        onnx.save(model, path)
    except (OSError, ValueError) as error:
        raise CompileError(f"--rest {path}: {error}") from error


def _check_place(path: Path) -> None:
    """Refuses to replace a graph that was compiled from a checkpoint: its package would go on with another one."""
    if (model := checkpoint_of(path)) is not None:
        raise CompileError(
            f"{path} is a graph of a package compiled from a checkpoint of {model}, and the network would replace it; "
            "give another --name, or write to a folder of its own"
        )


def check_onnx(options: OnnxOptions) -> OnnxCheck:
    """Counts the ops of a model: all of them, and those that are not supported. Nothing is compiled.

    A node counts as not supported if it cannot be lowered. One that reads the results of such a node is judged by its
    op alone. A model without such nodes is lowered as `compile_onnx` does it, but without its weights.

    Raises:
        CheckpointError: The file is no ONNX model, or contradicts itself.
        CompileError: An input or an output cannot be what it is, or an image does not fit its input.
    """
    network, profile = _network(options), profile_for(options.quant)
    ops = Counter(node.kind for node in network.nodes)
    missing = _missing(network)
    if not missing:
        fused = fuse(network, profile=profile)
        if not (missing := _missing(fused, profile)):
            lower_network(fused, profile, options.images, ShapesOnly)
            return OnnxCheck(ops, missing, is_hmonnx(fused))
    deciding = deciding_inputs(partial(_network, options))
    return OnnxCheck(ops, missing, is_hmonnx(network), cut_of(_network(options)), deciding)


def _missing(network: Network, profile: Profile | None = None) -> dict[str, Counter[str]]:
    """The nodes that cannot be lowered, as `OnnxCheck` has them."""
    refused = survey(network, profile, WeightsRead).refused
    missing: dict[str, Counter[str]] = {}
    for node in network.nodes:
        if (reason := refused.get(id(node))) is not None:
            missing.setdefault(node.kind, Counter())[reason] += 1
    return missing


def onnx_bytes(
    model: onnx.ModelProto,
    quant: str = "float32",
    folder: Path | None = None,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
) -> bytes:
    """The `.hmm` of a model in memory, as bytes that `Module.load` takes. `folder`: where its external data is."""
    profile = profile_for(quant)
    network = fuse(read(model, folder and folder / "model.onnx", shapes), profile=profile)
    graph, weights, _ = lower_network(network, profile)
    try:
        return model_bytes(graph, weights, custom_msg=_custom_msg(network, {}))
    except ValueError as error:
        raise CompileError(str(error)) from error


def _network(options: OnnxOptions, more: Mapping[str, tuple[float, ...]] = {}) -> Network:
    """The model with `more` constants instead of inputs."""
    fixed = {**options.constants, **more}
    model = options.model
    return read(load(model), model, options.shapes, options.batch, options.ends, options.begins, fixed)


def _custom_msg(network: Network, images: Mapping[str, ImageInput]) -> str:
    """Per input what the vendor's programs read. They convert the mode to an int, so null would end them."""
    message: dict[str, Any] = {}
    for port in network.inputs:
        image, shape = images.get(port.name), list(port.shape)
        mode, config = (image.mode, image.config()) if image is not None else (NO_RESIZER, {})
        message[port.name] = {"shape": shape, "resizer_mode": mode, "input_cfg": {"shape": shape, **config}}
    return json.dumps(message)
