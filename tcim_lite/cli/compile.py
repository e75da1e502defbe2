"""`tcim-lite compile`: a Hugging Face checkpoint, a GGUF file or an ONNX network to a package folder."""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from pathlib import Path


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the sub-command."""
    from ..models.common.profiles import ACTIVATIONS, DEFAULT_ACTIVATIONS, QUANTS

    parser = commands.add_parser(
        "compile",
        help="compile a checkpoint or an ONNX network into a package folder",
        description="Compiles a checkpoint into OUT: prefill and decode graphs, shared weights, embedding, tokenizer. "
        "docs/compile.md lists the model families. Needs pip install 'tcim-lite[compile]', for GGUF 'tcim-lite[gguf]'. "
        "MODEL.onnx becomes one graph (docs/onnx.md; 'tcim-lite[onnx]'): --name, --batch, --quant, --shape and --check "
        "are for it.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument(
        "checkpoint",
        metavar="MODEL",
        type=Path,
        help="Hugging Face folder with config.json and safetensors, a GGUF file (its first part), or an ONNX file",
    )
    parser.add_argument(
        "-o", "--output", metavar="OUT", type=Path, help="package folder to write", default=argparse.SUPPRESS
    )
    parser.add_argument(
        "--name",
        default=argparse.SUPPRESS,
        help="prefix of the package's files (default: model_type of config.json, such as qwen3)",
    )
    parser.add_argument("--prefill-length", metavar="P", type=int, default=256, help="tokens in a prefill chunk")
    parser.add_argument("--context-length", metavar="C", type=int, default=2048, help="rows of the KV caches")
    parser.add_argument("--batch", metavar="B", type=int, default=1, help="slots of the decode graph")
    parser.add_argument("--all-logits", action="store_true", help="prefill returns the logits of all rows, [1, P, V]")
    parser.add_argument("--argmax", action="store_true", help="decode also returns the ids of the largest logits")
    parser.add_argument(
        "--hidden-states",
        metavar="N",
        nargs="?",
        type=int,
        const=-1,
        default=argparse.SUPPRESS,
        help="graphs return hidden states, [1, 1, H], without a head: -1 what the final norm gives (the default), -2 "
        "what the last layer would read, and so on, as hidden_states of transformers",
    )
    parser.add_argument(
        "--position-ids",
        action="store_true",
        help="graphs take the positions of their tokens as input 3, int32 [1, P | 1], as the vendor's Llama exports",
    )
    parser.add_argument(
        "--masks",
        action="store_true",
        help="graphs take attention masks from input 3 on, as the vendor's (gpt-oss, Laguna, Gemma 4)",
    )
    parser.add_argument(
        "--split-conv",
        action="store_true",
        help="linear attention: past_conv_cache is split in q, k and v, as the vendor's exporter does by default",
    )
    parser.add_argument(
        "--recurrent-in-place",
        action="store_true",
        help="linear attention: prefill updates past_recurrent_state where it is, without an output",
    )
    parser.add_argument(
        "--verify-length",
        metavar="T",
        type=int,
        default=argparse.SUPPRESS,
        help="also write a verify graph: T tokens in, the logits of all T out (default: none; with a draft 5)",
    )
    parser.add_argument(
        "--audio-frames",
        metavar="N",
        type=int,
        default=argparse.SUPPRESS,
        help="frames that the encoder of Qwen3-ASR, GLM-ASR or Fun-Audio-Chat takes, 100 a second (default: 3000, 800)",
    )
    parser.add_argument(
        "--pipeline", metavar="S", type=int, default=1, help="also write prefill and decode in S stages of equal blocks"
    )
    parser.add_argument(
        "--ndevice", metavar="N", type=int, default=1, help="also write .hmms files for N devices together"
    )
    parser.add_argument(
        "--no-single-device", action="store_true", help="with --ndevice: leave out the graphs for one device"
    )
    parser.add_argument(
        "--quant",
        choices=QUANTS,
        default=argparse.SUPPRESS,
        help="weights and activations of the body (default: w4a8h0_ssfp, of an ONNX network w8a8h1_sefp)",
    )
    parser.add_argument(
        "--head-quant",
        choices=QUANTS,
        default=argparse.SUPPRESS,
        help="the same for the head (default: w8a8h1_sefp, in float packages that of the body)",
    )
    parser.add_argument(
        "--activations",
        choices=ACTIVATIONS,
        default=DEFAULT_ACTIVATIONS,
        help="how quantised Linears round what they read; hidden_exponent: the vendor's block format, on the CPU only",
    )
    draft = parser.add_argument_group(
        "speculative decoding", "Any of these also writes a draft model, NAME_prefill_draft and NAME_decode_draft."
    )
    draft.add_argument(
        "--draft", metavar="MODEL", type=Path, default=argparse.SUPPRESS, help="its checkpoint (default: the target's)"
    )
    draft.add_argument(
        "--mtp",
        action="store_true",
        help="use the checkpoint's own layer of multi-token prediction instead: NAME_prefill_mtp and NAME_decode_mtp; "
        "NAME_decode then verifies T tokens (Qwen3.5, Qwen3.5 MoE and Qwen3-Next)",
    )
    draft.add_argument(
        "--draft-quant", choices=QUANTS, default=argparse.SUPPRESS, help="as --quant (default: that of the target)"
    )
    draft.add_argument(
        "--draft-layers", metavar="K", type=int, default=argparse.SUPPRESS, help="use its first K blocks only"
    )
    vision = parser.add_argument_group("vision-language models")
    vision.add_argument(
        "--vision",
        metavar="HxW",
        nargs="?",
        const="default",
        default=argparse.SUPPRESS,
        help="also write the vision tower, NAME_visual.hmm, for images of this height and width in pixels (448x448); "
        "of Qwen2-VL and GLM-OCR one for each of some sizes, such as 1036x1036,140x392 (eleven; 672x672); of Qwen3.5 "
        "also NAME_visual_mN.hmm for images of up to N tokens, such as 96,384 (96,196,384,704,1536); of MiniCPM-V two "
        "graphs for images of up to so many patches (1536, 1600)",
    )
    vision.add_argument(
        "--vision-quant",
        choices=QUANTS,
        default=argparse.SUPPRESS,
        help="as --quant, for the tower (default: w8a8h1_sefp, in float packages that of the body)",
    )
    vision.add_argument(
        "--vision-mask",
        action="store_true",
        default=argparse.SUPPRESS,
        help="the tower of Qwen2.5-VL takes a mask of its windows as input 2, as some of the vendor's do",
    )
    parser.add_argument(
        "--self-contained", action="store_true", help="put the weights into every .hmm file instead of one .hmw"
    )
    parser.add_argument(
        "--random-weights", action="store_true", help="draw the weights: a config.json is enough (for benchmarks)"
    )
    parser.add_argument("--seed", type=int, default=0, help="for --random-weights")
    network = parser.add_argument_group("ONNX networks")
    network.add_argument(
        "--shape",
        metavar="INPUT=N,..",
        action="append",
        default=argparse.SUPPRESS,
        help="shape of an input, such as images=1,3,640,640; repeatable",
    )
    network.add_argument(
        "--constant",
        metavar="INPUT=NUMBER,..",
        action="append",
        default=argparse.SUPPRESS,
        help="make an input a constant: a switch or a size, such as use_cache_branch=1; one number fills its shape",
    )
    network.add_argument(
        "--end-at",
        metavar="VALUE",
        action="append",
        default=argparse.SUPPRESS,
        help="end the model at this value: an output instead of those of the file; repeatable",
    )
    network.add_argument(
        "--begin-at",
        metavar="VALUE",
        action="append",
        default=argparse.SUPPRESS,
        help="begin the model at this value: an input, before the file's; --shape may give its shape; repeatable",
    )
    network.add_argument(
        "--check", action="store_true", help="count the ops and name those that are not supported; write nothing"
    )
    network.add_argument(
        "--image",
        metavar="INPUT=FORMAT,H,W",
        action="append",
        default=argparse.SUPPRESS,
        help="feed an input with uint8 images through the chip's resizer, such as images=YUV420SP,720,1024; a guess",
    )
    network.add_argument(
        "--image-crop",
        metavar="static|dynamic|Y,X,H,W",
        default="static",
        help="which part of the image: the whole, this one, or what one more input says (dynamic)",
    )
    network.add_argument(
        "--image-matrix",
        choices=("bt601", "bt709", "bt601-video", "bt709-video"),
        default="bt601",
        help="from YUV to colours; video: Y has 16 to 235",
    )
    network.add_argument(
        "--image-mean", metavar="R,G,B", default="0,0,0", help="means to subtract, for values of 0 to 255"
    )
    network.add_argument("--image-std", metavar="R,G,B", default="1,1,1", help="deviations to divide by")
    network.add_argument("--image-fill", metavar="R,G,B", default="0,0,0", help="colour around a dynamic crop")
    network.add_argument("--image-bgr", action="store_true", help="the network takes blue, green, red")
    parser.add_argument("-q", "--quiet", action="store_true", help="print warnings and errors only")
    parser.set_defaults(default_of=parser.get_default)


def run(args: argparse.Namespace) -> int:
    """Compiles and prints what was written."""
    from ..models.common.errors import CompileError, CompileWarning
    from ..models.onnx import is_onnx
    from .compile_onnx import refuse_without_images, run_onnx

    if is_onnx(args.checkpoint):
        return run_onnx(args)
    for option in ("shape", "constant", "check", "image", "end-at", "begin-at"):
        if getattr(args, option.replace("-", "_"), False):
            raise CompileError(f"--{option} is for ONNX networks; {args.checkpoint} is no .onnx file")
    refuse_without_images(args)
    if not hasattr(args, "output"):
        raise CompileError("-o OUT is missing: the package folder to write")
    from ..models.compiler import CompileOptions, compile_checkpoint

    options = CompileOptions(
        checkpoint=args.checkpoint,
        output=args.output,
        name=getattr(args, "name", None),
        prefill_length=args.prefill_length,
        context_length=args.context_length,
        batch=args.batch,
        all_logits=args.all_logits,
        argmax=args.argmax,
        hidden_states=getattr(args, "hidden_states", None),
        position_ids=args.position_ids,
        masks=args.masks,
        verify_length=getattr(args, "verify_length", None),
        pipeline=args.pipeline,
        ndevice=args.ndevice,
        single_device=not args.no_single_device,
        quant=getattr(args, "quant", "w4a8h0_ssfp"),
        head_quant=getattr(args, "head_quant", None),
        activations=args.activations,
        audio_frames=getattr(args, "audio_frames", None),
        random_weights=args.random_weights,
        seed=args.seed,
        self_contained=args.self_contained,
        mtp=args.mtp,
        split_conv=args.split_conv,
        recurrent_in_place=args.recurrent_in_place,
        **{key: value for key, value in vars(args).items() if key.startswith(("draft", "vision"))},
    )
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
