"""The folder that the package was built in: its objects are compiled once, for the package and for the tests."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).parent.parent
# cmake and ninja come with the test environment; the machine itself may have none. Another version of ninja than the
# one that made a build would make it all again.
_TOOLS = [
    folder / "bin" for spec in [find_spec("ninja")] if spec and spec.origin for folder in Path(spec.origin).parents[4:5]
]
PATH = os.pathsep.join(map(str, [Path(sys.executable).parent, *_TOOLS, os.environ.get("PATH", os.defpath)]))


def run(*command: str | Path, cwd: Path = ROOT, check: bool = True) -> str:
    """Runs a build command and returns what it printed, which is the message of a failure."""
    done = subprocess.run(
        command, cwd=cwd, env={**os.environ, "PATH": PATH}, capture_output=True, text=True, timeout=1200, check=False
    )
    assert not check or done.returncode == 0, f"{shlex.join(map(str, command))}\n{(done.stdout + done.stderr)[-8000:]}"
    return done.stdout


def package_build() -> Path:
    """A Release build of the package by ninja, up to date.

    This is the folder that pip keeps in build/. Where that is missing or older than the sources, the package is built
    once more, in build/package-tests, which takes a minute or two.
    """
    version = f"cp{sys.version_info.major}{sys.version_info.minor}"
    for folder in (ROOT / "build").glob(f"{version}-*"):
        if (folder / "build.ninja").exists() and "no work to do" in run("ninja", "-C", folder, "-n", check=False):
            return folder
    folder = ROOT / "build/package-tests"
    import pybind11

    paths = [f"-Dpybind11_DIR={pybind11.get_cmake_dir()}", f"-DPython_EXECUTABLE={sys.executable}"]
    options = ["-DCMAKE_BUILD_TYPE=Release", "-DTCIM_LITE_UNITY=ON", *paths]
    run("cmake", "-G", "Ninja", "-S", ROOT, "-B", folder, *options)
    run("cmake", "--build", folder)
    return folder
