"""What our libraries show to others, and a build whose C++ runtime is linked in beside PyTorch, which has its own.

The static build is the package's own, linked again: the objects in the folder of the wheel's build serve both.
"""

from __future__ import annotations

import fnmatch
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from cpp_programs import ROOT, run

import tcim_lite

PACKAGE = Path(tcim_lite.__file__).parent
CORE = "lib/libtcim_runtime_lite.so"
BINDINGS = f"_core{sysconfig.get_config_var('EXT_SUFFIX')}"
STATIC = "-static-libstdc++ -static-libgcc"


def exported(library: Path) -> list[tuple[str, str]]:
    """(letter of nm, demangled name) of each symbol that other libraries can see."""
    lines = run("nm", "--dynamic", "--defined-only", "--demangle", library).splitlines()
    return [tuple(line.split(maxsplit=2)[1:]) for line in lines]


def listed() -> list[str]:
    """The patterns of the version script."""
    text = re.sub(r"#.*", "", (ROOT / "csrc/facade/exports.map.in").read_text())
    text = text[text.index("global:") : text.index("local:")].replace('extern "C++" {', "")
    return [name for name in re.findall(r'([\w:*?~()"]+);', text) if "@" not in name]


def configure(folder: Path, *options: str, env: dict[str, str] | None = None) -> None:
    """Configures the package in `folder` with a C++ runtime linked into each library."""
    flags = [f"-DCMAKE_{kind}_LINKER_FLAGS={STATIC}" for kind in ("SHARED", "MODULE")]
    pybind11 = run(sys.executable, "-m", "pybind11", "--cmakedir").strip()
    python = [f"-Dpybind11_DIR={pybind11}", f"-DPython_EXECUTABLE={sys.executable}"]
    unity = "-DTCIM_LITE_UNITY=ON"  # as pyproject.toml has it: the names of the objects
    options = ("-DTCIM_LITE_CUDA=OFF", unity, *flags, *python, *options)
    run("cmake", "-G", "Ninja", "-S", ROOT, "-B", folder, *options, env=env)


@pytest.fixture(scope="session")
def configured(tmp_path_factory) -> Path:
    """A build folder of that package, as for an editable install."""
    folder = tmp_path_factory.mktemp("static")
    configure(folder, "-DSKBUILD_STATE=editable")
    return folder


@pytest.fixture(scope="session")
def static_package(tmp_path_factory, configured) -> Path:
    """A copy of the installed package; returns the folder to import it from."""
    site = tmp_path_factory.mktemp("site")
    shutil.copytree(PACKAGE, site / "tcim_lite", ignore=shutil.ignore_patterns("__pycache__"))
    version = "cp{}{}".format(*sys.version_info)
    (built,) = ROOT.glob(f"build/{version}-{version}-*")

    def link(target: str, output: Path, core: Path | None = None) -> None:
        command = run("ninja", "-C", configured, "--quiet", "-t", "commands", "-s", f"csrc/{target}")
        command = command.split(" && ")[1]  # ": && LINK && STRIP"
        command = command.replace(f"-o csrc/{target}", f"-o {output}")
        command = command.replace(" csrc/facade/libtcim_runtime_lite.so", f" {core}")
        # Where the objects are.
        done = subprocess.run(command, shell=True, cwd=built, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr

    package = site / "tcim_lite"
    link("facade/libtcim_runtime_lite.so", package / CORE)
    link(f"bindings/{BINDINGS}", package / BINDINGS, package / CORE)
    return site


@pytest.fixture(params=["installed", pytest.param("static", marks=pytest.mark.build)])
def package(request) -> Path:
    return PACKAGE if request.param == "installed" else request.getfixturevalue("static_package") / "tcim_lite"


def test_the_runtime_library_shows_what_its_list_names(package):
    symbols = exported(package / CORE)
    # Neither shared over libraries by the loader (u) nor one of several definitions (W), but for type information.
    wrong = [f"{kind} {name}" for kind, name in symbols if kind not in "TDR" and not re.match("typeinfo|vtable", name)]
    assert wrong == []
    patterns = [name.strip('"') for name in listed()]
    for _, name in symbols:
        assert any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns), name
    for pattern in patterns:
        assert any(fnmatch.fnmatchcase(name, pattern) for _, name in symbols), f"{pattern} matches nothing"


def test_the_extension_shows_its_entry(package):
    assert exported(package / BINDINGS) == [("T", "PyInit__core")]


@pytest.mark.build
def test_the_static_build_needs_no_other_cpp_runtime(static_package):
    for name in (CORE, BINDINGS):
        needed = re.findall(r"NEEDED.*\[(.*)\]", run("readelf", "--dynamic", static_package / "tcim_lite" / name))
        assert "libstdc++.so.6" not in needed


BESIDE_TORCH = """
import sys
for name in sys.argv[1].split():
    __import__(name)
import numpy as np
import torch
import tcim_lite.runtime as rt

def message(kind, call):
    try:
        call()
    except kind as error:
        assert type(error) is kind
        return str(error)

for _ in range(2):
    # Both print numbers through streams.
    assert "(3x4 and 5x6)" in message(RuntimeError, lambda: torch.ones(3, 4) @ torch.ones(5, 6))
    model = rt.load(sys.argv[2])
    assert "7" in message(rt.ShapeError, lambda: model.set_input("a", np.ones((7, 1), np.float16)))
    assert "nowhere" in message(rt.HmmFormatError, lambda: rt.load("nowhere.hmm"))
    model.set_input("a", np.full((2, 3), 1, np.float16))
    model.set_input("b", torch.full((2, 3), 0.5, dtype=torch.float16).numpy())
    model.run(True)
    assert (model.get_output("total").numpy() == 1.5).all()
"""


@pytest.mark.oracle
@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch")
@pytest.mark.parametrize("order", ["torch tcim_lite.runtime", "tcim_lite.runtime torch"])
def test_the_package_works_beside_torch(package, order, add_model):
    run(sys.executable, "-c", BESIDE_TORCH, order, add_model, env={"PYTHONPATH": str(package.parent)})


@pytest.mark.build
def test_a_compiler_without_the_shared_unwinder_is_refused(tmp_path):
    compiler = tmp_path / "g++"
    compiler.write_text(f"""#!/bin/sh
for word in "$@"; do if [ "$word" = -lgcc_s ]; then echo "no -lgcc_s" >&2; exit 1; fi; done
exec {shutil.which(os.environ.get("CXX", "c++"))} "$@"
""")
    compiler.chmod(0o755)
    with pytest.raises(AssertionError, match=r"exceptions do not pass between shared libraries"):
        configure(tmp_path / "build", env={"CXX": str(compiler)})


@pytest.mark.build
def test_an_editable_install_puts_the_shims_of_the_sources_on_the_path(configured):
    folder = Path((configured / "csrc/bindings/tcim_lite_shims.pth").read_text().rstrip("\n"))
    assert (folder / "hmatc/python/get_hm_devices.py").exists()
    assert folder == ROOT / "tcim_lite/shims"


def test_processes_that_share_the_tests_take_whole_groups(request):
    if not hasattr(request.config, "workerinput"):
        pytest.skip("one process runs all tests")
    assert request.node.nodeid.endswith("@test_toolchain.py"), "needs --dist loadgroup, and pytest below 9.2"
