"""The package with every fault in it, for PYTHONPATH; TCIM_LITE_SEEDED_FAULT chooses one.

Only what is seeded is compiled, with the commands of a build of the package and its other objects (package_build.py).
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import json
import os
import re
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from catalogue import FAULTS
from package_build import ROOT, package_build, run

import tcim_lite

FOLDER = ROOT / "build/faults"
INSTALLED = Path(tcim_lite.__file__).parent
SEEDED_PY = """import os


def seeded(name):
    return os.environ.get("TCIM_LITE_SEEDED_FAULT") == name
"""


@functools.cache
def seeded_package() -> Path:
    """Builds the package unless it is there and up to date; returns the folder to put on PYTHONPATH.

    One process builds at a time. A package is not touched again once it is built: programs may be running from it.
    """
    state = _state()
    package = FOLDER / f"package-{state[:16]}"
    FOLDER.mkdir(parents=True, exist_ok=True)
    with open(FOLDER / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (package / "whole").exists():
            _build(package)
    return package


def _build(package: Path) -> None:
    for old in FOLDER.glob("package-*"):
        shutil.rmtree(old, ignore_errors=True)
    shutil.copytree(INSTALLED, package / "tcim_lite", ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
    _seed_python(package)
    library, core = _compile(package_build())
    shutil.copy(library, package / "tcim_lite/lib")
    (built,) = (package / "tcim_lite").glob("_core*.so")
    shutil.copy(core, built)
    (package / "whole").touch()


def _state() -> str:
    """Changes with the sources, the faults and what is installed."""
    digest = hashlib.sha256()
    for folder, patterns in ((ROOT / "csrc", ["*.cpp", "*.h", "*.def"]), (INSTALLED, ["*.py", "*.so"])):
        for path in sorted(path for pattern in patterns for path in folder.rglob(pattern)):
            digest.update(str(path).encode() + path.read_bytes())
    here = Path(__file__).parent
    for path in sorted([*here.glob("*_faults.py"), here / "fault.py", here / "seeded.h", Path(__file__)]):
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


def _compile(base: Path) -> tuple[Path, Path]:
    """Compiles the seeded sources and links; returns libtcim_runtime_lite.so and _core.so."""
    listed = run("ninja", "-C", base, "-t", "compdb")
    edges = json.loads(listed[listed.index("[\n") :])
    seeded = {}  # the copies, by the sources
    for name, text in _seeded_texts(".cpp", ROOT).items():
        copy = FOLDER / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(text, encoding="utf-8")
        seeded[str(ROOT / name)] = str(copy)
    objects: dict[str, str] = {}  # those of the base, and what replaces them
    compiled: set[str] = set()
    commands = []
    for edge in edges:
        if " qc " in edge["command"]:  # an archive; of one object, the object does as well
            members = re.findall(r"\S+\.o\b", edge["command"])
            if len(members) == 1 and members[0] in objects:
                objects[edge["output"]] = objects[members[0]]
            continue
        if not edge["output"].startswith("csrc/"):  # a test program with a source of its own
            continue
        source = _seeded_source(Path(edge["file"]), seeded)
        if source is not None:
            objects[edge["output"]] = f"{source}.o"
            command = _replaced(edge["command"], {edge["file"]: str(source), **objects})
            # -O0: the compiler's time is what this costs.
            commands.append(f"{command} -O0 -include {Path(__file__).with_name('seeded.h')}")
            compiled.update(_sources(Path(edge["file"])))
    assert seeded.keys() <= compiled, f"nothing compiles {', '.join(seeded.keys() - compiled)}"
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        list(pool.map(lambda command: run("sh", "-c", command, cwd=base), commands))

    made = []
    for name in ("libtcim_runtime_lite", "_core"):
        (edge,) = (e for e in edges if Path(e["output"]).name.startswith(name) and " -shared " in e["command"])
        target = FOLDER / Path(edge["output"]).name
        run("sh", "-c", _replaced(edge["command"], {edge["output"]: str(target), **objects}), cwd=base)
        made.append(target)
    return made[0], made[1]


def _sources(compiled: Path) -> list[str]:
    """The sources in a file that is compiled: itself, or what a file of CMake's unity builds includes."""
    if compiled.suffix == ".cxx":
        return re.findall(r'#include "(.+)"', compiled.read_text(encoding="utf-8"))
    return [str(compiled)]


def _seeded_source(compiled: Path, seeded: dict[str, str]) -> Path | None:
    """What to compile instead of a file; None if nothing is seeded in it."""
    copies = [seeded.get(path, path) for path in _sources(compiled)]
    if copies == _sources(compiled):
        return None
    if compiled.suffix != ".cxx":
        return Path(copies[0])
    # Each library has a unity_0_cxx.cxx.
    source = FOLDER / compiled.parent.parent.name / compiled.name
    source.parent.mkdir(parents=True, exist_ok=True)
    source.write_text("".join(f'#include "{path}"\n' for path in copies), encoding="utf-8")
    return source


def _replaced(command: str, other: dict[str, str]) -> str:
    """The part of a shell's command line that has the compiler, with other files."""
    (part,) = (part for part in command.split(" && ") if " -o " in part)
    return re.sub(r"\S+", lambda word: other.get(word[0], word[0]), part)
