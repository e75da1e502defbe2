"""The C++ API: C-24, and a case for every CASE in cpp/."""

import re
import shutil
import subprocess

from .. import cpp_programs
from .. import under_test as rt
from ..checks import NotRunError, emulator_only
from ..models import ROLES
from ..registry import each, seconds, tier

VENDOR_STYLE = cpp_programs.FOLDER / "vendor_style.cpp"
DEV_CTRL = {cpp_programs.FOLDER / name for name in ("dev_ctrl_cases.cpp", "faults_cases.cpp")}


def run(kit, program, *arguments):
    """Runs a program and returns what it printed."""
    done = subprocess.run(
        [program, *arguments], capture_output=True, text=True, timeout=100, cwd=kit.tmp_path, check=False
    )
    assert done.returncode == 0, f"it ends with {done.returncode}:\n{(done.stdout + done.stderr)[-4000:]}"
    return done.stdout


def models_by_role(kit, text):
    """A folder with the models that the text names, called by their roles."""
    roles = set(re.findall(r'"/(\w+)\.hmms?"', text)) & set(ROLES)
    if "Pair" in text:
        roles |= {"attention_prefill", "attention_decode"}
    folder = kit.copied("add")[0].parent
    for role in roles:
        path = kit.model(role)
        wanted = folder / (role + (".hmms" if role.startswith("heads_") else ".hmm"))
        if path.name != wanted.name:
            shutil.copy(path, wanted)
    return folder


@each("extensions", ["gnu++17", "c++17"])
@seconds(cpp_programs.SECONDS)
def test_c24_code_in_the_vendors_style_compiles_and_runs(kit, extensions):
    sdk = cpp_programs.sdk_folder(kit.sdk_folder)
    program = cpp_programs.build(
        sdk, kit.shared, f"vendor_style_{extensions}", [VENDOR_STYLE], f"-std={extensions}", "-w", "-O0"
    )
    printed = run(kit, program, models_by_role(kit, "") / kit.model("add").name)
    assert "Input[a] TensorInfo: shape: [2,3], dtype: FLOAT16, format: ND, size: 12, memsize: 12" in printed


@each("standard", ["c++17", "gnu++17", "c++20"])
@each("name", ["g++", "clang++"])
@seconds(cpp_programs.SECONDS)
@tier("full")
def test_c24_the_header_compiles_with_every_compiler_here(kit, name, standard):
    sdk, command = cpp_programs.sdk_folder(kit.sdk_folder), cpp_programs.compiler([name])
    warnings = ["-Wall", "-Wextra", "-Wpedantic", "-Werror"] if rt.is_emulator() else []
    empty = kit.tmp_path / "empty.cpp"
    empty.write_text('#include "tcim/tcim_runtime.h"\n')
    cpp_programs.compile_only(sdk, command, f"-std={standard}", *warnings, "-fsyntax-only", str(empty))
    cpp_programs.compile_only(sdk, command, f"-std={standard}", "-w", "-fsyntax-only", str(VENDOR_STYLE))


def _case(name, text):
    is_corner = re.match(r"c\d\d_", name)

    @seconds(cpp_programs.SECONDS)  # the first one builds the program
    @tier("quick" if is_corner else "full")
    def test(kit):
        sdk = cpp_programs.sdk_folder(kit.sdk_folder)
        if not is_corner:
            emulator_only("statuses of the C++ API")
        left_out = {VENDOR_STYLE}
        if not (sdk / "include/tcim/tcim_dev_ctrl.h").is_file():
            left_out |= DEV_CTRL
            if any(name in cpp_programs.case_bodies(path.name) for path in DEV_CTRL):
                raise NotRunError(f"{sdk} has no include/tcim/tcim_dev_ctrl.h")
        sources = sorted(set(cpp_programs.FOLDER.glob("*.cpp")) - left_out)
        options = ("-std=c++17", "-Wall", "-Wextra", "-O0")
        program = cpp_programs.build(sdk, kit.shared, "cpp_cases", sources, *options)
        if rt.is_emulator() or "heads_" in text:
            kit.devices(2)
        run(kit, program, name, models_by_role(kit, text))

    return test


for _name, _text in cpp_programs.case_bodies().items():
    globals()[f"test_{_name}"] = _case(_name, _text)
