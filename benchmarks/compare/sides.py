"""Which sides there are, how their files are made and how one is run."""

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from .checkpoint import write_checkpoint
from .environments import python_of
from .shapes import LARGE as LARGE_SHAPES
from .shapes import OTHERS, title_of

HERE = Path(__file__).parent
CPUS = 2  # every side has as many threads, on the same processors


@dataclass(frozen=True)
class SideSpec:
    """One side.

    Attributes:
        name: As in --engines and in the table.
        engine: Whose environment it runs in.
        kind: What its files are made as.
        arithmetic: "int8" or "float": which peak its prefill can be held against.
        batch: Slots of the decode graph, of this project's sides.
    """

    name: str
    engine: str
    kind: str
    arithmetic: str
    batch: int = 1


SIDES = (
    SideSpec("tcim-w4", "tcim", "w4a8h0_ssfp", "int8"),
    SideSpec("llama-Q4_0", "llama_cpp", "Q4_0", "int8"),
    SideSpec("openvino-int4", "openvino", "int4", "int8"),
    SideSpec("tcim-w8", "tcim", "w8a8h1_sefp", "int8"),
    SideSpec("llama-Q8_0", "llama_cpp", "Q8_0", "int8"),
    SideSpec("openvino-int8", "openvino", "int8", "int8"),
    SideSpec("tcim-f16", "tcim", "float16", "float"),
    SideSpec("llama-bf16", "llama_cpp", "bf16", "float"),
    SideSpec("transformers-bf16", "transformers", "bf16", "float"),
)
LARGE = (
    "tcim-w4",
    "llama-Q4_0",
    "openvino-int4",
    "tcim-w8",
)  # of large shapes, where 16-bit weights do not fit into memory


def sides_of(shape: str, wanted: list[str] | None) -> list[SideSpec]:
    """The sides measured at a size; `wanted` names sides or engines such as "tcim" and "llama"."""
    return [
        side
        for side in SIDES
        if (shape not in LARGE_SHAPES or side.name in LARGE)
        and (shape not in OTHERS or side.engine != "openvino")  # its files are made for Qwen3
        and (not wanted or any(side.name == name or side.name.startswith(f"{name}-") for name in wanted))
    ]


class Files:
    """The files of one size under the work folder, each made when first needed."""

    def __init__(self, work: Path, shape: str, weights: bool = True):
        """Without `weights` there is no checkpoint, and this project's packages hold random codes."""
        self.work, self.shape, self.weights, self.folder = (
            work,
            shape,
            weights,
            work / title_of(shape).replace("Qwen3", "qwen3"),
        )
        self.checkpoint = self.folder / "checkpoint"
        self._bf16_gguf = self.folder / "llama-bf16.gguf"
        self._making_checkpoint = threading.Lock()

    def path(self, side: SideSpec) -> Path:
        """What the side loads."""
        if side.engine == "transformers":
            return self.checkpoint
        return self.folder / (f"{side.name}.gguf" if side.engine == "llama_cpp" else side.name)

    def make(self, sides: list[SideSpec], at_once: int = 1) -> list[SideSpec]:
        """Makes what is missing, `at_once` sides at a time, and returns the sides whose files are there.

        Large 16-bit files that no side of this size loads are deleted when they are not needed any more.
        """
        order = ("openvino", "llama_cpp", "tcim", "transformers")

        def is_made(side: SideSpec) -> bool:
            try:
                self._make(side)
            except RuntimeError as error:
                print(f"{side.name} is left out: {error}", file=sys.stderr)
                return False
            return True

        with ThreadPoolExecutor(at_once) as pool:
            ordered = sorted(sides, key=lambda side: order.index(side.engine))
            made = [side for side, there in zip(ordered, pool.map(is_made, ordered), strict=True) if there]
        loading = sides_of(self.shape, None)
        if not any(side.name == "llama-bf16" for side in loading):
            self._bf16_gguf.unlink(missing_ok=True)
        if not any(side.engine == "transformers" for side in loading):
            shutil.rmtree(self.checkpoint, ignore_errors=True)
        return [side for side in sides if side in made]

    def delete(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def token_bytes(self, side: SideSpec) -> int:
        """Bytes that one token reads, without the cache."""
        return json.loads(self._notes(side).read_text())["token_bytes"]

    def _notes(self, side: SideSpec) -> Path:
        return self.folder / f"{side.name}.json"

    def _make(self, side: SideSpec) -> None:
        if self._notes(side).is_file() and self.path(side).exists():
            return
        source = self.checkpoint
        if side.engine == "llama_cpp" and side.kind != "bf16":
            source = self._bf16_gguf
            if not source.is_file():
                self._run_maker("llama_cpp", "make_gguf.py", "bf16", self._with_checkpoint(), source)
        else:
            self._with_checkpoint()
        if side.engine == "transformers":
            notes = {"token_bytes": (self.checkpoint / "model.safetensors").stat().st_size}
        else:
            maker = {"llama_cpp": "make_gguf.py", "openvino": "make_openvino.py", "tcim": "make_tcim.py"}[side.engine]
            more = [str(side.batch)] if side.engine == "tcim" else []
            notes = self._run_maker(side.engine, maker, side.kind, source, self.path(side), *more)
        self._notes(side).write_text(json.dumps(notes))

    def _with_checkpoint(self) -> Path:
        with self._making_checkpoint:
            if not (self.checkpoint / "config.json").is_file():
                print(f"making {self.checkpoint}", file=sys.stderr)
                write_checkpoint(self.checkpoint, self.shape, self.weights)
        return self.checkpoint

    def _run_maker(self, engine: str, maker: str, kind: str, source: Path, out: Path, *more: str) -> dict:
        print(f"making {out}", file=sys.stderr)
        command = [str(python_of(self.work, engine)), str(HERE / maker), kind, str(source), str(out), *more]
        return _json_of(command, os.environ | {"HF_HUB_OFFLINE": "1"})


def run_side(work: Path, files: Files, side: SideSpec, cpus: set[int]) -> dict:
    """Runs the side in a process of its own, its files read once before so that loading finds them in memory."""
    path = files.path(side)
    for file in [path] if path.is_file() else sorted(found for found in path.rglob("*") if found.is_file()):
        with file.open("rb", buffering=0) as content:
            while content.read(1 << 24):
                pass
    threads = str(len(cpus))
    environment = os.environ | {
        "OMP_NUM_THREADS": threads,
        "TCIM_LITE_THREADS": threads,
        "HF_HUB_OFFLINE": "1",
        "COMPARE_STARTED": str(time.time()),
    }
    script = HERE / f"side_{side.engine}.py"
    return _json_of([str(python_of(work, side.engine)), str(script), str(path), threads], environment, cpus)


def _json_of(command: list[str], environment: dict[str, str], cpus: set[int] | None = None) -> dict:
    """The last line of what the command prints. Bound to `cpus` with all its threads."""

    def bind() -> None:
        if cpus:
            os.sched_setaffinity(0, cpus)

    done = subprocess.run(command, env=environment, capture_output=True, text=True, preexec_fn=bind)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} failed with status {done.returncode}:\n{done.stderr[-3000:]}")
    return json.loads(done.stdout.splitlines()[-1])
