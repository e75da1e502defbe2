"""Builds the C++ programs of cpp/ against an SDK, with the compiler of the machine and nothing else."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

from . import under_test as rt
from .checks import NotRunError

FOLDER = Path(__file__).parent / "cpp"

SECONDS = 280.0


def sdk_folder(given: Path | None) -> Path:
    """The SDK that is named, or that of the runtime under test.

    Raises:
        NotRunError: there is none.
    """
    candidates = [given] if given else []
    if given is None:
        for name in (rt.name(), f"{rt.package()}._core"):  # an editable install has its core elsewhere
            spec = importlib.util.find_spec(name)
            if spec is not None and spec.origin is not None:
                folder = Path(spec.origin).parent
                candidates += [folder, folder.parent]
        if os.environ.get("TCIM_RUNTIME_PATH"):
            candidates.append(Path(os.environ["TCIM_RUNTIME_PATH"]))
    for folder in candidates:
        if (folder / "include/tcim/tcim_runtime.h").is_file():
            return folder
    raise NotRunError("no C++ SDK; name it with --sdk")


def compiler(names: Iterable[str] = ()) -> str:
    """A C++ compiler: $CXX or the machine's, or one of these names.

    Raises:
        NotRunError: there is none.
    """
    wanted = list(names) or [os.environ.get("CXX", "c++"), "g++", "clang++"]
    for name in wanted:
        if shutil.which(name):
            return name
    raise NotRunError(f"no C++ compiler ({', '.join(wanted)})")


def compile_only(sdk: Path, command: str, *options: str) -> None:
    """Runs a compiler on a source with the SDK's headers."""
    _run(command, f"-I{sdk}/include", *options)


def build(sdk: Path, folder: Path, name: str, sources: list[Path], *options: str) -> Path:
    """The program `name`, built once per folder. CXXFLAGS and LDFLAGS are heeded, for sanitizers.

    The sources are compiled as one: their headers take the compiler longer than they do.
    """
    program = folder / name
    if program.exists():
        return program
    parts = folder / f"{name}.parts"
    parts.mkdir(exist_ok=True)
    header = (sdk / "include/tcim/tcim_runtime.h").read_text(encoding="utf-8", errors="replace")
    known = ["-DHAS_LAST_ERROR"] if "GetLastError" in header else []
    flags = [*shlex.split(os.environ.get("CXXFLAGS", "")), *shlex.split(os.environ.get("LDFLAGS", ""))]
    together = parts / "together.cpp"
    together.write_text("".join(f'#include "{source}"\n' for source in sources), encoding="utf-8")
    libraries = [f"-L{sdk}/lib", f"-Wl,-rpath,{sdk}/lib", "-ltcim_runtime_lite", "-lpthread"]
    made = parts / "program"
    _run(compiler(), *options, *known, *flags, f"-I{sdk}/include", str(together), *libraries, "-o", str(made))
    made.rename(program)
    return program


def case_bodies(files: str = "*_cases.cpp") -> dict[str, str]:
    """The text of every CASE by its name."""
    found: dict[str, str] = {}
    for path in sorted(FOLDER.glob(files)):
        for part in re.split(r"^(?=CASE\()", path.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
            found[part[5 : part.index(")")]] = part
    return found


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 0, f"{shlex.join(command)}\n{(done.stdout + done.stderr)[-8000:]}"
