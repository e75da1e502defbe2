"""The package with every fault in it, for PYTHONPATH; TCIM_LITE_FAULT chooses one.

Only what is seeded is compiled, with the commands of a build of the package and its other objects: the build that pip
keeps in build/, or, where that is missing or older than the sources, one made here, which takes minutes.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path

from catalogue import FAULTS

import tcim_lite

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "build/faults"
INSTALLED = Path(tcim_lite.__file__).parent
# cmake and ninja come with the test environment; the machine itself may have none. Another version of ninja than the
# one that made a build would make it all again.
_TOOLS = [Path(spec.origin).parents[4] / "bin" for spec in [find_spec("ninja")] if spec and spec.origin]
PATH = os.pathsep.join(map(str, [Path(sys.executable).parent, *_TOOLS, os.environ.get("PATH", os.defpath)]))
SEEDED_PY = """import os


def seeded(name):
    return os.environ.get("TCIM_LITE_FAULT") == name
"""


def seeded_package() -> Path:
    """Builds the package unless it is there and up to date; returns the folder to put on PYTHONPATH."""
    package, stamp = FOLDER / "package", FOLDER / "stamp"
    state = _state()
    if stamp.exists() and stamp.read_text() == state:
        return package
    shutil.rmtree(package, ignore_errors=True)
    shutil.copytree(INSTALLED, package / "tcim_lite", ignore=shutil.ignore_patterns("__pycache__"))
    _seed_python(package)
    library, core = _compile(_base())
    shutil.copy(library, package / "tcim_lite/sdk/lib")
    (built,) = (package / "tcim_lite").glob("_core*.so")
    shutil.copy(core, built)
    stamp.write_text(state)
    return package


def _state() -> str:
    """Changes with the sources, the faults and what is installed."""
    digest = hashlib.sha256()
    for folder, patterns in ((ROOT / "csrc", ["*.cpp", "*.h", "*.def"]), (INSTALLED, ["*.py", "*.so"])):
        for path in sorted(path for pattern in patterns for path in folder.rglob(pattern)):
            digest.update(str(path).encode() + path.read_bytes())
    for path in sorted(Path(__file__).parent.glob("*.*")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _seed_python(package: Path) -> None:
    (package / "tcim_lite/seeded.py").write_text(SEEDED_PY)
    for name, text in _seeded_texts(".py", package).items():
        future = "from __future__ import annotations\n"
        assert future in text, name
        (package / name).write_text(text.replace(future, future + "from tcim_lite.seeded import seeded\n", 1))


def _seeded_texts(suffix: str, root: Path) -> dict[str, str]:
    """The files with faults, by their paths from the root."""
    texts: dict[str, str] = {}
    for fault in FAULTS.values():
        if fault.file.endswith(suffix):
            text = texts.get(fault.file) or (root / fault.file).read_text(encoding="utf-8")
            texts[fault.file] = fault.seed(text)
    return texts


def _base() -> Path:
    """A build folder of ninja's in which everything is up to date."""
    version = f"cp{sys.version_info.major}{sys.version_info.minor}"
    for folder in (ROOT / "build").glob(f"{version}-*"):
        if (folder / "build.ninja").exists() and "no work to do" in _run("ninja", "-C", folder, "-n", check=False):
            return folder
    folder = FOLDER / "base"
    import pybind11

    paths = [f"-Dpybind11_DIR={pybind11.get_cmake_dir()}", f"-DPython_EXECUTABLE={sys.executable}"]
    _run("cmake", "-G", "Ninja", "-S", ROOT, "-B", folder, "-DCMAKE_BUILD_TYPE=Release", *paths)
    _run("cmake", "--build", folder)
    return folder


def _compile(base: Path) -> tuple[Path, Path]:
    """Compiles the seeded sources and links; returns libtcim_runtime_lite.so and _core.so."""
    listed = _run("ninja", "-C", base, "-t", "compdb")
    edges = json.loads(listed[listed.index("[\n") :])
    by_source = {edge["file"]: edge for edge in edges}
    objects: dict[str, str] = {}  # of the base, by those that replace them
    commands = []
    for name, text in _seeded_texts(".cpp", ROOT).items():
        source = FOLDER / name
        source.parent.mkdir(parents=True, exist_ok=True)
        source.write_text(text, encoding="utf-8")
        edge = by_source[str(ROOT / name)]
        objects[edge["output"]] = str(source.with_suffix(".o"))
        command = _replaced(edge["command"], {edge["file"]: str(source), **objects})
        # -O0: the compiler's time is what this costs.
        commands.append(f"{command} -O0 -include {Path(__file__).with_name('seeded.h')}")
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        list(pool.map(lambda command: _run("sh", "-c", command, cwd=base), commands))

    made = []
    for name in ("libtcim_runtime_lite", "_core"):
        (edge,) = (e for e in edges if Path(e["output"]).name.startswith(name) and " -shared " in e["command"])
        target = FOLDER / Path(edge["output"]).name
        _run("sh", "-c", _replaced(edge["command"], {edge["output"]: str(target), **objects}), cwd=base)
        made.append(target)
    return made[0], made[1]


def _replaced(command: str, other: dict[str, str]) -> str:
    """The part of a shell's command line that has the compiler, with other files."""
    (part,) = (part for part in command.split(" && ") if " -o " in part)
    return re.sub(r"\S+", lambda word: other.get(word[0], word[0]), part)


def _run(*command: str | Path, cwd: Path = ROOT, check: bool = True) -> str:
    done = subprocess.run(
        command, cwd=cwd, env={**os.environ, "PATH": PATH}, capture_output=True, text=True, timeout=1200, check=False
    )
    assert not check or done.returncode == 0, f"{shlex.join(map(str, command))}\n{(done.stdout + done.stderr)[-8000:]}"
    return done.stdout
