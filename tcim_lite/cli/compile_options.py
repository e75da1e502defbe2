"""The options of `tcim-lite compile`: one table, by what they are for."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any, Literal

from ..models.common.profiles import ACTIVATIONS, QUANTS
from ..models.compiler import CompileOptions
from ..text_encoders import POOLINGS

# What the compiler takes where an option is not given; nothing to show where that depends on the model.
_DEFAULTS = {field.name: field.default for field in fields(CompileOptions) if field.default not in (MISSING, None)}


@dataclass(frozen=True, slots=True)
class Option:
    """An option.

    Attributes:
        flags: How it is given.
        help: What it does.
        how: What else `add_argument` takes of it. A field of `CompileOptions` has the default of that.
    """

    flags: tuple[str, ...]
    help: str
    how: dict[str, Any]

    @property
    def name(self) -> str:
        """Of its value among the arguments."""
        return str(self.how.get("dest") or self.flags[-1].lstrip("-").replace("-", "_"))

    def add(self, parser: argparse._ActionsContainer) -> None:
        """Adds it to a parser or to a group of one."""
        how = dict(self.how)
        if self.flags[0].startswith("-") and "default" not in how:
            how["default"] = _DEFAULTS.get(self.name, argparse.SUPPRESS)
        parser.add_argument(*self.flags, help=self.help, **how)


def _option(*flags: str, help: str, **how: Any) -> Option:
    return Option(flags, help, how)


def _flag(*flags: str, help: str, **how: Any) -> Option:
    return _option(*flags, help=help, **{"action": "store_true", "default": False, **how})


@dataclass(frozen=True, slots=True)
class Section:
    """Options with a heading of their own in the help.

    Attributes:
        of: Models that they are for.
        options: These.
        title: The heading; empty for none.
        about: What is said below it.
    """

    of: Literal["all", "language", "network", "images"]
    options: tuple[Option, ...]
    title: str = ""
    about: str | None = None


_OF_ALL = Section(
    "all",
    (
        _option(
            "checkpoint",
            metavar="MODEL",
            type=Path,
            help="Hugging Face folder with config.json and safetensors, a GGUF file (its first part), an ONNX file, or "
            "the config.yml of the vendor's hmatc",
        ),
        _option("-o", "--output", metavar="OUT", type=Path, help="package folder to write"),
        _option("--name", help="prefix of the package's files (default: model_type of config.json, such as qwen3)"),
        _option(
            "--batch",
            metavar="B",
            type=int,
            default=argparse.SUPPRESS,
            help="slots of the decode graph (default: 1); of a network axis 0 of its inputs",
        ),
        _option(
            "--quant",
            choices=QUANTS,
            default=argparse.SUPPRESS,
            help="weights and activations of the body (default: w4a8h0_ssfp, of an ONNX network w8a8h1_sefp)",
        ),
        _flag("--self-contained", help="put the weights into every .hmm file instead of one .hmw"),
        _flag("-q", "--quiet", help="print warnings and errors only"),
    ),
)
_OF_LANGUAGE = Section(
    "language",
    (
        _option("--prefill-length", metavar="P", type=int, help="tokens in a prefill chunk"),
        _option(
            "--context-length",
            metavar="C",
            type=int,
            help="rows of the KV caches (2048, or fewer where the model has fewer)",
        ),
        _flag("--all-logits", help="prefill returns the logits of all rows, [1, P, V]"),
        _flag("--argmax", help="decode also returns the ids of the largest logits"),
        _option(
            "--hidden-states",
            metavar="N",
            nargs="?",
            type=int,
            const=-1,
            help="graphs return hidden states, [1, 1, H], without a head: -1 what the final norm gives (the default), "
            "-2 what the last layer would read, and so on, as hidden_states of transformers",
        ),
        _flag(
            "--position-ids",
            help="graphs take the positions of their tokens as input 3, int32 [1, P | 1], as the vendor's exports of "
            "Llama",
        ),
        _flag(
            "--masks", help="graphs take attention masks from input 3 on, as the vendor's (gpt-oss, Laguna, Gemma 4)"
        ),
        _flag(
            "--split-conv",
            help="linear attention: past_conv_cache is split in q, k and v, as the vendor's exporter does by default",
        ),
        _flag(
            "--recurrent-in-place",
            help="linear attention: prefill updates past_recurrent_state where it is, without an output",
        ),
        _option("--lora", metavar="ADAPTER", type=Path, help="PEFT folder, whose matrices are inputs of the graphs"),
        _option(
            "--verify-length",
            metavar="T",
            type=int,
            help="also write a verify graph: T tokens in, the logits of all T out (default: none; with a draft 5)",
        ),
        _option(
            "--audio-frames",
            metavar="N",
            type=int,
            help="frames that the encoder of Qwen3-ASR, GLM-ASR, Gemma 4 or Fun-Audio-Chat takes, 100 a second "
            "(default: 3000, of the last 800)",
        ),
        _option("--pipeline", metavar="S", type=int, help="also write prefill, decode and verify in S stages"),
        _option("--ndevice", metavar="N", type=int, help="also write .hmms files for N devices together"),
        _flag(
            "--no-single-device",
            dest="single_device",
            action="store_false",
            default=argparse.SUPPRESS,
            help="with --ndevice: leave out the graphs for one device",
        ),
        _option(
            "--head-quant",
            choices=QUANTS,
            help="as --quant, for the head (default: w8a8h1_sefp, in float packages that of the body)",
        ),
        _option(
            "--activations",
            choices=ACTIVATIONS,
            help="how quantised Linears round what they read; hidden_exponent: the vendor's block format, on the CPU "
            "only",
        ),
        _flag("--random-weights", help="draw the weights: a config.json is enough (for benchmarks)"),
        _option("--seed", type=int, help="for --random-weights"),
    ),
    "language models",
)
_OF_DRAFTS = Section(
    "language",
    (
        _option("--draft", metavar="MODEL", type=Path, help="its checkpoint (default: the target's)"),
        _flag(
            "--mtp",
            help="use the checkpoint's own layer of multi-token prediction instead: NAME_prefill_mtp and "
            "NAME_decode_mtp; NAME_decode then verifies T tokens (Qwen3.5, Qwen3.5 MoE and Qwen3-Next)",
        ),
        _option("--draft-quant", choices=QUANTS, help="as --quant (default: that of the target)"),
        _option("--draft-layers", metavar="K", type=int, help="use its first K blocks only"),
    ),
    "speculative decoding",
    "Any of these also writes a draft model, NAME_prefill_draft and NAME_decode_draft.",
)
_OF_VISION = Section(
    "language",
    (
        _option(
            "--vision",
            metavar="HxW",
            nargs="?",
            const="default",
            help="also write the vision tower, NAME_visual.hmm, for images of this height and width in pixels "
            "(448x448); of Qwen2-VL and GLM-OCR one for each of some sizes, such as 1036x1036,140x392 (eleven; "
            "672x672); of Qwen3.5 also NAME_visual_mN.hmm for images of up to N tokens, such as 96,384 "
            "(96,196,384,704,1536); of MiniCPM-V two graphs for images of up to so many patches (1536, 1600); of "
            "Gemma 4 for images of up to so many tokens (280), or of one size",
        ),
        _option(
            "--vision-quant",
            choices=QUANTS,
            help="as --quant, for the tower (default: w8a8h1_sefp, in float packages that of the body)",
        ),
        _flag(
            "--vision-mask",
            help="the tower of Qwen2.5-VL takes a mask of its windows as input 2, as some of the vendor's do",
        ),
    ),
    "vision-language models",
)
_OF_NETWORKS = Section(
    "network",
    (
        _option(
            "--shape",
            metavar="INPUT=N,..",
            action="append",
            help="shape of an input, such as images=1,3,640,640; repeatable",
        ),
        _option(
            "--constant",
            metavar="INPUT=NUMBER,..",
            action="append",
            help="make an input a constant: a switch or a size, such as use_cache_branch=1; one number fills it, "
            "INPUT=FILE.npy gives numbers that numpy saved",
        ),
        _option(
            "--end-at",
            metavar="VALUE",
            action="append",
            help="end the model at this value: an output instead of those of the file; repeatable",
        ),
        _option(
            "--begin-at",
            metavar="VALUE",
            action="append",
            help="begin the model at this value: an input, before the file's; --shape may give its shape; repeatable",
        ),
        _option(
            "--rest",
            metavar="FILE",
            type=Path,
            help="write what is left to the host as an ONNX file; without --end-at, what is not supported and what "
            "follows from it",
        ),
        _option(
            "--lengths",
            metavar="L,..",
            help="numbers of tokens of an encoder of texts, such as 32,128,512: a graph NAME_L.hmm for each, of which "
            "`serve` runs each text in the shortest that holds it",
        ),
        _option(
            "--tokenizer",
            metavar="FOLDER",
            type=Path,
            help="the checkpoint of an encoder, whose tokenizer and configs `serve` needs (default: the folder of the "
            "model, or the one above, if it has them)",
        ),
        _option(
            "--pooling",
            choices=POOLINGS,
            help="how an encoder makes a vector of hidden states, if its checkpoint has no 1_Pooling/config.json",
        ),
        _flag("--check", help="count the ops and name those that are not supported; write nothing"),
        _option(
            "--image",
            metavar="INPUT=FORMAT,H,W",
            action="append",
            help="feed an input with uint8 images through the chip's resizer: images=YUV420SP,720,1024; a guess",
        ),
    ),
    "ONNX networks",
)
_OF_IMAGES = Section(
    "images",
    (
        _option(
            "--image-crop",
            metavar="static|dynamic|Y,X,H,W",
            default="static",
            help="which part of the image: the whole, this one, or what one more input says (dynamic)",
        ),
        _option(
            "--image-parts",
            metavar="N",
            type=int,
            default=1,
            help="parts of each image, with a dynamic crop: the network's batch is N times that of the images",
        ),
        _option(
            "--image-matrix",
            choices=("bt601", "bt709", "bt601-video", "bt709-video"),
            default="bt601",
            help="from YUV to colours; video: Y has 16 to 235",
        ),
        _option("--image-mean", metavar="R,G,B", default="0,0,0", help="means to subtract, for values of 0 to 255"),
        _option("--image-std", metavar="R,G,B", default="1,1,1", help="deviations to divide by"),
        _option("--image-fill", metavar="R,G,B", default="0,0,0", help="colour around a dynamic crop"),
        _flag("--image-bgr", help="the network takes blue, green, red"),
    ),
    "ONNX networks fed with images (--image)",
)
SECTIONS = (_OF_ALL, _OF_LANGUAGE, _OF_DRAFTS, _OF_VISION, _OF_NETWORKS, _OF_IMAGES)


def options_of(models: Literal["all", "language", "network", "images"]) -> Iterator[Option]:
    """Yields the options that are for these models alone."""
    for section in SECTIONS:
        if section.of == models:
            yield from section.options


def given(args: argparse.Namespace, models: Literal["language", "network", "images"]) -> str | None:
    """Returns the first of them that is not what it is when nobody gives it."""
    for option in options_of(models):
        default = args.default_of(option.name)
        if getattr(args, option.name, default) != default:
            return option.flags[-1]
    return None


def compile_options(args: argparse.Namespace) -> CompileOptions:
    """Returns what the arguments ask for, of a model that is no network."""
    names = {field.name for field in fields(CompileOptions)}
    return CompileOptions(**{name: value for name, value in vars(args).items() if name in names})
