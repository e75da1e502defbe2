"""`tcim-lite port-check` names what a program uses and what is risky in it, from its text and from a run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from warm_python import ISOLATED

sys.path.insert(0, str(Path(__file__).parent))
import programs
from cpp_programs import sdk  # noqa: F401
from tiny_graphs import add_graph

from tcim_lite import hmm
from tcim_lite.cli import main
from tcim_lite.conformance import cpp_programs
from tcim_lite.portcheck import check
from tcim_lite.portcheck.elf import api_name

ROOT = Path(__file__).parents[2]
PORTING = ROOT / "tests/porting"


@pytest.fixture
def model(tmp_path) -> Path:
    """Adds two inputs of 8192 elements."""
    path = tmp_path / "add.hmm"
    hmm.write_model(path, add_graph((1, 8192), "float32"), [])
    return path


def line_of(text: str, part: str) -> int:
    (number,) = (number for number, line in enumerate(text.splitlines(), 1) if part in line)
    return number


@pytest.mark.parametrize("name", programs.PYTHON)
def test_a_risky_pattern_is_named_with_its_line(tmp_path, name):
    code, changes, part, _ = programs.PYTHON[name]
    text = programs.python_program(changes)
    (tmp_path / "program.py").write_text(text)
    report = check([tmp_path / "program.py"])
    assert [(risk.code, risk.place.line) for risk in report.risks] == [(code, line_of(text, part))]
    assert report.status == 1
    assert report.risks[0].fix


@pytest.mark.parametrize("name", programs.CLEAN)
def test_a_program_without_the_pattern_is_clean(tmp_path, name):
    (tmp_path / "program.py").write_text(programs.python_program(programs.CLEAN[name]))
    report = check([tmp_path / "program.py"])
    assert (report.risks, report.status) == ([], 0)


@pytest.mark.parametrize("name", [name for name, (*_, shown) in programs.PYTHON.items() if shown])
def test_a_run_shows_the_pattern_where_the_text_hides_it(tmp_path, model, name):
    """The same program with the API behind names that nothing tells the types of."""
    code, changes, part, _ = programs.PYTHON[name]
    text = programs.python_program(changes).replace("model.get_output(", "getattr(model, 'get_' + 'output')(")
    text = text.replace("tcim.Tensor(model.get_input_info('a')", "getattr(tcim, 'Tensor')(model.get_input_info('a')")
    text = text.replace("import tcim_lite.runtime as tcim", "import importlib")
    text = text.replace("model = tcim", "tcim = importlib.import_module('tcim_lite.runtime')\nmodel = tcim")
    program = tmp_path / "program.py"
    program.write_text(text)
    assert check([program]).risks == []
    report = check([program], [sys.executable, ISOLATED, str(program), str(model)])
    assert report.watched is not None
    assert (report.watched.status, report.watched.processes) == (0, 1)
    found = {(risk.code, risk.place.line) for risk in report.risks}
    wanted = {"P-201": {"S-301", "S-302"}}.get(code, {code})
    line = line_of(text, part.replace("tcim.Tensor(", "getattr(tcim, 'Tensor')("))
    assert {(each, line) for each in wanted} & found, report.risks
    assert {each for each, _ in found} <= wanted, report.risks


@pytest.mark.parametrize("name", ["as it should be", "run that waits", "one tensor written again"])
def test_a_run_of_a_clean_program_shows_nothing(tmp_path, model, name):
    program = tmp_path / "program.py"
    program.write_text(programs.python_program(programs.CLEAN[name]))
    report = check([program], [sys.executable, ISOLATED, str(program), str(model)])
    assert report.risks == []
    assert {use.name for use in report.watched.uses} >= {"Module.load", "Module.run", "Module.get_output", "Tensor"}


@pytest.mark.parametrize("name", programs.CPP)
def test_a_risky_pattern_in_cpp_is_named_with_its_line(tmp_path, name):
    code, changes, part = programs.CPP[name]
    text = programs.cpp_program(changes)
    (tmp_path / "program.cc").write_text(text)
    report = check([tmp_path / "program.cc"])
    lines = [number for number, line in enumerate(text.splitlines(), 1) if part in line]
    assert [(risk.code, risk.place.line) for risk in report.risks] == [(code, lines[-1])]


@pytest.mark.parametrize("name", programs.CPP_CLEAN)
def test_a_cpp_program_without_the_pattern_is_clean(tmp_path, name):
    (tmp_path / "program.cc").write_text(programs.cpp_program(programs.CPP_CLEAN[name]))
    report = check([tmp_path / "program.cc"])
    assert (report.risks, report.status) == ([], 0)
    assert {use.name for use in report.uses} >= {"Module::LoadFromFile", "Tensor::CreateHostTensor", "Module::Run"}
    assert "ImageOps::Resizer" not in {use.name for use in report.uses}


def test_image_operations_in_cpp_are_known_by_their_classes(tmp_path):
    (tmp_path / "images.cc").write_text(
        '#include "tcim/tcim_imageops.h"\nnamespace ops = tcim::ImageOps;\n'
        "int Resize(tcim::ImageOps::Resizer& resizer, tcim::Tensor in, tcim::Tensor out, tcim::Module* model) {\n"
        "  tcim::ImageOps::Resizer::RunOption option(tcim::ImageOps::RectRoi(0, 0, 8, 8));\n"
        "  option.interp_mode = tcim::ImageOps::Resizer::EnInterpMode::Nearest;\n"
        "  resizer.Run(in, out, option, true);\n  return Wrapped(model).Sync();\n}\n"
    )
    report = check([tmp_path])
    assert report.places()["missing"] == {}
    lines = {use.name: use.place.line for use in report.uses}
    assert (lines["ImageOps::Resizer::Run"], lines["Module::Sync"]) == (6, 7)
    assert (lines["ImageOps::Resizer::RunOption"], lines["ImageOps::Resizer::EnInterpMode"]) == (4, 5)


def test_a_loop_over_images_is_no_token_loop(tmp_path):
    (tmp_path / "images.py").write_text(programs.PYTHON_IMAGES)
    assert check([tmp_path]).risks == []


def test_nothing_is_risky_or_missing_in_the_examples():
    report = check([ROOT / "examples"])
    notes = [note for note in report.notes if not note.startswith("left out: ")]  # where the examples were built
    assert (report.risks, notes, report.status) == ([], [], 0)
    used = {use.name for use in report.uses}
    assert used >= {"load", "Option.set_dummy_tensors", "Module.set_input", "Module::Run", "Buffer::GetSubBuffer"}
    assert report.places()["extension"].keys() <= {"tcim_lite.llm", "tcim_lite.console", "GetLastError"}


def test_scripts_in_the_style_of_the_vendors_are_read_whole():
    """Their only risks are arrays that they make for every token, as the vendor's demos do."""
    report = check([PORTING])
    assert not report.places()["missing"]
    assert {(risk.code, Path(risk.place.file).name) for risk in report.risks} == {
        ("P-102", f"{name}.py") for name in ("prefix_states", "sliding_mask", "speculative")
    }
    used = {use.name for use in report.uses}
    assert used >= {"Module.get_dev_input", "dev_ctrl.HalDevice.ipu_reset", "hmatc.python.get_hm_devices"}
    assert used >= {"dev_ctrl::HalDevice::IpuReset", "Module::LoadModel"}


def test_what_the_emulator_lacks_is_missing(tmp_path):
    (tmp_path / "a.py").write_text(
        "import pytcim\nimport tcim_lite as t\nfrom hmatc.cli import main\n"
        "m = t.runtime.load('x')\nm.get_host_input('a')\nm.warm_up()\nt.runtime.quantize()\nm.taps()\n"
    )
    (tmp_path / "b.cc").write_text(
        '#include "tcim/tcim_runtime.h"\n#include <hm_vpu_hal.h>\ntcim::ImageOps::Scaler ops;\ntcim::Warp(tcim::OK);\n'
        "#include <hm_jpeg_hal.h>\n"
    )
    report = check([tmp_path])
    places = {name: where[0].line for name, where in report.places()["missing"].items()}
    assert places == {
        "pytcim": 1, "hmatc": 3, "Module.get_host_input": 5, "Module.warm_up": 6, "quantize": 7,
        "hm_vpu_hal.h": 2, "ImageOps::Scaler": 3, "Warp": 4, "hm_jpeg_hal.h": 5,
    }  # fmt: skip
    assert list(report.places()["extension"]) == ["Module.taps"]
    assert report.status == 1


def test_a_run_goes_on_in_the_processes_that_it_starts(tmp_path, linear_pair):
    program = tmp_path / "program.py"
    program.write_text(
        "import multiprocessing, sys\nimport numpy as np\nimport tcim_lite.runtime as tcim\n"
        "def work():\n    model = tcim.load(sys.argv[1])\n    model.set_input('x', np.ones((1, 4, 8)))\n"
        "    model.run()\n    model.get_output(model.get_output_name(0))\n"
        "if __name__ == '__main__':\n    tcim.get_device_num()\n"
        "    each = multiprocessing.get_context('fork').Process(target=work)\n    each.start()\n    each.join()\n"
    )
    report = check([program], [sys.executable, ISOLATED, str(program), str(linear_pair[0])])
    assert report.watched.processes == 2
    assert {use.place.line for use in report.watched.uses if use.name == "Module.run"} == {7}
    assert [(risk.code, risk.place.line) for risk in report.risks] == [("P-201", 8)]


@pytest.mark.parametrize(("place", "codes"), [("tcim.Device.HDPL", []), ("tcim.Device.CPU", ["P-201"])])
def test_a_result_that_stays_on_the_device_needs_no_sync(tmp_path, place, codes):
    program = tmp_path / "program.py"
    program.write_text(
        "import tcim_lite.runtime as tcim\nfirst, second = tcim.load('a.hmm'), tcim.load('b.hmm')\n"
        f"first.run()\nresult = first.get_output('y', {place})\n"
        "second.set_input('x', result)\nsecond.run()\nsecond.sync()\n"
    )
    assert [risk.code for risk in check([program]).risks] == codes


def test_the_command_prints_a_report_or_json(tmp_path, model, capfd):
    program = tmp_path / "program.py"
    program.write_text(programs.python_program({"sync": "pass"}))
    assert main(["port-check", str(program)]) == 1
    printed = capfd.readouterr().out
    assert f"P-201 {program}:" in printed
    assert "exact: load" in printed
    assert main(["port-check", "--json", str(program), "--run", str(model)]) == 1
    found = json.loads(capfd.readouterr().out)  # what the program prints goes to standard error
    assert found["run"] == {"status": 0, "calls": found["run"]["calls"], "processes": 1}
    assert found["run"]["calls"] > 24
    assert {risk["code"] for risk in found["risks"]} == {"P-201"}
    statuses = {call["name"]: call["status"] for call in found["calls"]}
    assert statuses["Module.sync" if "Module.sync" in statuses else "load"] == "exact"
    assert main(["port-check", str(ROOT / "examples/qwen3_chat.py")]) == 0


@pytest.mark.parametrize(
    ("given", "passed"),
    [
        (["--", "a", "-b"], ["a", "-b"]),  # as other commands that start programs have it
        (["a", "--", "-b"], ["a", "--", "-b"]),
        (["--", "--", "a"], ["--", "a"]),
        (["--json", "--"], ["--json", "--"]),
        (["--"], []),
    ],
)
def test_arguments_of_the_program_may_follow_two_dashes(tmp_path, capfd, given, passed):
    program = tmp_path / "program.py"
    program.write_text("import sys\nprint(sys.argv[1:])\n")
    assert main(["port-check", str(program), "--run", *given]) == 0
    assert capfd.readouterr().out.startswith(f"{passed}\n")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ([], "give a PATH"),
        (["nowhere.py"], "there is no such file"),
        (["."], "has no Python or C++ source"),
        (["x.cc", "--run"], "--run wants a Python script or a compiled program"),
        (["bad.elf"], "ELF"),
        (["text.bin", "--run"], "cannot be run"),
    ],
)
def test_what_cannot_be_checked_says_why(tmp_path, monkeypatch, capsys, arguments, text):
    monkeypatch.chdir(tmp_path)
    assert main(["port-check", *arguments]) == 2 if arguments != ["."] else main(["port-check", "."]) == 2
    assert "error: " in capsys.readouterr().err
    (tmp_path / "x.cc").write_text("int main() {}")
    (tmp_path / "bad.elf").write_bytes(b"\x7fELF\x02\x01" + bytes(range(58)) * 3)
    (tmp_path / "text.bin").write_text("x = 1")
    if arguments == ["."]:
        return
    assert main(["port-check", *arguments]) == 2
    assert text in capsys.readouterr().err


@pytest.mark.parametrize(
    ("symbol", "name"),
    [
        ("_ZN4tcim6Module3RunEbRKNS0_9RunOptionE", "Module::Run"),
        ("_ZNK4tcim6Module11GetInputNumEv", "Module::GetInputNum"),
        ("_ZN4tcim6ModuleC1ERKS0_", "Module"),
        ("_ZN4tcim10GetVersionB5cxx11Ev", "GetVersion"),
        ("_ZN4tcim6Module6Option15SetDummyTensorsERKSt6vectorI", "Module::Option::SetDummyTensors"),
        ("_ZN4tcimlsERSoRKNS_10TensorInfoE", ""),
        ("_ZTIN4tcim6ModuleE", ""),
        ("hm_sys_get_mem_info", "hm_sys.h"),
        ("hm_fw_upgrade_init", "hm_sys.h"),
        ("tcim_module_run_impl", "tcim_c_api.h"),
        ("printf", ""),
    ],
)
def test_symbols_of_a_compiled_program_are_names_of_the_api(symbol, name):
    assert api_name(symbol) == name


@pytest.mark.build
def test_a_compiled_program_is_checked_by_its_symbols_and_run(tmp_path, add_model, sdk):  # noqa: F811
    program = cpp_programs.build(sdk, tmp_path, "power", [PORTING / "power.cpp"], "-std=c++17", "-w", "-O2")
    report = check([program], [str(program), str(add_model)])
    used = {use.name for use in report.uses}
    assert used >= {"Module::LoadModel", "Module::Run", "dev_ctrl::HalDevice::IpuReset", "Module.run"}
    assert report.watched.processes == 1
    assert {risk.code for risk in report.risks} == {"S-402"}  # it runs a module whose inputs it never set


def test_a_recording_has_lines_only_where_they_are_asked_for(tmp_path, add_model):
    from tcim_lite.replay import Recording

    script = tmp_path / "script.py"
    script.write_text("import sys\nimport tcim_lite.runtime as t\nm = t.load(sys.argv[1])\nm.get_num_inputs()\n")
    sites = {}
    for asked in ("0", "1"):
        file = tmp_path / f"{asked}.tcimrec"
        environment = {"TCIM_LITE_LAYERS": f"record:{file}", "TCIM_LITE_RECORD_SITES": asked}
        subprocess.run([sys.executable, ISOLATED, script, add_model], env={**os.environ, **environment},
                       check=True, timeout=60)  # fmt: skip
        sites[asked] = [record.get("site") for record in Recording(file).records if record["call"] != "Module.delete"]
    assert sites == {"0": [None, None], "1": [f"{script}:3", f"{script}:4"]}
