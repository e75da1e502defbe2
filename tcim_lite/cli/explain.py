"""`tcim-lite explain`: what a finding of strict mode means."""

from __future__ import annotations

import argparse
import textwrap
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..layers import FindingKind


HELP = "say what a finding of strict mode means"
DESCRIPTION = "Says what a finding of strict mode means, by which rule, and what to do."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("code", metavar="CODE", nargs="?", help="such as S-101; without it, all codes are listed")
    parser.add_argument("--markdown", action="store_true", help="print docs/strict.md")


def run(args: argparse.Namespace) -> int:
    """Prints the page or the list."""
    from ..errors import ArgumentError
    from ..layers import catalogue

    kinds = {kind.code: kind for kind in catalogue()}
    if args.markdown:
        print(_document(list(kinds.values())), end="")
    elif args.code is None:
        for kind in kinds.values():
            print(f"{kind.code}  {kind.title}")
    elif args.code.upper() not in kinds:
        raise ArgumentError(f"there is no finding {args.code!r:.80}; `tcim-lite explain` lists them")
    else:
        print(_page(kinds[args.code.upper()]))
    return 0


def _page(kind: FindingKind) -> str:
    lines = [f"{kind.code}: {kind.title}", ""]
    for title, text in (("why", kind.why), ("rule", kind.rule), ("fault", kind.fault), ("fix", kind.fix)):
        lines.append(textwrap.fill(text, 100, initial_indent=f"{title:6} ", subsequent_indent=" " * 7))
    if kind.example:
        lines += ["", "Minimal example (the models are those of docs/strict.md):", "", "    import numpy as np"]
        lines += ["    import tcim_lite.runtime as rt", "", textwrap.indent(kind.example.rstrip(), "    ")]
    return "\n".join(lines)


_INTRODUCTION = """\
# Strict mode
<!-- Made by `tcim-lite explain --markdown` from csrc/layers/strict/catalogue.cpp: `make docs` does it. -->

Strict mode reports calls that work on the emulator but would fail on the card, and explains why failing calls fail. It
checks every call, from Python and from C++.

| `TCIM_LITE_STRICT` | effect |
|---|---|
| `off` (default) | no checks |
| `warn` | each finding is logged once per place in the program; the call continues |
| `error` | the call raises `StrictError`; for queued work, the next call of that module. In C++ the call fails |

In code, call `tcim_lite.layers.enable("strict", mode="error")`. `tcim_lite.layers.StrictError` is a `TcimError` with
the `code` of the finding and the `status` that the call has without strict mode (`ERR_UNDEFINED` if it succeeds
without). In tests, `pytest --tcim-strict` fails the test that caused a finding. Processes that a test starts are
checked only if `TCIM_LITE_STRICT` is set for them.

What the vendor's own examples do is not reported: a `current_length` set once, dummies named after `load`, caches read
back whole, float32 into float16 inputs, `valid_length` lowered to roll back, unused slots of a batch,
`Tensor(info).to_host()` for a host tensor.

New device memory holds 0xFF (NaN, or -1) instead of zeros, except caches and states, which stay zero. Objects that
existed before strict mode was enabled are not checked. A write to part of a cache through a view counts for all of its
rows. A finding names the Python line that called into `tcim_lite`, or the C++ call; `GetLastError()` returns its text.

Numbers such as C-7 name corners of the [API contract](conformance.md#the-api-contract). The examples below start with
`import numpy as np` and `import tcim_lite.runtime as rt` and use six models: `add.hmm` (`total` = `a` + `b`, float16
[2, 3]; `image` int8 [4]), `prefill.hmm` and `decode.hmm` (one attention layer, 4 and 1 tokens, context 32, `input_1`
[1, 4, 128]), `positions.hmm` (as `prefill.hmm`, with `position_ids` [1, 4]), `axes.hmm` (the same with positions along
time, height and width, [4] each), and `hybrid.hmm` (as `prefill.hmm`, with `linear_attn_mask` [1, 4] and a
state [1, 1, 4, 4]).
"""


def _document(kinds: list[FindingKind]) -> str:
    lines = [_INTRODUCTION, "| code | finding | fault |", "|---|---|---|"]
    lines += [f"| [{kind.code}](#{kind.code.lower()}) | {kind.title} | {kind.fault} |" for kind in kinds]
    for kind in kinds:
        lines += [
            "",
            f"## {kind.code}",
            f"**{kind.title}** {kind.why}",
            "",
            f"Rule: {kind.rule} Fault: {kind.fault}.",
            "",
        ]
        lines += [f"Fix: {kind.fix}"]
        if kind.example:
            lines += ["", "```python", kind.example.rstrip(), "```"]
    return "\n".join(lines) + "\n"
