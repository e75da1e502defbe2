"""A program of its own: two processes of eight threads that load, run, share, fork and drop, and watch their memory.

    soak.py RUNTIME SECONDS SEED forks|no-forks PREFILL DECODE VERIFY

Prints a line of JSON for each process: {"samples": [...], "failures": [...], "cycles", "children", "answers"}. A
sample is taken when no thread is at work. It has the resident memory of the process in MiB, its threads, its
descriptors and, where dev_ctrl tells, the memory in use on device 0 in MB.
"""

from __future__ import annotations

import gc
import hashlib
import importlib
import json
import multiprocessing
import os
import random
import signal
import sys
import threading
import time
import traceback
import warnings
from typing import Any

import numpy as np

PROCESSES, THREADS, SAMPLES = 2, 8, 30
LENGTHS = (1, 5, 16)  # of prompts; each is one run of prefill
STEPS = 4  # of decode after the prompt, the last one when all other handles are gone
FORK_PAUSE = 0.5  # seconds between two children
CHILD_SECONDS = 120  # a forked child that takes longer hangs


class Soak:
    """What the threads of a process share."""

    def __init__(self, runtime: str, paths: list[str], seed: int) -> None:
        self.rt: Any = importlib.import_module(runtime)
        self.paths = paths
        self.seed = seed
        self.manager = self.rt.WeightManager(0)
        self.failures: list[str] = []
        self.cycles = self.children = 0
        self._counting = threading.Lock()
        self._shape = self.load(0, self.manager).get_input_info("input_1").shape
        self.rows = np.random.default_rng(0).standard_normal((1, 64, self._shape[2])).astype(np.float16)
        calm = random.Random(0)
        self.expected = {length: self.answers(length, calm, calm=True) for length in LENGTHS}

    def load(self, role: int, manager: Any, dummies: list[str] = []) -> Any:  # noqa: B006
        return self.rt.load(self.paths[role], self.rt.Option(manager).set_dummy_tensors(dummies))

    def feed(self, module: Any, at: int, count: int, queue_only: bool = False) -> np.ndarray | None:
        """Runs `count` rows after `at` cached ones; the logits of the live rows."""
        padded = np.zeros(module.get_input_info("input_1").shape, np.float16)
        padded[:, :count] = self.rows[:, at : at + count]
        module.set_input("input_1", padded)
        module.set_input("valid_length", np.array(at).astype("int32"))
        module.set_input("current_length", np.array([count], np.int32))
        module.run()
        if queue_only:
            return None
        module.sync()
        found: np.ndarray = module.get_output("logits").numpy()[0]
        return found if found.shape[0] == 1 else found[:count]

    def answers(self, length: int, rng: random.Random, calm: bool = False) -> list[np.ndarray]:
        """Loads three graphs on one set of caches, runs them in turn and drops everything in some order."""
        manager = self.manager if calm or rng.random() < 0.7 else self.rt.WeightManager(0)
        owner = 0 if calm else rng.randrange(3)
        names = [name for name in self._names() if "cache" in name]
        modules, dummied = {}, set()
        for role in range(3) if calm else rng.sample(range(3), 3):
            dummies = names if role != owner and (calm or rng.random() < 0.7) else []
            modules[role] = self.load(role, manager, dummies)
            if dummies:
                dummied.add(role)
        handles: dict[str, Any] = {}
        for name in names:
            handles[name] = modules[owner].get_dev_input(name)
            for role, module in modules.items():
                if role != owner:
                    through_set_input = role in dummied and rng.random() < 0.5  # every version binds dummies so
                    (module.set_input if through_set_input else module.set_dev_input)(name, handles[name])
        if not calm and rng.random() < 0.3:
            stream = self.rt.Stream(rng.random() < 0.5)
            handles["stream"] = stream
            for module in modules.values():
                module.set_stream(stream)
        prefill, decode, verify = modules[0], modules[1], modules[2]
        if not calm and rng.random() < 0.3:
            handles["logits"] = self.rt.Tensor(decode.get_output_info("logits"))
            decode.set_dev_output("logits", handles["logits"])
        found = [self.feed(prefill, 0, length)]
        found += [self.feed(decode, length + step, 1) for step in range(STEPS - 1)]
        found += [self.feed(verify, length, 3)]
        if not calm and rng.random() < 0.3:  # caches travel through the host
            for name in names:
                kept = handles[name].to_host(True)
                handles[name].set_zero()
                decode.set_input(name, kept)
        handles |= {"manager": manager, "prefill": prefill, "verify": verify}
        if not calm and rng.random() < 0.3:
            self.feed(verify, length, 3, queue_only=True)  # goes with its work queued
        del manager, prefill, verify, modules, module
        for name in rng.sample(sorted(handles), len(handles)):
            handle = handles.pop(name)
            if hasattr(handle, "release") and rng.random() < 0.3:
                handle.release()
            del handle
        found += [self.feed(decode, length + STEPS - 1, 1)]
        return [rows for rows in found if rows is not None]

    def _names(self) -> list[str]:
        module = self.load(0, self.manager)
        return [module.get_input_name(i) for i in range(module.get_num_inputs())]

    def check(self, rng: random.Random) -> None:
        """One cycle; a wrong answer is an AssertionError."""
        length = rng.choice(LENGTHS)
        for number, (found, expected) in enumerate(zip(self.answers(length, rng), self.expected[length], strict=True)):
            # Not numpy.testing, which takes locks that another thread may hold while this one forks.
            assert np.array_equal(found, expected), f"length {length}: answer {number} differs"

    def work(self, index: int, end: float) -> None:
        """A thread."""
        while time.monotonic() < end and not self.failures:
            seed = f"{self.seed} {index} {random.getrandbits(32)}"
            try:
                self.check(random.Random(seed))
            except BaseException:
                self.failures.append(f"cycle {seed!r}: {traceback.format_exc()}")
            with self._counting:
                self.cycles += 1

    def fork(self) -> None:
        """A child while the threads are at work; it loads and runs too."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of a fork with threads: that is what is tested
            child = os.fork()
        if child == 0:
            signal.alarm(CHILD_SECONDS)
            status = 1
            try:
                self.check(random.Random(self.seed))
                status = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(status)
        _, status = os.waitpid(child, 0)
        self.children += 1
        if status != 0:
            self.failures.append(f"a forked child ended with status {status}")

    def sample(self, begin: float) -> dict[str, Any]:
        """What the process holds now."""
        gc.collect()
        with open("/proc/self/statm") as file:
            resident = int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        return {
            "minute": (time.monotonic() - begin) / 60,
            "resident": resident / 2**20,
            "threads": len(os.listdir("/proc/self/task")),
            "descriptors": len(os.listdir("/proc/self/fd")),
            "device": device_memory(self.rt),
            "cycles": self.cycles,
        }


def device_memory(rt: Any) -> float | None:
    """MB in use on device 0, by dev_ctrl."""
    try:
        dev_ctrl = importlib.import_module(rt.__name__.rpartition(".")[0] + ".dev_ctrl")
        status, info = dev_ctrl.HalDeviceFactory.create("Xh2aHalBackend").get_mem_info(0)
    except (ImportError, AttributeError, ValueError, RuntimeError):
        return None
    return float(info.mem_used) if status == 0 else None


def process(runtime: str, seconds: float, seed: int, paths: list[str], forks: bool, queue: Any) -> None:
    """One process: rounds of threads, a sample after each."""
    try:
        soak = Soak(runtime, paths, seed)
        samples, begin = [], time.monotonic()
        rounds = max(4, min(SAMPLES, round(seconds / 2)))
        for number in range(rounds):
            end = begin + seconds * (number + 1) / rounds
            threads = [threading.Thread(target=soak.work, args=(index, end)) for index in range(THREADS)]
            for thread in threads:
                thread.start()
            while forks and time.monotonic() < end and not soak.failures:
                soak.fork()
                time.sleep(FORK_PAUSE)
            for thread in threads:
                thread.join()
            samples.append(soak.sample(begin))
            if soak.failures:
                break
        digest = hashlib.sha256()
        for answers in soak.expected.values():
            for rows in answers:
                digest.update(rows.tobytes())
        queue.put(
            {
                "samples": samples,
                "failures": soak.failures,
                "cycles": soak.cycles,
                "children": soak.children,
                "answers": digest.hexdigest(),
            }
        )
    except BaseException:
        queue.put({"samples": [], "failures": [traceback.format_exc()]})


def main() -> None:
    """Starts the processes and prints what they say."""
    runtime, seconds, seed, forks, *paths = sys.argv[1:]
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    processes = [
        context.Process(target=process, args=(runtime, float(seconds), int(seed) + n, paths, forks == "forks", queue))
        for n in range(PROCESSES)
    ]
    for each in processes:
        each.start()
    for _ in processes:
        print(json.dumps(queue.get(timeout=float(seconds) * 2 + 300)), flush=True)
    for each in processes:
        each.join()
        if each.exitcode != 0:
            sys.exit(f"a process of the soak exits {each.exitcode}")


if __name__ == "__main__":
    main()
