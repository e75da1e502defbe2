"""A virtual environment for each engine, from the versions in engines/."""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

ENGINES = Path(__file__).parent.parent / "engines"
# llama.cpp for this machine's own instruction sets, without the parts that need more than a compiler. Where the CPU has
# AMX, GCC 12 drops the stores of llama.cpp's tile configuration as dead, and the first prompt dies of an illegal
# instruction (ggml-org/llama.cpp#26954).
BUILD = {
    "llama_cpp": {
        "CMAKE_ARGS": "-DGGML_NATIVE=ON -DGGML_BLAS=OFF -DLLAVA_BUILD=OFF -DMTMD_BUILD=OFF",
        "CXXFLAGS": "-fno-tree-dse -fno-dse",
    }
}
# Comes along uncalled, and its PyPI build does not go with a CPU build of torch: importing transformers then fails.
UNWANTED = {"openvino": ["torchvision"]}


def python_of(work: Path, engine: str) -> Path:
    """The engine's interpreter; "tcim" runs in the one that runs this."""
    return Path(sys.executable) if engine == "tcim" else work / f"venv-{engine}" / "bin" / "python"


def is_ready(work: Path, engine: str) -> bool:
    """Whether the environment holds the versions of the requirements file."""
    marker = work / f"venv-{engine}" / "ready"
    return engine == "tcim" or (marker.is_file() and marker.read_text() == _fingerprint(engine))


def set_up(work: Path, engine: str) -> None:
    """Installs the engine; takes minutes, for llama.cpp about 15 on two cores."""
    if is_ready(work, engine):
        return
    folder, log = work / f"venv-{engine}", work / f"setup-{engine}.log"
    print(f"setting up {engine} in {folder} ({log})", file=sys.stderr)
    requirements = str(ENGINES / f"{engine}.txt")
    python = str(folder / "bin" / "python")
    commands = [
        [sys.executable, "-m", "venv", str(folder)],
        [python, "-m", "pip", "install", "-r", requirements],
        *([python, "-m", "pip", "uninstall", "-y", name] for name in UNWANTED.get(engine, [])),
    ]
    with log.open("a") as output:
        for command in commands:
            environment = os.environ | BUILD.get(engine, {})
            done = subprocess.run(command, env=environment, stdout=output, stderr=subprocess.STDOUT)
            if done.returncode != 0:
                sys.exit(f"{' '.join(command)} failed; see {log}")
    (folder / "ready").write_text(_fingerprint(engine))


def _fingerprint(engine: str) -> str:
    return hashlib.sha256((ENGINES / f"{engine}.txt").read_bytes()).hexdigest()
