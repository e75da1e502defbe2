"""The installed C++ SDK beside Python. What its API does: tcim_lite/conformance/cpp, run by tests/conformance.

The build folder is build/facade-tests of the checkout and is kept between runs. The examples' tests are in tests/llm.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest
from cpp_programs import ROOT, facade_programs, run

import tcim_lite.runtime as rt
from tcim_lite import _core
from tcim_lite.dev_ctrl.monitor import snapshot

pytestmark = pytest.mark.build


@pytest.fixture(scope="session")
def programs(sdk) -> Path:
    return facade_programs(sdk)


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


def test_python_and_cpp_callers_share_one_core(programs, add_model):
    library = next(programs.glob("libfrom_python.so"))
    assert run(sys.executable, "-c", PYTHON_AND_CPP, library, add_model) == "1\n"


def test_a_library_that_uses_the_sdk_may_be_unloaded(programs, add_model):
    run(programs / "unload", next(programs.glob("libfrom_python.so")), add_model)


def test_a_fork_passes_threads_that_never_pause(programs, add_model):
    assert run(programs / "forks", add_model) == "0 failed\n"


def test_calls_work_and_fail_as_ever_while_threads_and_the_process_end(programs, add_model):
    printed = run(programs / "at_exit", add_model)
    places = ["thread", "destructor of a thread's object", "main", "atexit", "destructor of a static object"]
    assert printed.splitlines() == [f"{place}: ok" for place in places]


def test_options_have_the_members_of_older_headers(programs, add_model):
    run(programs / "options", add_model, env={"TCIM_LITE_DEVICE_NUM": "2"})


def test_inputs_and_outputs_pass_through_float32_as_workers_of_others_have_them(programs, write_add):
    run(programs / "workers", write_add((2, 3), "float16"))


def test_the_c_functions_of_devices_say_what_smi_shows(programs, add_model):
    model = rt.load(add_model)  # in this process, which the program sees
    printed = run(programs / "hal", "0", env={"TCIM_LITE_DEVICE_NUM": "2"})
    said = dict(line.split(maxsplit=1) for line in printed.splitlines())
    (state,) = (device for device in snapshot().devices if device.id == 0)
    assert model.get_num_inputs() > 0
    assert state.memory_used > 0
    # Processes of other tests come and go.
    assert int(said["used"]) > 0
    assert int(said["total"]) == state.memory_total >> 20
    assert (said["ids"], int(said["bytes"])) == ("0 1", state.memory_total)
    assert (said["name"], said["cores"], said["tops"]) == (state.name, "2", "160")
    assert said["version"] == rt.get_version().split("\n")[0]
    assert int(said["hertz"]) == state.clock_mhz * 10**6
    share = float(said["utilization"])
    assert abs(float(said["watts"]) - _core.modelled_power_watts(share)) < 0.2
    assert abs(float(said["celsius"]) - _core.modelled_temperature_c(share)) < 0.6
    assert said["idle"].endswith("of 1400000000")


def test_the_c_functions_take_devices_from_the_profile(programs, tmp_path):
    profile = tmp_path / "devices.ini"
    profile.write_text("[device]\n" * 50 + "[device]\nname = small\nmemory = 64 MiB\nclocks = 800 MHz\n")
    printed = run(programs / "hal", "50", env={"TCIM_LITE_DEVICES": str(profile)})  # which no other process has
    said = dict(line.split(maxsplit=1) for line in printed.splitlines())
    assert said["ids"].split() == [str(number) for number in range(32)]  # as many as the struct can hold
    assert (said["name"], said["total"], said["used"]) == ("small", "64", "0")
    assert said["idle"] == "400000000 of 800000000"


SOURCE = """
#include "tcim/tcim_dev_ctrl.h"
#include "hm_sys.h"
#include "tcim/tcim_imageops.h"
#include "tcim/tcim_runtime.h"
struct Derived : public tcim::Module {{}};
int {name}() {{
  Derived module;
  tcim::Module::Option option(0);
  option.SetDummyTensors({{}});
  const std::ifstream file;  // programs of the vendor's do not include it themselves
  const tcim::Tensor host = tcim::Tensor::CreateHostTensor(tcim::TensorInfo::CreateNDInfo({{2}}, tcim::INT8));
  tcim::ImageOps::ColorConverter converter;
  const int code = converter.Init();
  return module.GetInitStatus() == tcim::UNINITIALIZED && host.MemSize() == 2 && code == 0 ? 0 : 1;
}}
"""
WARNINGS = ["-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Wold-style-cast", "-Werror"]
LEANEST = ["-std=c++2b", "-fno-exceptions", "-fno-rtti"]


@pytest.mark.parametrize("compiler", ["g++", "clang++"])
def test_the_headers_are_clean_in_every_standard_and_in_two_sources(sdk, tmp_path, compiler):
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not on the PATH")
    (tmp_path / "one.cpp").write_text(SOURCE.format(name="one"))
    (tmp_path / "two.cpp").write_text(SOURCE.format(name="two") + "int one();\nint main() { return one() + two(); }\n")
    folders = [f"-I{sdk}/include", f"-I{sdk}/hal/export/include"]
    for options in (["-std=c++11"], ["-std=c++14"], ["-std=gnu++17"], ["-std=c++20"], LEANEST):
        run(compiler, *options, *WARNINGS, *folders, "-fsyntax-only", tmp_path / "two.cpp")
    sources = [tmp_path / "one.cpp", tmp_path / "two.cpp"]
    link = [f"-L{sdk}/lib", f"-Wl,-rpath,{sdk}/lib", "-ltcim_runtime_lite"]
    run(compiler, "-std=c++17", *WARNINGS, *folders, *sources, *link, "-o", tmp_path / "program")
    run(tmp_path / "program")


SUBPROJECT = """
cmake_minimum_required(VERSION 3.20)
project(app LANGUAGES CXX)
include(FetchContent)
FetchContent_Declare(tcim_lite SOURCE_DIR "{root}")
FetchContent_MakeAvailable(tcim_lite)
file(WRITE app.cpp "#include <tcim/tcim_dev_ctrl.h>\n#include <tcim/tcim_runtime.h>\nint main() {{}}\n")
add_executable(app app.cpp)
target_compile_options(app PRIVATE -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Werror)
target_link_libraries(app PRIVATE tcim::tcim_runtime_lite)
"""


def test_a_project_may_add_this_one_and_keeps_its_own_options(tmp_path):
    """Compiles a program of that project; its library would be that of the package."""
    (tmp_path / "CMakeLists.txt").write_text(SUBPROJECT.format(root=ROOT))
    options = ["-DTCIM_LITE_CUDA=OFF", "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON"]
    run("cmake", "-G", "Ninja", "-S", tmp_path, "-B", tmp_path / "build", *options)
    run("ninja", "-C", tmp_path / "build", "CMakeFiles/app.dir/app.cpp.o")
    commands = json.loads((tmp_path / "build/compile_commands.json").read_text())
    (command,) = (entry["command"] for entry in commands if entry["file"].endswith("app.cpp"))
    assert "-ffp-contract" not in command
    assert f"-I{ROOT}/csrc " not in command


def test_python_finds_its_own_library_before_one_on_ld_library_path(tmp_path):
    (tmp_path / "libtcim_runtime_lite.so").write_text("not ours")
    code = "import tcim_lite.runtime as r; print(r.get_version())"
    assert run(sys.executable, "-c", code, env={"LD_LIBRARY_PATH": str(tmp_path)}).startswith("v")


def test_the_sdk_is_the_packages_folder_as_the_vendors_is(sdk):
    """Build scripts of the vendor fall back on `site-packages/tcim_lite` of their environment."""
    assert sdk == Path(_core.__file__).parent
    assert {path.name for path in sdk.iterdir()} >= {"__init__.py", "hal", "include", "lib", "python"}


def test_the_sdks_python_folder_leads_to_the_package(sdk):
    code = "import tcim_lite, tcim_lite.runtime; print(tcim_lite.__file__)"
    printed = run(sys.executable, "-c", code, env={"PYTHONPATH": str(sdk / "python")})
    assert Path(printed.strip()) == sdk / "__init__.py"


def test_the_sdks_python_folder_shows_the_vendors_wheel(sdk):
    """Scripts of the vendor ask `pip list` for it, in an environment of their own; without that folder it is not there,
    so `pip freeze` does not name what PyPI has not."""
    code = """
from importlib import metadata
import tcim_lite.runtime
found = [d.version for d in metadata.distributions() if (d.metadata["Name"] or "").startswith("houmo_tcim_runtime")]
print(found, tcim_lite.runtime.get_version().split()[0])
"""
    printed = run(sys.executable, "-c", code, env={"PYTHONPATH": str(sdk / "python"), "TCIM_LITE_EMULATE": "1.4"})
    version = printed.split()[-1].removeprefix("v")
    assert printed.split("] ")[0] == f"['{version}'"
    assert run(sys.executable, "-c", code).startswith("[] v")


def test_a_build_without_python_installs_the_same_sdk(sdk, tmp_path):
    """Its libraries are those of the package, which saves a build; test_cpp.py builds the core without Python."""
    run("cmake", "-G", "Ninja", "-S", ROOT, "-B", tmp_path / "build", "-DTCIM_LITE_PYTHON=OFF", "-DTCIM_LITE_CUDA=OFF")
    parts = {"facade": "lib/libtcim_runtime_lite.so", "c_api": "lib/libtcim_runtime_c_api.so"}
    for folder, part in {**parts, "hal": "hal/lib/libhal_xh2a.so"}.items():
        shutil.copy(sdk / part, tmp_path / "build/csrc" / folder)
    run("cmake", "--install", tmp_path / "build", "--prefix", tmp_path / "sdk")

    def files(prefix: Path) -> set[Path]:
        parts = [prefix / part for part in ("hal", "include", "lib")]
        return {path.relative_to(prefix) for part in parts for path in part.rglob("*") if path.is_file()}

    assert files(tmp_path / "sdk") == files(sdk)
