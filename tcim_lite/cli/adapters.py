"""`--lora NAME[=DIR]` of generate, chat and serve: which adapters answer."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..llm.package import Package


def add_adapter_argument(parser: argparse.ArgumentParser, help_text: str) -> None:
    """Adds --lora."""
    parser.add_argument("--lora", action="append", default=[], metavar="NAME[=DIR]", help=help_text)


def given_adapters(args: argparse.Namespace) -> dict[str, Path | None]:
    """Names of --lora, each with its folder; None where none is given.

    Raises:
        ValueError: A name or folder is empty, or a name is given twice.
    """
    found: dict[str, Path | None] = {}
    for text in args.lora:
        name, equals, folder = text.partition("=")
        if not name or (equals and not folder):
            raise ValueError(f"--lora {text!r}: expected NAME or NAME=DIR")
        if name in found:
            raise ValueError(f"--lora {text!r}: {name!r} is given twice; leave one out, or give it another name")
        found[name] = Path(folder) if equals else None
    return found


def adapter_to_compile(args: argparse.Namespace) -> Path | None:
    """The PEFT folder of --lora beside a checkpoint; None without --lora.

    Raises:
        ValueError: As `given_adapters`; several, or one without a folder.
    """
    given = given_adapters(args)
    if len(given) > 1:
        raise ValueError(
            f"--lora of {len(given)} adapters beside a checkpoint, from which one can be compiled; run `tcim-lite "
            "compile CHECKPOINT -o OUT --lora ADAPTER` once for each, and give OUT"
        )
    for name, folder in given.items():
        if folder is None:
            raise ValueError(f"--lora {name} beside a checkpoint: give the folder of the PEFT adapter, {name}=DIR")
        return folder
    return None


def adapters_of(args: argparse.Namespace, package: Package) -> dict[str, Path]:
    """The adapters of --lora, and the folders with their inputs.

    Raises:
        ValueError: As `given_adapters`, or the package has none of a name.
    """
    found, own = {}, package.adapters
    was_compiled = Path(args.model) != package.folder  # from a checkpoint, with the adapter of --lora
    for name, folder in given_adapters(args).items():
        if folder is not None and not was_compiled:
            found[name] = folder
            continue
        name_there = name if folder is None else folder.resolve().name
        if name_there not in own:
            raise ValueError(
                f"--lora {name}: {package.folder} has no adapter of that name, but {', '.join(own) or 'none'}; give "
                f"the folder of its inputs, {name}=DIR, or compile it into the package with `tcim-lite compile "
                "CHECKPOINT -o PACKAGE --lora ADAPTER`"
            )
        found[name] = own[name_there]
    return found


def the_adapter(args: argparse.Namespace) -> str | None:
    """The one of --lora that answers, or None for the base model.

    Raises:
        ValueError: As `given_adapters`, or several are given.
    """
    given = given_adapters(args)
    if len(given) > 1:
        raise ValueError(f"--lora is given {len(given)} times; one adapter answers, and serve takes several")
    return next(iter(given), None)
