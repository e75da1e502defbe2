"""`tcim-lite pack`: a package folder to one GGUF file."""

from __future__ import annotations

import argparse
from pathlib import Path

HELP = "put a package into one GGUF file, as the vendor delivers models"
DESCRIPTION = (
    "Puts prefill, decode, embedding and tokenizer of a package into one GGUF file, for programs that load graphs from "
    "such a file (Option.set_model_offset). Compile the package with --self-contained. Needs the extra [gguf]."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("package", metavar="DIR", type=Path, help="folder that `tcim-lite compile` wrote")
    parser.add_argument("-o", "--output", metavar="FILE.gguf", type=Path, required=True, help="file to write")
    parser.add_argument(
        "--vision",
        action="store_true",
        help="put the vision graph into the file instead, as programs on llama.cpp take it beside the model (--mmproj)",
    )
    parser.add_argument("--name", help="prefix of the package's files, if the folder holds several packages")


def run(args: argparse.Namespace) -> int:
    """Writes the file and prints what is in it."""
    from ..errors import ArgumentError
    from ..llm.gguf import pack
    from ..llm.gguf_vision import pack_vision
    from ..llm.package import Package

    try:
        assets = (pack_vision if args.vision else pack)(Package.open(args.package, args.name), args.output)
    except ImportError as error:
        raise ArgumentError(f"{error}; pip install 'tcim-lite[gguf]'") from None
    except ValueError as error:
        raise ArgumentError(str(error)) from error
    print(f"{args.output}: {args.output.stat().st_size / 1e6:.2f} MB")
    for name, nbytes in assets.items():
        print(f"  {nbytes / 1e6:10.2f} MB  {name}")
    return 0
