"""The C++ API (spec tcim-api section 12): corners, and code in the vendor's style, built against the installed SDK.

The build folder is build/facade-tests of the checkout and is kept between runs. The examples' tests are in tests/llm.
"""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

import pytest
from cpp_programs import ROOT, build, facade_programs, run

SOURCES = ROOT / "tests/facade"
CASES = re.findall(r"^CASE\((\w+)\)", "".join(path.read_text() for path in sorted(SOURCES.glob("*.cpp"))), re.MULTILINE)
TWO_DEVICES = {"TCIM_LITE_DEVICE_NUM": "2"}


@pytest.fixture(scope="session")
def programs(sdk) -> Path:
    return facade_programs(sdk)


@pytest.fixture
def models(add_model, linear_pair, attention_pair, linear_bytes, tmp_path) -> Path:
    (tmp_path / "self_contained.hmm").write_bytes(linear_bytes)
    shutil.copy(ROOT / "tests/data/hmm/two_devices.hmms", tmp_path)
    return tmp_path


@pytest.fixture
def case(request, programs, models):
    """Runs the case of tests/facade/*_cases.cpp that has the name of the test."""
    name = request.node.name.removeprefix("test_")
    return lambda: run(programs / "facade_cases", name, models, env=TWO_DEVICES)


def test_c01_runs_write_the_caches_bound_to_them(case):
    case()


def test_c02_a_host_write_goes_through_the_binding(case):
    case()


def test_c03_host_data_is_copied_at_call_time(case):
    case()


def test_c09_an_output_may_be_an_input_of_its_own_module(case):
    case()


def test_c22_what_is_bound_outlives_its_owner(case):
    case()


def test_c25_an_explicit_destructor_before_the_scope_ends_is_harmless(case):
    case()


def test_c26_setting_an_unchanged_device_tensor_again_costs_nothing(case):
    case()


def test_c27_an_info_prints_as_one_line(case):
    case()


def test_c28_a_model_for_several_devices_loads_with_all_of_them(case):
    case()


def test_c30_a_load_that_fails_gives_a_falsy_module(case):
    case()


def test_c30_a_failed_load_leaves_a_loaded_module_alone(case):
    case()


@pytest.mark.parametrize("name", [name for name in CASES if not re.match(r"c\d\d_", name)])
def test_case(programs, models, name):
    run(programs / "facade_cases", name, models, env=TWO_DEVICES)


def test_every_corner_of_the_cpp_program_is_a_test_here():
    assert {f"test_{name}" for name in CASES if re.match(r"c\d\d_", name)} <= set(globals())


@pytest.mark.parametrize("extensions", ["ON", "OFF"])
def test_c24_code_in_the_vendors_style_compiles_and_runs(programs, models, extensions):
    printed = run(programs / f"vendor_style_gnu_{extensions}", models / "add.hmm")
    assert "Input[a] TensorInfo: shape: [2,3], dtype: FLOAT16, format: ND, size: 6, memsize: 12" in printed


@pytest.mark.parametrize("standard", ["c++17", "gnu++17", "c++20"])
@pytest.mark.parametrize("name", ["g++", "clang++"])
def test_c24_the_header_compiles_with_every_compiler_here(sdk, name, standard):
    if shutil.which(name) is None:
        pytest.skip(f"{name} is missing")
    run(name, f"-std={standard}", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only", f"-I{sdk}/include",
        "-x", "c++", "-include", "tcim/tcim_runtime.h", "/dev/null")  # fmt: skip
    run(name, f"-std={standard}", "-w", "-O2", "-fsyntax-only", f"-I{sdk}/include", SOURCES / "vendor_style.cpp")


PYTHON_AND_CPP = """
import ctypes, sys
from tcim_lite import _core, runtime
library, model = ctypes.CDLL(sys.argv[1]), sys.argv[2]
before = _core.device_memory_used(0)
assert library.load_in_cpp(model.encode()) == 0
loaded = _core.device_memory_used(0)
assert loaded > before, "C++ and Python do not count the same device memory"
library.unload_in_cpp()
assert _core.device_memory_used(0) == before
print(len({line.split()[-1] for line in open("/proc/self/maps") if "libtcim_runtime_lite" in line}))
"""


def test_python_and_cpp_callers_share_one_core(programs, models):
    library = next(programs.glob("libfrom_python.so"))
    assert run(sys.executable, "-c", PYTHON_AND_CPP, library, models / "add.hmm") == "1\n"


def test_python_finds_its_own_library_before_one_on_ld_library_path(tmp_path):
    (tmp_path / "libtcim_runtime_lite.so").write_text("not ours")
    code = "import tcim_lite.runtime as r; print(r.get_version())"
    assert run(sys.executable, "-c", code, env={"LD_LIBRARY_PATH": str(tmp_path)}).startswith("v")


def test_the_sdks_python_folder_leads_to_the_package(sdk):
    code = "import tcim_lite, tcim_lite.runtime; print(tcim_lite.__file__)"
    printed = run(sys.executable, "-c", code, env={"PYTHONPATH": str(sdk / "python")})
    assert Path(printed.strip()) == sdk.parent / "__init__.py"


def test_a_build_without_python_installs_the_same_sdk(sdk, tmp_path):
    # The folder and the options of test_cpp.py, where most of it is built already.
    options = ["-DTCIM_LITE_PYTHON=OFF", "-DTCIM_LITE_TESTS=ON", "-DCMAKE_BUILD_TYPE=Release"]
    folder = build(ROOT, ROOT / "build/cpp-tests/release", *options, targets=("tcim_runtime_lite",))
    run("cmake", "--install", folder, "--prefix", tmp_path / "sdk")

    def files(prefix: Path) -> set[Path]:
        found = {path.relative_to(prefix) for path in prefix.rglob("*") if path.is_file()}
        return {path for path in found if path.parts[0] != "python"}

    assert files(tmp_path / "sdk") == files(sdk)
