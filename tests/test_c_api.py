"""The SDK's runtime API in C (docs/cpp.md)."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from cpp_programs import facade_programs, run
from tiny_graphs import HIDDEN

import tcim_lite.runtime as rt

pytestmark = pytest.mark.build
LIBRARY = "lib/libtcim_runtime_c_api.so"


@pytest.fixture(scope="module")
def programs(sdk) -> Path:
    return facade_programs(sdk, "c_api", "c_api_mistakes")


def rows(tokens: int, seed: int) -> np.ndarray:
    count = np.arange(tokens * HIDDEN)
    return (((count * 7 + seed) % 13 - 6) / 8).astype(np.float16).reshape(1, tokens, HIDDEN)


def in_python(prefill_path: Path, decode_path: Path, tokens: int) -> np.ndarray:
    prefill, decode = rt.load(prefill_path), rt.load(decode_path)
    caches = [name for name in map(prefill.get_input_name, range(prefill.get_num_inputs())) if "cache" in name]
    found = []
    for module, seed, valid, current in ((prefill, 3, 0, tokens), (decode, 5, tokens, 1)):
        if module is decode:
            for name in caches:
                module.set_input(name, prefill.get_dev_input(name))
        module.set_input("input_1", rows(current, seed))
        module.set_input("valid_length", np.int32([valid]))
        module.set_input("current_length", np.int32([current]))
        module.run(sync=True)
        found.append(module.get_output("logits").numpy().astype(np.float32).ravel())
    return np.concatenate(found)


def test_prefill_and_decode_share_caches_as_in_python(programs, sdk, attention_pair):
    command = [programs / "c_api", sdk / LIBRARY, *attention_pair, "4"]
    done = subprocess.run(command, capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stderr == b""
    expected = in_python(*attention_pair, 4)
    assert len(expected) == 5 * HIDDEN
    np.testing.assert_array_equal(np.frombuffer(done.stdout, np.float32), expected)


def test_mistakes_are_errors_that_name_the_call(programs, sdk, add_model, tmp_path):
    (tmp_path / "none").write_text("no model, and no library")
    run(programs / "c_api_mistakes", add_model, sdk / LIBRARY, tmp_path / "none")


def test_a_program_opens_the_library_by_its_name(programs, sdk, attention_pair):
    command = [programs / "c_api", Path(LIBRARY).name, *attention_pair, "4"]
    assert b"cannot open shared object file" in subprocess.run(command, capture_output=True, env={}, timeout=60).stderr
    done = subprocess.run(command, capture_output=True, timeout=60, env={"LD_LIBRARY_PATH": str(sdk / "lib")})
    assert done.returncode == 0, done.stderr


# Adds [2, 3] and [2, 3] of float16, as float32, and prints the sums.
CPP = """
#include <cstdio>
#include <utility>
#include "tcim_c_api.h"
#include "tcim_runtime.h"

using namespace tcim_c_api;
static_assert(int(TCIM_FLOAT16) == int(tcim::FLOAT16), "");

static Tensor filled(tcim_api_table_t* api, Module& module, const char* name, float step) {
  TensorInfo floats = module.GetInputInfo(name).AsContiguous().AsType(TCIM_FLOAT32);
  Tensor tensor(api->tcim_tensor_create_host(floats.handle(), 0, nullptr), api);
  for (int i = 0; i < 6; ++i) static_cast<float*>(tensor.GetData())[i] = float(i) * step;
  return tensor;
}

int main(int, char** argv) {
  tcim_api_table_t table;
  Module none(nullptr, nullptr);
  if (none.Run() != TCIM_ERR_UNDEFINED || none.GetInputInfo("a").GetDataType() != TCIM_FLOAT32) return 1;
  if (sizeof(table) != 45 * sizeof(void*) || !tcim_load_library(argv[1], &table)) return 2;
  const int device = 0;
  DevManager devices(table.tcim_dev_manager_create(&device, 1, ""), &table);
  WeightManager weights(table.tcim_weight_manager_create(devices.handle()), &table);
  ModuleOption option(table.tcim_module_option_create(weights.handle()), &table);
  option.EnableLazyMode(true);
  Module first(table.tcim_module_create(), &table);
  if (first.LoadModel(argv[2], option.handle()) != TCIM_OK) return 3;
  Module module(std::move(first));
  if (first.handle() != nullptr || first.GetInputNum() != 0 || module.GetInputNum() != 4) return 4;
  Tensor a = filled(&table, module, "a", 0.5f), b = filled(&table, module, "b", 2), sum = a.Clone();
  if (module.SetInput("a", a) != TCIM_OK || module.SetInput("b", b) != TCIM_OK) return 5;
  if (module.Run() != TCIM_OK || module.Sync() != TCIM_OK) return 6;
  if (module.GetOutput(module.GetOutputName(0)).CastTo(sum) != TCIM_OK) return 7;
  for (int i = 0; i < 6; ++i) std::printf("%g ", double(static_cast<float*>(sum.GetData())[i]));
}
"""
WARNINGS = ["-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Wold-style-cast", "-Werror"]


@pytest.mark.parametrize("compiler", ["g++", "clang++"])
def test_the_classes_over_the_table_run_a_model(sdk, add_model, tmp_path, compiler):
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not on the PATH")
    (tmp_path / "program.cpp").write_text(CPP)
    link = [f"-L{sdk}/lib", f"-Wl,-rpath,{sdk}/lib", "-ltcim_runtime_c_api"]
    folders = [f"-I{sdk}/include", f"-I{sdk}/include/tcim"]  # the vendor's sources have the header in their own folder
    for standard in ("c++11", "c++20"):
        arguments = [f"-std={standard}", *WARNINGS, *folders, tmp_path / "program.cpp", *link]
        run(compiler, *arguments, "-o", tmp_path / "program")
        assert run(tmp_path / "program", sdk / LIBRARY, add_model).split() == ["0", "2.5", "5", "7.5", "10", "12.5"]


def test_a_status_has_one_number_in_python_and_in_cpp_and_the_names_of_the_header_in_c(sdk):
    headers = sdk / "include/tcim"
    cpp = re.search(r"enum Status : int \{(.*?)\};", (headers / "tcim_runtime.h").read_text(), re.S)[1]
    in_cpp = {name: int(value) for name, value in re.findall(r"^ *([A-Z_]+) = (-?\d+),", cpp, re.M)}
    assert in_cpp == {status.name: int(status) for status in rt.Status}
    c = re.search(r"(.*)\} tcim_status_t;", (headers / "tcim_c_api.h").read_text(), re.S)[1].rpartition("enum")[2]
    in_c = {name: int(value) for name, value in re.findall(r"^ *TCIM_([A-Z_]+) = (-?\d+)", c, re.M)}
    swapped = {"INVALID_ARGUMENT": in_cpp["OUT_OF_RANGE"], "OUT_OF_RANGE": in_cpp["INVALID_ARGUMENT"]}
    assert in_c.items() <= {**in_cpp, **swapped}.items()
    assert len(in_c) == 14
