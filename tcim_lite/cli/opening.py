"""What generate, chat and serve share: the model they are given, what guesses for it, devices, the log."""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from .adapters import adapter_to_compile

if TYPE_CHECKING:
    from ..llm.encoders import EncoderPackage
    from ..llm.engine.speculate import Speculate
    from ..llm.package import Package

COMPILE_OPTIONS = ("quant", "context_length", "prefill_length", "batch", "draft", "hidden_states")

# Graphs that a checkpoint gets for each way of guessing, unless other options say otherwise.
_VERIFY: dict[str, Any] = {"mtp": True, "verify_length": 5}
_GRAPHS_TO_GUESS = {"off": {}, "draft": {"mtp": True}, "lookup": _VERIFY, "auto": _VERIFY}

# Options that have other names where their values are checked.
_CHECKED_AS = {
    "chunks_per_step": "--prefill-per-decode",
    "max_body_bytes": "--max-body-mb",
    "max_waiting": "--max-queue",
    "shutdown_s": "--shutdown-timeout",
    "stall_s": "--stall-timeout",
    "timeout_s": "--timeout",
}


def add_model_arguments(parser: argparse.ArgumentParser, *, log_level: str = "warning") -> None:
    """Adds PACKAGE and the options of `open_package`, `devices_of` and `start_log`."""
    from ..models.common.profiles import QUANTS

    parser.add_argument(
        "model",
        nargs="?",
        metavar="PACKAGE",
        help="folder of a package; or of a checkpoint, a GGUF file or a name on the Hugging Face hub (Owner/Model): "
        "these are compiled first, once, into a cache folder",
    )
    parser.add_argument("--model", dest="model_option", metavar="PACKAGE", help="the same")
    parser.add_argument("--name", help="prefix of the files, when the folder holds several packages")
    parser.add_argument(
        "--devices", "--device", default="0", metavar="IDS", help="device ids, such as 0,1 (%(default)s)"
    )
    parser.add_argument("--pipeline", action="store_true", help="run the stages of a --pipeline package, one a device")
    parser.add_argument(
        "--speculate",
        choices=("off", "auto", "draft", "lookup"),
        help="guess tokens while one answer is being made; answers do not change (off; with --draft: draft)",
    )
    parser.add_argument("--log-file", type=Path, metavar="FILE", help="write the log there instead of stderr")
    parser.add_argument(
        "--log-level",
        default=log_level,
        choices=("debug", "info", "warning", "error"),
        help="%(default)s; info begins with all arguments",
    )
    group = parser.add_argument_group("a checkpoint instead of a package")
    group.add_argument("--quant", "--dtype", choices=QUANTS, help="as in `tcim-lite compile`, like the next four")
    group.add_argument("--context-length", type=int, metavar="C", help="rows of the KV caches")
    group.add_argument("--prefill-length", type=int, metavar="P", help="tokens in a prefill chunk")
    group.add_argument("--batch", type=int, metavar="B", help="slots of the decode graph")
    group.add_argument(
        "--draft", metavar="MODEL", help="the checkpoint of a draft model or of an assistant, which guesses tokens"
    )
    group.add_argument(
        "--local-files-only", action="store_true", help="use an earlier download from the hub, and ask no server"
    )


def take_model(args: argparse.Namespace) -> None:
    """Makes `--model PACKAGE` the same as PACKAGE; to be called before anything reads either.

    Raises:
        ValueError: Neither is given, or both.
    """
    if args.model_option is not None:
        if args.model == "-" and getattr(args, "stdin", "") is None:  # `generate --model PACKAGE -`
            args.model, args.stdin = None, "-"
        if args.model is not None:
            raise ValueError(f"PACKAGE is given twice: {args.model}, and {args.model_option} by --model")
        args.model = args.model_option
    if not args.model:
        raise ValueError("PACKAGE is missing: a folder that `tcim-lite compile` wrote, a checkpoint or a hub name")
    del args.model_option


def open_package(args: argparse.Namespace, **defaults: Any) -> Package:
    """The package of the command line; a checkpoint is downloaded and compiled where need be.

    Args:
        args: The command line; what it says of `CompileOptions` holds.
        defaults: Of the others, where the model takes them.

    Raises:
        FileNotFoundError: There is neither a package nor a checkpoint of that name.
        ValueError: As `Package.open`; options for the compiler beside a package.
        CompileError: As `cached_package` and `download`.
    """
    from ..llm.package import Package

    if (encoder := encoder_of(args)) is not None:
        raise ValueError(f"{encoder.folder} is an encoder, which writes no text; `tcim-lite serve` it")
    path, given = Path(args.model), {name: getattr(args, name, None) for name in COMPILE_OPTIONS}
    given = {name: value for name, value in given.items() if value is not None}
    if path.is_dir() and (any(path.glob("*_prefill*.hmm*")) or not (path / "config.json").is_file()):
        package = Package.open(path, args.name)
        if given.get("quant") == quant_of(package):
            del given["quant"]
        if given:
            options = ", ".join(f"--{name.replace('_', '-')}" for name in given)
            raise ValueError(
                f"{path} is compiled already ({quant_of(package)}), so {options} can change nothing; "
                "give the checkpoint"
            )
        _check_devices(args, package)
        return package
    return Package.open(_compiled(args, path, defaults, given), args.name)


def encoder_of(args: argparse.Namespace) -> EncoderPackage | None:
    """The package of the command line if it is an encoder that was compiled from ONNX.

    Raises:
        FileNotFoundError, ValueError: As `EncoderPackage.open`.
        HmmFormatError: A graph in the folder is damaged.
    """
    from ..llm.encoders import EncoderPackage

    folder = Path(args.model)
    return EncoderPackage.open(folder, args.name) if folder.is_dir() and EncoderPackage.is_in(folder) else None


def _check_devices(args: argparse.Namespace, package: Package) -> None:
    from .. import hmm

    count = len(shares_of(args)[0])
    if args.pipeline or count == 1 or not package.has("decode.hmms"):
        return  # what opens the graphs says what is wrong
    made_for = hmm.read(package.graph("decode.hmms")).ndevice
    if count != made_for:
        replicas = getattr(args, "replicas", 1)
        each = f" for each of {replicas} replicas" if replicas > 1 else ""
        raise ValueError(
            f"{package.folder} is compiled for {made_for} devices, --devices names {count}{each}; "
            "name as many, or compile with --ndevice for this number"
        )


def _compiled(args: argparse.Namespace, path: Path, defaults: Mapping[str, Any], given: Mapping[str, Any]) -> Path:
    from ..models.common.errors import CompileWarning
    from ..models.compiler.cache import cached_package, fitting

    if path.suffix in (".hmm", ".hmms", ".hmw"):
        raise ValueError(f"{path} is one file of a package; give its folder, {path.parent}")
    label = None if path.exists() else args.model
    adapter = adapter_to_compile(args)
    path, speculate = _found(args, args.model, "a package, a checkpoint folder"), speculate_of(args)
    draft = None if args.draft is None else _found(args, args.draft, "a checkpoint folder")
    options = {**fitting(path, {**defaults, **_GRAPHS_TO_GUESS[speculate]}, draft), **given}
    if draft is not None:
        options["draft"] = draft
    elif speculate == "draft" and "mtp" not in options:
        raise ValueError(
            f"--speculate draft: {path} has no layer of multi-token prediction that could guess; give a draft model or "
            "an assistant with --draft MODEL, or take --speculate lookup"
        )
    if adapter is not None:
        options["lora"] = adapter
    count = len(shares_of(args)[0])
    if args.pipeline:
        options = {**options, "pipeline": count}
    elif count > 1:
        options = {**options, "ndevice": count, "single_device": False}
    with warnings.catch_warnings():
        warnings.simplefilter("always", CompileWarning)
        warnings.showwarning = lambda message, *_, **__: say(f"warning: {message}")
        return cached_package(path, label=label, say=say, progress=True, name=args.name, **options)


def _found(args: argparse.Namespace, name: str, what: str) -> Path:
    """A checkpoint that is here, or is downloaded now."""
    from ..models.checkpoints.hub import download, is_hub_name

    path = Path(name)
    if path.exists():
        return path
    if not is_hub_name(name):
        raise FileNotFoundError(
            f"{name}: there is no such file or folder; expected {what}, a GGUF file or a name on the Hugging Face hub "
            "(Owner/Model)"
        )
    return download(name, local_files_only=args.local_files_only)


def speculate_of(args: argparse.Namespace) -> Speculate:
    """What guesses: what --speculate says, else the draft of --draft, else nothing.

    Raises:
        ValueError: A draft is given, and something else is to guess.
    """
    if args.draft is not None and args.speculate in ("off", "lookup"):
        raise ValueError(f"--speculate {args.speculate} with --draft {args.draft}, which would guess nothing; drop one")
    found: Speculate | None = args.speculate
    return found or ("off" if args.draft is None else "draft")


def quant_of(package: Package) -> str:
    """The profile of a package's weights, as its compiler wrote it down; "unknown" where it did not."""
    from .. import hmm

    found = sorted(package.folder.glob(f"{package.name}_decode*.hmm*"))
    message = json.loads(hmm.read(found[0]).custom_msg or "{}") if found else {}
    return str(message.get("quant", "unknown"))


def explained(work: Callable[[], int], extra: str) -> int:
    """The exit status of a command's work; an error that is the user's to mend is one line that says how."""
    try:
        return work()
    except ImportError as error:
        if (error.name or "").partition(".")[0] == "tcim_lite" or "pip install" in str(error):
            say(f"error: {error}")
        else:
            say(f"error: {error}; this command needs the extra: pip install 'tcim-lite[{extra}]'")
    except (ValueError, RuntimeError) as error:
        say(f"error: {_with_its_option(str(error))}")
    return 2


def _with_its_option(text: str) -> str:
    name, _, rest = text.partition("=")
    return f"{_CHECKED_AS[name]} {rest.partition(', or None')[0]}" if name in _CHECKED_AS else text


def say(line: str) -> None:
    """Prints a line beside the output."""
    print(line, file=sys.stderr, flush=True)


def text_of(text: str, name: str) -> str:
    """A text that was typed.

    Raises:
        ValueError: It has bytes that are no UTF-8, which Python keeps as lone surrogates.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{name} is not UTF-8 text") from None
    return text


def standard_input() -> TextIO:
    """`sys.stdin`.

    Raises:
        ValueError: It is closed.
    """
    if sys.stdin is None:
        raise ValueError("standard input is closed; there is nothing to read")
    return sys.stdin


def devices_of(args: argparse.Namespace) -> tuple[int, ...]:
    """The ids of --devices.

    Raises:
        ValueError: They are none.
    """
    try:
        return tuple(int(part) for part in args.devices.split(","))
    except ValueError:
        raise ValueError(f"--devices {args.devices!r}: expected ids such as 0 or 0,1") from None


def shares_of(args: argparse.Namespace) -> list[tuple[int, ...]]:
    """The ids of --devices, an equal share for each of --replicas, in order; one share without that option.

    Raises:
        ValueError: As `devices_of`, or the shares are not equal.
    """
    devices, count = devices_of(args), getattr(args, "replicas", 1)
    if count < 1 or len(devices) % count:
        raise ValueError(
            f"--replicas {count} of --devices {args.devices}: {len(devices)} devices cannot be shared equally; name as "
            "many for each"
        )
    size = len(devices) // count
    return [devices[begin : begin + size] for begin in range(0, len(devices), size)]


def start_log(args: argparse.Namespace) -> None:
    """Sets the log up, and tells it all arguments but keys at level info; a log file has that level at least."""
    level = logging.getLevelName(args.log_level.upper())
    if args.log_file is not None:
        level = min(level, logging.INFO)
    form = "%(asctime)s %(levelname)s %(name)s: %(message)s"
    logging.basicConfig(filename=args.log_file, level=level, format=form)
    for chatty in ("httpx", "httpx2", "huggingface_hub", "filelock"):
        logging.getLogger(chatty).setLevel(max(level, logging.WARNING))
    secret = ("api_key", "command", "prompt", "system")
    told = " ".join(f"{name}={value}" for name, value in sorted(vars(args).items()) if name not in secret)
    devices = os.environ.get("HOUMO_VISIBLE_DEVICES", "unset")
    logging.getLogger("tcim_lite").info("%s: %s HOUMO_VISIBLE_DEVICES=%s", args.command, told, devices)
