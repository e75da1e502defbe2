"""How much memory compiling takes, in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from warm_python import ISOLATED

# VmHWM is of this process alone; ru_maxrss would begin at the peak of the process that started it.
_SCRIPT = """
import json, re, sys, warnings
from pathlib import Path
from tcim_lite.models.compiler import CompileOptions, compile_checkpoint

def peak():
    return int(re.search(r"VmHWM:\\s*(\\d+) kB", Path("/proc/self/status").read_text())[1])

warnings.simplefilter("ignore")
before = peak()
source, output, options = sys.argv[1:]
compile_checkpoint(CompileOptions(checkpoint=Path(source), output=Path(output), **json.loads(options)))
print(peak() - before)
"""


def compile_peak(source: Path, output: Path, **options: Any) -> int:
    """Compiles, and returns the bytes by which the peak of resident memory grew."""
    command = [sys.executable, ISOLATED, "-c", _SCRIPT, source, output, json.dumps(options)]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout) << 10
