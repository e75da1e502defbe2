"""The machine's limits now, by the probe of `tcim-lite bench`, in a process of its own."""

import json
import os
import subprocess
import sys
from collections.abc import Set

_PROBE = (
    "import dataclasses, json, sys; from tcim_lite.bench import machine_name, measure_limits; "
    "print(json.dumps({'machine': machine_name()} | dataclasses.asdict(measure_limits(int(sys.argv[1])))))"
)
_BEYOND_CACHES = 1 << 30  # as much as the limit itself reads: more bytes have no rate of their own


def probe(model_bytes: int = 0, cpus: Set[int] = frozenset()) -> dict:
    """The machine's name and the fields of `tcim_lite.bench.MachineLimits`.

    Args:
        model_bytes: What a decode step reads; 0 leaves `read_model` out.
        cpus: Processors to measure on, with a thread each; empty for all.
    """
    asked = model_bytes if model_bytes < _BEYOND_CACHES else 0
    environment = os.environ | ({"TCIM_LITE_THREADS": str(len(cpus))} if cpus else {})

    def bind() -> None:
        if cpus:
            os.sched_setaffinity(0, cpus)

    command = [sys.executable, "-P", "-c", _PROBE, str(asked)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, preexec_fn=bind)
    if done.returncode != 0:
        sys.exit(f"the probe failed; is tcim_lite installed for {sys.executable}?\n{done.stderr}")
    return json.loads(done.stdout)
