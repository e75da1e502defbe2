"""Build trees that find the SDK by environment variables, as those of the vendor's programs do, not by its package."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from cpp_programs import build, run

pytestmark = pytest.mark.build

# A library for several programs, as the vendor's engine is.
ENGINE = """
#include <string>

#include "tcim/tcim_runtime.h"

int inputs_of(const std::string& path) {
  tcim::Module module;
  return module.LoadModel(path) == tcim::Status::OK ? module.GetInputNum() : -1;
}
"""
PROGRAM = """
#include <cstdio>
#include <string>

#include "hm_sys.h"
#include "tcim/tcim_dev_ctrl.h"

int inputs_of(const std::string& path);

int main(int, char** argv) {
  if (!tcim::dev_ctrl::HalDeviceFactory::Create("Xh2aHalBackend")) return 1;
  std::printf("%d cores, %d inputs\\n", hm_sys_get_core_count(2), inputs_of(argv[1]));
}
"""
PROJECT = """
cmake_minimum_required(VERSION 3.16.3)
project(program CXX)
include_directories($ENV{{{runtime}}}/include $ENV{{HOUMO_SDK_PATH}}/hal/export/include)
link_directories($ENV{{{runtime}}}/lib $ENV{{HOUMO_SDK_PATH}}/hal/lib)
{find}
add_library(engine SHARED engine.cpp)
target_link_libraries(engine PUBLIC {library} ${{CMAKE_DL_LIBS}} pthread)
add_executable(program program.cpp)
target_link_libraries(program PRIVATE engine hal_xh2a)
install(TARGETS program engine DESTINATION .)
"""
BY_NAME = {"find": "", "library": "tcim_runtime_lite"}
FOUND = {
    "find": "find_library(TCIM_LIB NAMES tcim_runtime_lite PATHS $ENV{TCIM_RUNTIME_PATH}/lib NO_DEFAULT_PATH REQUIRED)",
    "library": "${TCIM_LIB}",
}


@pytest.mark.parametrize(
    ("runtime", "way"), [("TCIM_RUNTIME_PATH", BY_NAME), ("TCIM_RUNTIME_PATH", FOUND), ("HOUMO_PATH", BY_NAME)]
)
def test_programs_find_the_sdk_by_the_variables_of_the_vendor(sdk, add_model, tmp_path: Path, runtime: str, way: dict):
    (tmp_path / "CMakeLists.txt").write_text(PROJECT.format(runtime=runtime, **way))
    (tmp_path / "engine.cpp").write_text(ENGINE)
    (tmp_path / "program.cpp").write_text(PROGRAM)
    folders = {runtime: str(sdk), "HOUMO_SDK_PATH": str(sdk)}
    built = build(tmp_path, tmp_path / "build", f"-DCMAKE_INSTALL_PREFIX={tmp_path / 'bin'}", env=folders)
    run("cmake", "--install", built)  # which takes the run path off
    libraries = os.pathsep.join(map(str, (tmp_path / "bin", sdk / "lib", sdk / "hal/lib")))
    environment = {"LD_LIBRARY_PATH": libraries, "TCIM_LITE_DEVICE_NUM": "3"}
    assert run(tmp_path / "bin/program", add_model, env=environment) == "2 cores, 4 inputs\n"
