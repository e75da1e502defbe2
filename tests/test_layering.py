"""The arrows of docs/architecture.md: a layer uses what is below it, never what is above or beside it."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

CPP_MAY_USE = {
    "base": {"base"},
    "graph": {"graph", "base"},
    "hmm": {"hmm", "graph", "base"},
    "backends": {"backends", "graph", "base"},
    "runtime": {"runtime", "hmm", "backends", "graph", "base"},
    "layers": {"layers", "runtime", "graph", "base"},
    "bindings": {"bindings", "layers", "runtime", "graph", "base"},
    "facade": {"facade", "runtime", "base", "tcim"},  # tcim/ holds its public header
    "hal": {"facade", "runtime", "base"},
    "c_api": {"c_api", "facade", "base", "tcim"},
}

# Folder -> modules that must not be imported there, at any depth.
PYTHON_MUST_NOT_IMPORT = {
    "tcim_lite/hmm": ("tcim_lite._core", "tcim_lite.runtime", "tcim_lite.models", "torch", "transformers"),
    "tcim_lite/runtime": (
        "tcim_lite.models",
        "tcim_lite.llm",
        "tcim_lite.bench",
        "tcim_lite.cli",
        "torch",
        "transformers",
    ),
    "tcim_lite/dev_ctrl": ("tcim_lite.runtime", "tcim_lite.models", "tcim_lite.llm", "tcim_lite.cli", "torch"),
    "tcim_lite/shims": ("tcim_lite._core", "tcim_lite.models", "tcim_lite.llm", "tcim_lite.cli", "torch"),
    "tcim_lite/llm": ("tcim_lite._core", "tcim_lite.models", "tcim_lite.cli", "torch"),
    "tcim_lite/serve": (
        "tcim_lite._core",
        "tcim_lite.models",
        "tcim_lite.runtime",
        "tcim_lite.cli",
        "torch",
        "transformers",
    ),
    "tcim_lite/diff": ("tcim_lite._core", "tcim_lite.cli"),
    "tcim_lite/drawing": ("tcim_lite._core", "tcim_lite.cli", "tcim_lite.models", "tcim_lite.runtime", "torch"),
    "tcim_lite/portcheck": ("tcim_lite._core", "tcim_lite.cli", "tcim_lite.models", "tcim_lite.runtime", "torch"),
    # Nothing of the project: a copy of the folder works alone.
    "tcim_lite/replay": (
        "tcim_lite._core",
        "tcim_lite.cli",
        "tcim_lite.errors",
        "tcim_lite.hmm",
        "tcim_lite.layers",
        "tcim_lite.llm",
        "tcim_lite.models",
        "tcim_lite.runtime",
        "torch",
    ),
    "tcim_lite/vllm": ("tcim_lite._core", "tcim_lite.cli", "tcim_lite.serve", "transformers"),
    "tcim_lite/bench": ("tcim_lite.models", "tcim_lite.cli", "torch", "transformers"),
    "examples": ("tcim_lite._core", "tcim_lite.models", "tcim_lite.hmm", "tcim_lite.cli"),
    "models": ("tcim_lite._core", "tcim_lite.runtime", "tcim_lite.llm", "tcim_lite.cli"),
}


def test_the_tables_of_the_page_have_every_folder_and_nothing_else():
    """Folders of the C++ core, folders and modules of the package, folders of the compiler."""
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    rows = {name for row in re.findall(r"^\| (`.+?) \|.*\|$", page, re.M) for name in re.findall(r"`([^`]+)`", row)}
    rows |= set(re.findall(r"`(tcim_lite/\w+\.py)` is another name", page))
    tops = {name for name in rows if name.startswith(("csrc/", "tcim_lite/"))}
    assert {name for name in tops if not (ROOT / name).exists()} == set()
    found = [*(ROOT / "csrc").iterdir(), *(ROOT / "csrc/backends").iterdir(), *(ROOT / "tcim_lite").iterdir()]
    folders = {path.relative_to(ROOT).as_posix() for path in found if path.is_dir() and path.name != "__pycache__"}
    modules = {path.relative_to(ROOT).as_posix() for path in (ROOT / "tcim_lite").glob("[a-z]*.py")}
    assert (folders | modules) - tops == set()
    compiler = {path.parent.name for path in (ROOT / "models").glob("*/*.py")}
    assert compiler - rows == set()
    assert {name for name in rows - tops - {"models"} if not (ROOT / "models" / name).is_dir()} == set()


@pytest.mark.parametrize("layer", sorted(CPP_MAY_USE))
def test_a_cpp_layer_includes_only_layers_below_it(layer):
    sources = [path for path in (ROOT / "csrc" / layer).rglob("*") if path.suffix in {".h", ".cpp"}]
    assert sources
    for path in sources:
        for include in re.findall(r'#include "([^"/]+)/', path.read_text()):
            assert include in CPP_MAY_USE[layer], f"{path.relative_to(ROOT)} includes {include}/"


def test_kernel_files_include_the_table_vector_headers_and_intrinsics():
    """What the headers may define is held by test_kernel_symbols.py; these alone keep containers and the rest out."""
    kernels, definition = "backends/cpu/kernels/", "backends/cpu/reference/"
    allowed = {"<arm_neon.h>", "<cstddef>", "<cstdint>", "<immintrin.h>", '"backends/cpu/kernel_table.h"'}
    allowed.add('"graph/weight_format.h"')  # numbers; its functions have internal linkage
    # The reference is built with the flags of everything else.
    for folder, more, own in (
        (kernels, set(), (f'"{kernels}',)),
        (definition, {"<bit>", "<cmath>", '"base/half.h"'}, (f'"{kernels}', f'"{definition}')),
    ):
        sources = [path for path in (ROOT / "csrc" / folder).rglob("*") if path.suffix in {".h", ".cpp"}]
        assert sources
        for path in sources:
            for include in re.findall(r'#include (["<][^">]+[">])', path.read_text()):
                assert include in allowed | more or include.startswith(own), f"{path.name} includes {include}"


def test_a_call_says_one_thing_of_the_device_wherever_it_is_made():
    """Overloads make the same call; as two, rules of faults would find the one or the other."""
    needs: dict[str, set[str]] = {}
    for path in (ROOT / "csrc").rglob("*.cpp"):
        for need, name in re.findall(r'\b(device|host)_call<"([\w.]+)">', path.read_text()):
            needs.setdefault(name, set()).add(need)
    assert len(needs) > 40
    assert {name for name, found in needs.items() if len(found) > 1} == set()


def test_the_public_headers_include_nothing_of_the_core():
    for header in (ROOT / "csrc/facade/include").rglob("*.h"):
        included = set(re.findall(r'#include "([^"]+)"', header.read_text()))
        assert included <= {"tcim/tcim_runtime.h", "tcim/tcim_image_process.h", "tcim_c_api_classes.h"}


def test_only_bindings_include_pybind11():
    for path in (ROOT / "csrc").rglob("*"):
        if path.suffix in {".h", ".cpp"} and "pybind11" in path.read_text():
            assert path.parent.name == "bindings", path


@pytest.mark.parametrize("folder", sorted(PYTHON_MUST_NOT_IMPORT))
def test_a_python_layer_does_not_import_layers_above_it(folder):
    package = folder.replace("models", "tcim_lite.models", 1) if folder == "models" else folder.replace("/", ".")
    sources = list((ROOT / folder).rglob("*.py"))
    assert sources
    for path in sources:
        parts = package.split(".") + list(path.relative_to(ROOT / folder).parent.parts)
        for dots, module in re.findall(r"^\s*(?:from|import)\s+(\.*)([\w.]*)", path.read_text(), re.MULTILINE):
            base = ".".join(parts[: len(parts) - len(dots) + 1]) if dots else ""
            name = ".".join(part for part in (base, module) if part)
            for forbidden in PYTHON_MUST_NOT_IMPORT[folder]:
                assert not f"{name}.".startswith(f"{forbidden}."), f"{path.relative_to(ROOT)}: {name}"


def test_only_the_plugin_imports_vllm():
    for path in (ROOT / "tcim_lite").rglob("*.py"):
        if path.parent.name != "vllm":
            assert not re.search(r"^\s*(?:from|import)\s+vllm\b", path.read_text(), re.MULTILINE), path
