"""The child that renders a chat template: JSON lines in, JSON lines out (chat_template.py is the other end)."""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from typing import Any, NoReturn

from ..own_process import limit_resource

_MEMORY_BYTES = 512 << 20


def main() -> None:
    """Reads the template, then answers conversations until the input ends."""
    hello = json.loads(sys.stdin.readline())
    render: Any = None
    for line in sys.stdin:
        try:
            if render is None:
                render = compiled(hello["template"], hello["variables"])
                _limit_memory()
            answer = {"text": render(json.loads(line))}
        except MemoryError:
            answer = {"error": f"it needs more than {_MEMORY_BYTES >> 20} MiB of memory"}
        except Exception as error:
            text = " ".join(str(error).split())
            answer = {"error": f"{type(error).__name__}: {text[:500]}"}
        print(json.dumps(answer), flush=True)


def compiled(source: str, variables: dict[str, str]) -> Any:
    """A function from arguments to text, in the environment that transformers gives templates."""
    import jinja2.ext
    import jinja2.sandbox

    class Generation(jinja2.ext.Extension):
        """`{% generation %}`, by which templates mark what the assistant said, for training."""

        tags = {"generation"}  # noqa: RUF012

        def parse(self, parser: Any) -> Any:
            next(parser.stream)
            return parser.parse_statements(("name:endgeneration",), drop_needle=True)

    def raise_exception(message: str) -> NoReturn:
        raise jinja2.exceptions.TemplateError(message)

    def to_json(value: Any, ensure_ascii: bool = False, **options: Any) -> str:
        return json.dumps(value, ensure_ascii=ensure_ascii, **options)

    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols]
    )
    environment.filters["tojson"] = to_json
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = time.strftime
    template = environment.from_string(source)
    return lambda arguments: template.render(**{**variables, **arguments})


def _limit_memory() -> None:
    with open("/proc/self/statm") as file:
        pages = int(file.read().split()[0])
    limit = pages * os.sysconf("SC_PAGESIZE") + _MEMORY_BYTES
    limit_resource(resource.RLIMIT_AS, limit)
    limit_resource(resource.RLIMIT_CORE, 0)


if __name__ == "__main__":
    main()
