"""Options of generate and chat that say how an answer is made and where it ends."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..llm.engine import SamplingParams
    from ..llm.generation_defaults import GenerationDefaults

# Taken as they are; what is not given is left to the package.
_PLAIN = (
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "seed",
)


def add_sampling_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options that `sampling_params` reads."""
    group = parser.add_argument_group(
        "the answer", "What is not given is as the package's generation_config.json has it."
    )
    group.add_argument(
        "--max-new-tokens",
        "--max-tokens",
        "--max_tokens",
        type=int,
        metavar="N",
        help="end after N tokens (until an end token, or the context is full)",
    )
    group.add_argument("--temperature", type=float, metavar="T", help="0 is greedy")
    group.add_argument("--top-k", type=int, metavar="K", help="choose among the K likeliest tokens; 0: all")
    group.add_argument(
        "--top-p", type=float, metavar="P", help="choose among the likeliest tokens that together reach P; 1: all"
    )
    group.add_argument(
        "--min-p", type=float, metavar="P", help="leave out tokens less likely than P times the likeliest"
    )
    group.add_argument("--repetition-penalty", type=float, metavar="R", help="for tokens of prompt and answer; 1: none")
    group.add_argument("--presence-penalty", type=float, metavar="R", help="for tokens of the answer, once")
    group.add_argument("--frequency-penalty", type=float, metavar="R", help="for tokens of the answer, each time")
    group.add_argument("--logit-bias", action="append", metavar="ID=BIAS", help="add to a token's logit; repeatable")
    group.add_argument("--seed", type=int, metavar="N", help="equal seeds give equal answers")
    group.add_argument("--stop", action="append", metavar="TEXT", help="end the answer before this text; repeatable")
    group.add_argument(
        "--stop-token-id", action="append", type=int, metavar="ID", help="end the answer at this token; repeatable"
    )
    group.add_argument("--ignore-eos", action="store_true", help="go on after the package's end tokens")
    form = group.add_mutually_exclusive_group()
    form.add_argument("--json-schema", metavar="FILE", type=Path, help="the answer is JSON of this schema")
    form.add_argument("--regex", metavar="PATTERN", help="the answer matches this")
    form.add_argument("--choice", action="append", metavar="TEXT", help="the answer is one of these; repeatable")


def sampling_params(args: argparse.Namespace, defaults: GenerationDefaults, **more: Any) -> SamplingParams:
    """What the options say, and `defaults` where they do not; `more` are further arguments of SamplingParams.

    Raises:
        ValueError: A value out of its range, or a schema that is no text.
        OSError: The schema cannot be read.
    """
    from ..llm.engine import SamplingParams
    from ..llm.engine.structured import StructuredOutput
    from ..llm.text_file import read_text

    if args.max_new_tokens is not None and args.max_new_tokens < 1:
        raise ValueError(f"--max-new-tokens {args.max_new_tokens}: expected at least 1")
    changes = {name: value for name in _PLAIN if (value := getattr(args, name)) is not None}
    if args.logit_bias:
        changes["logit_bias"] = dict(map(_bias, args.logit_bias))
    if args.json_schema is not None:
        changes["structured"] = StructuredOutput(json=read_text(args.json_schema))
    elif args.regex is not None:
        changes["structured"] = StructuredOutput(regex=args.regex)
    elif args.choice:
        changes["structured"] = StructuredOutput(choice=tuple(args.choice))
    return SamplingParams.of(
        defaults,
        max_tokens=args.max_new_tokens,
        stop=tuple(args.stop or ()),
        stop_token_ids=frozenset(args.stop_token_id or ()),
        ignore_eos=args.ignore_eos,
        **changes,
        **more,
    )


def _bias(text: str) -> tuple[int, float]:
    token, _, bias = text.partition("=")
    try:
        return int(token), float(bias)
    except ValueError:
        raise ValueError(f"--logit-bias {text!r}: expected a token id and a number, such as 42=-5") from None
