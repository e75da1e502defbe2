"""`tcim-lite dump`: the tensors of a run as .npy files."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

HELP = "write the tensors of a run as .npy files"
DESCRIPTION = (
    "Runs a package on a prompt, or one .hmm on given inputs, and writes inputs, outputs, taps and the rows written to "
    "caches under the names of the vendor's golden files."
)
_STEPS = 4  # of the answer, unless --steps says otherwise


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("package", metavar="DIR|FILE.hmm", type=Path, help="a package folder, or one graph")
    parser.add_argument("-o", "--output", metavar="DIR", type=Path, required=True, help="folder to write")
    add_call_arguments(parser)
    parser.add_argument("--answer", metavar="IDS", default="", help="token ids to decode before greedy ones, as 5,6")
    parser.add_argument(
        "--taps",
        metavar="PATTERNS",
        default="@stored",
        help="values inside the graph, a comma list as in TCIM_LITE_TAPS (%(default)s: what a run stores; *: all)",
    )
    parser.add_argument("--only-step", type=int, metavar="N", help="write only this step")
    parser.add_argument(
        "--input",
        metavar="[NAME=]PATH",
        action="append",
        default=[],
        help="of a .hmm or a network: an input's .npy file, or a folder with the golden files of all; repeat",
    )


def add_call_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds --prompt, --tokens, --recording, --steps and --name."""
    prompt = parser.add_mutually_exclusive_group()
    prompt.add_argument("--prompt", metavar="TEXT", help="needs pip install 'tcim-lite[chat]'")
    prompt.add_argument("--tokens", metavar="IDS", help="the prompt as token ids, as 1,2,3")
    prompt.add_argument(
        "--recording", metavar="FILE", type=Path, help="make the calls of a recording instead (docs/recording.md)"
    )
    parser.add_argument("--steps", type=int, default=_STEPS, metavar="N", help="decode steps (%(default)s)")
    parser.add_argument("--name", help="prefix of the files, when the folder holds several packages")


def one_graph(path: Path, args: argparse.Namespace) -> Path:
    """The `.hmm` of a folder that holds a network, or `path`; with --input, which is for one graph."""
    from ..bench.network import network_file

    if not args.input or not path.is_dir():
        return path
    return network_file(path, args.name) or path


def refuse_call_options(args: argparse.Namespace, paths: Sequence[Path]) -> None:
    """Raises ArgumentError for an option that says how a package is called: one graph runs once, on its inputs.

    Args:
        args: Of the command.
        paths: Where its graphs are; of a folder, --name says which one.
    """
    from ..errors import ArgumentError

    options = ["prompt", "tokens", "recording", "answer", "only_step"]
    if not any(path.is_dir() for path in paths):
        options.append("name")
    given = [name for name in options if getattr(args, name, None) not in (None, "")]
    if args.steps != _STEPS:
        given.append("steps")
    if given:
        raise ArgumentError(f"--{given[0].replace('_', '-')} is for packages; a .hmm runs once, on what --input gives")


def token_ids(text: str, option: str) -> list[int]:
    """The ids of a comma list.

    Raises:
        ArgumentError: It is none.
    """
    from ..errors import ArgumentError

    try:
        return [int(part) for part in text.split(",") if part.strip()]
    except ValueError:
        raise ArgumentError(f"{option} {text!r:.200}: expected token ids such as 1,2,3") from None


def prompt_of(args: argparse.Namespace, tokenizer_folder: Path) -> list[int]:
    """The ids of --tokens or --prompt; without either, a short prompt of ids that every vocabulary has."""
    if args.tokens is not None:
        return token_ids(args.tokens, "--tokens")
    if args.prompt is None:
        return list(range(3, 19))

    from ..llm.tokenizer import encode_chat, load_tokenizer

    return encode_chat(load_tokenizer(tokenizer_folder), [{"role": "user", "content": args.prompt}], raw=True)


def run(args: argparse.Namespace) -> int:
    """Writes the folder."""
    from .. import __version__
    from ..diff.dump import Calls, dump_graph, dump_package, dump_recording, environment
    from ..diff.folder import DumpWriter
    from ..errors import ArgumentError

    taps = [pattern for pattern in args.taps.split(",") if pattern]
    source = {"package": str(args.package.resolve()), "version": __version__, "environment": environment()}
    path = one_graph(args.package, args)
    if args.recording is not None:
        with DumpWriter(args.output, source) as writer:
            dump_recording(args.recording, args.package, writer, taps, args.only_step)
    elif path.is_dir():
        from ..llm import Package

        if args.input:
            raise ArgumentError("--input is for one .hmm or a network; a package takes --prompt or --tokens")
        try:
            package = Package.open(args.package, args.name)
            prompt = prompt_of(args, package.tokenizer_folder)
        except (ValueError, ImportError) as error:
            raise ArgumentError(str(error)) from None
        calls = Calls(prompt, token_ids(args.answer, "--answer"), args.steps)
        with DumpWriter(args.output, source) as writer:
            dump_package(package, calls, writer, taps, args.only_step)
    elif not args.package.exists():
        raise ArgumentError(f"{args.package}: there is no such file or folder; give the folder of a package, or a .hmm")
    else:
        refuse_call_options(args, [args.package])
        with DumpWriter(args.output, source) as writer:
            dump_graph(path, _inputs(args.input), writer, taps)
    count = sum(len(step.tensors) for step in writer.steps)
    print(f"{args.output}: {count} tensors of {len(writer.steps)} steps")
    return 0


def _inputs(given: list[str]) -> dict[str, Path]:
    found: dict[str, Path] = {}
    for text in given:
        name, separator, file = text.rpartition("=")
        found[name if separator else ""] = Path(file)
    return found
