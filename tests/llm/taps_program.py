"""Runs the graphs of packages with no tap, with every tap and with some; prints a digest of each run.

Run by test_taps.py once per instruction set: `taps_program.py PACKAGE...`. A line per graph and choice of taps: the
choice, then the digest of outputs and caches over three runs; with every tap, those of the taps on a line of their own.
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

import numpy as np

import tcim_lite.runtime as tcim
from tcim_lite.hmm import read

CHOICES = {
    "none": [],
    "all": ["*"],
    "stored": ["@stored"],
    "one layer": ["layers.1.*"],
    "norms": ["*norm*"],
    "sums": ["add_*"],
    "inside fused steps": ["*.gate_up", "*.out", "*.q_norm", "*.k", "*.route"],
    "results of fused steps": ["*.silu_mul", "*.mix", "add_*"],
}
STEPS = ((0, 5), (5, 3), (8, 1))  # valid and current length of three runs; of a decode graph the current one is 1


def feed(module: tcim.Module, path: Path, valid: int, current: int) -> None:
    """Sets the inputs of one run, the same for every choice of taps."""
    graph = read(path).graph
    random = np.random.default_rng([valid, current])
    for value in (graph.values[id_] for id_ in graph.inputs):
        role = value.role.name if value.role else ""
        if role == "valid_length":
            module.set_input(value.name, np.array([valid], np.int32))
        elif role == "current_length":
            module.set_input(value.name, np.array([current], np.int32))
        elif value.kind != "state":
            module.set_input(value.name, random.standard_normal(value.shape).astype(value.dtype) * 0.5)


def run(path: Path, patterns: list[str]) -> tuple[str, dict[str, np.ndarray]]:
    """The digest of outputs and caches over all steps, and the taps of the last step."""
    module = tcim.load(path, tcim.Option().set_taps(patterns))
    names = [module.get_output_name(index) for index in range(module.get_num_outputs())]
    inputs = [module.get_input_name(index) for index in range(module.get_num_inputs())]
    digest = hashlib.sha256()
    for valid, current in STEPS:
        feed(module, path, valid, current if "prefill" in path.name else 1)
        module.run()
        for name in names:
            digest.update(module.get_output(name).numpy().tobytes())
        for name in inputs:
            digest.update(module.get_dev_input(name).numpy().tobytes())
    return digest.hexdigest(), {name: module.get_output(name).numpy() for name in module.taps()}


def main() -> None:
    """Runs all graphs of all packages."""
    for folder in sys.argv[1:]:
        for path in sorted(Path(folder).glob("*.hmm")):
            every: dict[str, np.ndarray] = {}
            for choice, patterns in CHOICES.items():
                digest, taps = run(path, patterns)
                print(f"{path.name}\t{choice}\t{len(taps)}\t{digest}")
                if choice == "all":
                    every = taps
                    told = hashlib.sha256(b"".join(tap.tobytes() for tap in taps.values())).hexdigest()
                    print(f"{path.name}\ttaps\t{len(taps)}\t{told}")
                for name, tap in taps.items():
                    if every:
                        np.testing.assert_array_equal(tap, every[name], err_msg=f"{path}: {choice}: {name}")


if __name__ == "__main__":
    main()
