"""Records docs/images/terminal.svg, the picture of the main page: real commands with what they print.

    pip install rich && python docs/make_terminal.py

Run it in the root of the repository with the package installed. Lines appear in the picture when they appeared here,
waits shortened to a second.
"""

import io
import os
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).parent.parent
WIDTH = 116  # columns
COMMANDS = (
    "tcim-lite compile examples/demo_checkpoint -o out/demo -q",
    'python examples/qwen3_chat.py out/demo --question "My name is Anna and I live in Oslo."'
    ' --question "What is 12 + 30?" --question "What is my name?"',
    "tcim-lite conformance",
)
# The library's template without its web fonts and window buttons: a page must not fetch anything to show the picture.
TEMPLATE = """<svg viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{
  font-family: ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; font-size: {char_height}px;
}}
{styles}
@keyframes appear {{ from {{ visibility: hidden }} }}
ANIMATION
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal"><rect width="{terminal_width}" height="{terminal_height}"/></clipPath>{lines}
</defs>
<rect fill="#1f2328" x="1" y="1" width="99.8%" height="99.5%" rx="8"/>
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g></g>
</svg>
"""


def style_of(line: str) -> str:
    """The colour of a line of output."""
    if line.startswith("> "):
        return "bold #79c0ff"
    return "#8b949e" if line.startswith("  [") else "#e6edf3"


def record(folder: str) -> tuple[list[Text], list[float]]:
    """Every row of the screen, and the second at which it appears."""
    rows, times, clock = [], [], 0.5
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    console = Console(width=WIDTH, file=io.StringIO())

    def show(text: Text) -> None:
        for row in text.wrap(console, WIDTH):
            rows.append(row)
            times.append(clock)

    for command in COMMANDS:
        show(Text.assemble(("$ ", "bold #3fb950"), (command, "bold #e6edf3")))
        clock += 1.0
        words = [word.replace("out/", f"{folder}/", 1) for word in shlex.split(command)]
        process = subprocess.Popen(words, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        before = time.monotonic()
        for line in io.TextIOWrapper(process.stdout, encoding="utf-8"):
            clock += min(1.0, time.monotonic() - before) + 0.05
            before = time.monotonic()
            text = line.rstrip("\n").replace(folder, "out")
            show(Text(text, style_of(text)))
        if process.wait() != 0:
            sys.exit(f"{command} exits {process.returncode}")
        rows.append(Text(""))
        times.append(clock)
    return rows, times


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        rows, times = record(folder)
    console = Console(record=True, width=WIDTH, file=io.StringIO())
    for row in rows:
        console.print(row, no_wrap=True, crop=False)
    picture = console.export_svg(code_format=TEMPLATE, unique_id="t")
    delays = "\n".join(
        f'[clip-path="url(#t-line-{row})"] {{ animation: appear {at:.2f}s steps(1, end) }}'
        for row, at in enumerate(times)
    )
    target = ROOT / "docs" / "images" / "terminal.svg"
    target.write_text(picture.replace("ANIMATION", delays), encoding="utf-8")
    print(f"{target}: {len(rows)} rows, {times[-1]:.0f} s")


if __name__ == "__main__":
    main()
