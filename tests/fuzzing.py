"""Fuzzes the container reader, the plan builder, loads from memory, rules, profiles: `make fuzz`, docs/developing.md.

Needs clang++ with libFuzzer. Corpora, logs and findings are kept in the build folder; a later run goes on from them.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import isas

ROOT = Path(__file__).parent.parent
BUILD = ROOT / "build/fuzz"
# What each target starts from, and its largest input: small ones are quick, and no check needs large ones.
SHIPPED, GOLDEN = "tcim_lite/conformance/models", "tests/data/hmm"
TARGETS = {
    "fuzz_hmm": (3, 4096, (f"{GOLDEN}/*.hm[mw]*", f"{SHIPPED}/*.hm[mw]*")),
    "fuzz_load": (1, 8192, (f"{GOLDEN}/minimal.hmm", f"{GOLDEN}/ports.hmm", f"{GOLDEN}/*.hmms", f"{SHIPPED}/*.hmms",
                            f"{SHIPPED}/linear.hm*", f"{SHIPPED}/a*.hmm", f"{SHIPPED}/heads.hmm")),
    "fuzz_rules": (1, 2048, ("tests/data/faults/*.toml",)),
    "fuzz_profile": (1, 4096, ("csrc/runtime/m50.toml",)),
}  # fmt: skip
# A build of the core alone. Its sources are compiled one by one, so each includes what it uses.
SANITIZED = [
    "-DTCIM_LITE_PYTHON=OFF",
    "-DTCIM_LITE_TESTS=BY_NAME",
    "-DTCIM_LITE_SANITIZE=address,undefined",
    "-DCMAKE_BUILD_TYPE=Debug",
    "-DCMAKE_CXX_FLAGS_DEBUG=-O0 -g1",  # the compiler takes longer than the tests
    "-DTCIM_LITE_UNITY=ON",
    # Nothing here could run these.
    f"-DTCIM_LITE_WITHOUT_ISAS={';'.join(isa for isa in isas.FLAGS if not isas.cpu_has(isa))}",
]
CONFIGURE = [*SANITIZED, "-DCMAKE_CXX_FLAGS_DEBUG=-O1 -g1", "-DTCIM_LITE_FUZZ=ON", "-DCMAKE_CXX_COMPILER=clang++"]
# Entropic scheduling takes a sixth of the time and leak detection is the tests' business.
LIBFUZZER = ["-entropic=0", "-detect_leaks=0", "-timeout=60", "-report_slow_units=20"]
# cmake and ninja come with the environment; the machine itself may have none.
PATH = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
ENVIRONMENT = {
    **os.environ,
    "PATH": PATH,
    "ASAN_OPTIONS": "malloc_context_size=2:quarantine_size_mb=32:detect_leaks=0",
    "UBSAN_OPTIONS": "print_stacktrace=1",
}


def memory_limit() -> str:
    """2 GiB more than this process ever had: Linux counts that to the programs it starts, and libFuzzer reads it."""
    return f"-rss_limit_mb={2048 + resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024}"


@dataclass
class Job:
    """One process of a target."""

    target: str
    process: subprocess.Popen[bytes]
    log: Path

    @property
    def text(self) -> str:
        """What it printed."""
        return self.log.read_text(encoding="utf-8", errors="replace")

    def number(self, pattern: str) -> int:
        """The last match in what it printed, 0 without one."""
        found = re.findall(pattern, self.text)
        return int(found[-1]) if found else 0


def can_build() -> bool:
    """Whether clang++ makes libFuzzer programs here."""
    if shutil.which("clang++") is None:
        return False
    program = 'extern "C" int LLVMFuzzerTestOneInput(const unsigned char*, unsigned long) { return 0; }'
    command = ["clang++", "-fsanitize=fuzzer,address", "-x", "c++", "-", "-o", os.devnull]
    return subprocess.run(command, input=program, text=True, capture_output=True, check=False).returncode == 0


def build(folder: Path) -> Path:
    """Builds the targets and returns the folder they are in."""
    ninja = ["-G", "Ninja"] if shutil.which("ninja", path=PATH) and not (folder / "CMakeCache.txt").exists() else []
    targets = [part for name in TARGETS for part in ("--target", name)]
    for command in (
        ["cmake", "-S", ROOT, "-B", folder, *ninja, *CONFIGURE],
        ["cmake", "--build", folder, "--parallel", str(len(os.sched_getaffinity(0))), *targets],
    ):
        subprocess.run(command, check=True, env=ENVIRONMENT)
    return folder / "bin"


def fuzz(programs: Path, folder: Path, limits: Sequence[str], share: int, jobs: int, seed: int) -> list[Job]:
    """Runs every target in `jobs` processes; `folder` gets corpora, logs and findings.

    Args:
        limits: options of libFuzzer that end each process.
        share: inputs for each process of each part of the work; 0: as long as `limits` says.
    """
    done = []
    for target, (parts, largest, patterns) in TARGETS.items():
        corpus = folder / f"corpus_{target}"
        corpus.mkdir(parents=True, exist_ok=True)
        for pattern in patterns:
            for path in ROOT.glob(pattern):
                if path.suffix != ".txt" and path.stat().st_size <= largest:
                    shutil.copy(path, corpus)
        started = []
        for number in range(jobs):
            log = folder / f"{target}_{number}.log"
            runs = [f"-runs={share * parts}"] if share else []
            options = [f"-max_len={largest}", f"-seed={seed + number}", "-print_final_stats=1"]
            options += [f"-artifact_prefix={folder}/finding_{target}_", *LIBFUZZER, memory_limit(), *runs, *limits]
            with log.open("wb") as output:
                command = [programs / target, *options, corpus]
                process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=ENVIRONMENT)
            started.append(Job(target, process, log))
        try:
            for job in started:
                job.process.wait()
        finally:
            for job in started:
                job.process.kill()
        done += started
    return done


def report(jobs: Sequence[Job], seconds: float) -> bool:
    """Prints what was done; False if something was found."""
    total = 0
    for job in jobs:
        runs = job.number(r"number_of_executed_units: (\d+)")
        total += runs
        edges, features = job.number(r" cov: (\d+)"), job.number(r" ft: (\d+)")
        slowest = job.number(r"slowest_unit_time_sec: (\d+)")
        state = "nothing found" if job.process.returncode == 0 else f"FOUND SOMETHING, see {job.log}"
        print(
            f"{job.target}: {runs} inputs, {edges} edges and {features} features covered, "
            f"slowest input {slowest} s: {state}"
        )
        if job.process.returncode != 0:
            print(job.text[-4000:])
    print(f"{total} inputs in {seconds / 60:.1f} minutes")
    return all(job.process.returncode == 0 for job in jobs)


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description="Fuzzes the readers, the plan builder and loads from memory.")
    parser.add_argument("--runs", type=int, default=10_000_000, help="inputs over all targets (default: %(default)s)")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="processes (default: the CPUs)")
    parser.add_argument("--seed", type=int, default=1, help="of the first process; each takes the next")
    parser.add_argument("--folder", type=Path, default=BUILD, help="default: build/fuzz")
    args = parser.parse_args()
    if args.runs < 1 or args.jobs < 1:
        parser.error("--runs and --jobs have to be positive")
    if not can_build():
        parser.error("clang++ with libFuzzer is missing (Debian: apt install clang)")
    programs = build(args.folder)
    begin = time.perf_counter()
    parts = sum(parts for parts, _, _ in TARGETS.values())
    share = -(-args.runs // (parts * args.jobs))
    jobs = fuzz(programs, args.folder, [], share, args.jobs, args.seed)
    return 0 if report(jobs, time.perf_counter() - begin) else 1


if __name__ == "__main__":
    sys.exit(main())
