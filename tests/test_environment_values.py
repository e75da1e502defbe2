"""Values of environment variables that are refused or explained, and the files they name (docs/environment.md)."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import isas
import pytest
import warm_python
from warm_python import ISOLATED

import tcim_lite.runtime as rt

ROOT = Path(__file__).parents[1]
ENVIRONMENT_PAGE = ROOT / "docs/environment.md"


def run_python(code: str, **environment: str) -> subprocess.CompletedProcess:
    # Far below the time that reading a device without an end would take, far above what a slow machine needs.
    return warm_python.run("-c", code, env=os.environ | environment, timeout=30)


@pytest.fixture
def fifo(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    return tmp_path / "fifo"


def test_a_device_profile_is_a_regular_file(tmp_path, fifo, monkeypatch):
    """Each of these would hang, or read gigabytes, if it were opened like a file."""
    for path, words in (
        ("/dev/zero", "is not a regular file"),
        ("/dev/tty", "(is not a regular file|cannot be read)"),
        (fifo, "is not a regular file"),
        (tmp_path, "is a folder"),
        (tmp_path / "none", r"cannot be read \(No such file or directory\); check the path"),
    ):
        monkeypatch.setenv("TCIM_LITE_DEVICES", str(path))
        with pytest.raises(rt.DeviceError, match=rf"TCIM_LITE_DEVICES='{path}': the device profile {words}"):
            rt.get_device_num()


def test_a_device_profile_is_small(tmp_path, monkeypatch):
    profile = tmp_path / "devices.ini"
    with profile.open("wb") as file:
        file.truncate(1 << 40)
    monkeypatch.setenv("TCIM_LITE_DEVICES", str(profile))
    with pytest.raises(rt.DeviceError, match="has more than 4194304 bytes"):
        rt.get_device_num()


def test_a_foreign_device_profile_is_not_printed(tmp_path, monkeypatch):
    profile = tmp_path / "devices.ini"
    profile.write_bytes(b"\x7fELF\x1b[31m\0\0" + b"A" * 100_000)
    monkeypatch.setenv("TCIM_LITE_DEVICES", str(profile))
    with pytest.raises(rt.DeviceError, match=r"devices.ini:1: '\?ELF\?\[31m\?\?A{69}\.\.\.': expected") as caught:
        rt.get_device_num()
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    ("variable", "value", "words"),
    [
        ("TCIM_XH2_USE_SYNC_MODE", "maybe", "expected 1 or 0"),
        ("TCIM_LITE_LAYERS", ",,", "names no layer; expected a comma list of"),
        ("TCIM_LITE_LAYERS", " ", "names no layer"),
        ("TCIM_LITE_VERIFY", "maybe", "expected load or off"),
        ("TCIM_LITE_NUMERICS", "maybe", "expected 'float', 'hidden_exponent' or nothing"),
        ("TCIM_LITE_EMULATE", "maybe", "expected 1.3 or 1.4"),
        ("TCIM_LITE_FAULTS", "maybe", "the file of rules cannot be read (No such file or directory)"),
        ("TCIM_LITE_STRICT", "maybe", "expected off, warn or error"),
        ("TCIM_LITE_THREADS", "maybe", "expected a whole number from 1 to 1024"),
        ("TCIM_LITE_ISA", "maybe", "maybe"),
        ("TCIM_LITE_DEVICE", "maybe", "expected cpu or cuda"),
        ("TCIM_LITE_DEVICE_NUM", "maybe", "expected a whole number from 0 to 4096"),
        ("TCIM_BACKEND", "maybe", "unknown backend 'maybe'"),
        ("TCIM_FORCE_BACKEND", "maybe", "unknown backend 'maybe'"),
        ("TCIM_FORCE_BACKEND", "Xh1HdiBackend", "(M30) is not emulated"),
        ("HOUMO_VISIBLE_DEVICES", "maybe", "expected a comma list of device ids such as 0,1"),
        ("HOUMO_VISIBLE_DEVICES", "4096", "such as 0,1, each below 4096"),
    ],
)
def test_an_invalid_value_is_an_error_that_names_the_variable(linear_pair, variable, value, words):
    code = f"""
import tcim_lite.runtime as rt
try:
    rt.load({str(linear_pair[0])!r}).run(sync=True)
except rt.TcimError as error:
    print(error)
"""
    done = run_python(code, **{variable: value})
    assert done.returncode == 0, done.stderr
    assert words in done.stdout
    assert variable in done.stdout


def test_the_forced_backend_decides_before_the_other(linear_pair):
    code = f"import tcim_lite.runtime as rt; print(rt.load({str(linear_pair[0])!r}).get_backend_name())"
    done = run_python(code, TCIM_FORCE_BACKEND="Xh2HalBackend", TCIM_BACKEND="maybe")
    assert (done.returncode, done.stdout) == (0, "Xh2HalBackend\n"), done.stderr
    done = run_python(code, TCIM_FORCE_BACKEND="", TCIM_BACKEND="maybe")  # as good as unset
    assert "TCIM_BACKEND: unknown backend 'maybe'" in done.stderr


def test_the_documented_instruction_sets_are_those_there_are(linear_pair):
    row = next(line for line in ENVIRONMENT_PAGE.read_text().splitlines() if line.startswith("| `TCIM_LITE_ISA`"))
    assert re.findall(r"`(\w+)`", row) == ["TCIM_LITE_ISA", *isas.FLAGS]
    done = run_python(f"import tcim_lite.runtime as rt; rt.load({str(linear_pair[0])!r})", TCIM_LITE_ISA="none")
    assert f"this machine has {', '.join(filter(isas.cpu_has, isas.FLAGS))};" in done.stderr


@pytest.mark.parametrize(
    ("variable", "words"),
    [
        ("TCIM_LITE_THREAD", "which has no effect; did you mean TCIM_LITE_THREADS?"),
        ("TCIM_LITE_DEVICES_NUM", "which has no effect; did you mean TCIM_LITE_DEVICE_NUM?"),
        ("TCIM_LITE_SPEED", "which has no effect; what may follow TCIM_LITE_ is API_KEY, CLOCK,"),
    ],
)
def test_a_misspelt_variable_is_named_once(variable, words):
    code = "import tcim_lite.runtime as rt; print([rt.get_device_num() for _ in range(3)])"
    done = run_python(code, **{variable: "secret"})
    assert done.stdout == "[1, 1, 1]\n"
    assert done.stderr.count(f"tcim_lite warning: the environment has {variable}, {words}") == 1
    assert "secret" not in done.stderr


@pytest.mark.parametrize("variable", ["TCIM_LITE_STRICT", "TCIM_LITE_LAYERS", "TCIM_LITE_ISA", "TCIM_LITE_THREADS"])
def test_a_variable_that_is_set_too_late_is_named_once(linear_pair, variable, monkeypatch):
    monkeypatch.delenv(variable, raising=False)
    code = f"""
import os
import tcim_lite.runtime as rt
def run():
    module = rt.load({str(linear_pair[0])!r})
    module.set_input("x", 0.5 * __import__("numpy").ones(module.get_input_info("x").shape))
    module.run(True)
run()
os.environ[{variable!r}] = "strict"
run()
run()
del os.environ[{variable!r}]
run()
"""
    done = run_python(code)
    assert done.returncode == 0, done.stderr
    assert done.stderr == (
        f"tcim_lite warning: {variable}='strict' comes too late: this process has read it as unset and does not read "
        "it again; set it before the first call of tcim_lite\n"
    )


def test_a_variable_with_a_foreign_name_cannot_write_lines_of_its_own():
    names = "TCIM_LITE_A\nfake \x1b[31mred", "TCIM_LITE_" + "B" * 5000
    done = run_python("import tcim_lite.runtime as rt; rt.get_device_num()", **dict.fromkeys(names, "1"))
    first, second = sorted(done.stderr.splitlines())
    assert "the environment has TCIM_LITE_A?fake ?[31mred, which" in first
    assert "the environment has TCIM_LITE_BBBB" in second
    assert len(second) < 600


def test_every_variable_that_is_documented_or_read_is_known():
    rows = [
        name
        for line in re.findall(r"^\| (`TCIM_LITE_.*?) \|", ENVIRONMENT_PAGE.read_text(), re.MULTILINE)
        for name in re.findall(r"\w+", line)
    ]
    sources = [
        path for folder in ("csrc", "tcim_lite") for path in (ROOT / folder).rglob("*.*") if path.suffix != ".pyc"
    ]
    read = {
        name for path in sources for name in re.findall(r"\"(TCIM_LITE_[A-Z_]+)\"", path.read_text("utf-8", "replace"))
    }
    assert read <= set(rows)
    code = "import tcim_lite.runtime as rt; rt.get_device_num()"
    assert "no effect" not in run_python(code, **dict.fromkeys(rows, "")).stderr


def test_variables_of_the_vendor_change_nothing_and_nothing_is_written_or_printed(tmp_path, linear_pair):
    line = re.search(r"## Accepted, no effect\n(.*?) belong", ENVIRONMENT_PAGE.read_text(), re.DOTALL)
    names = re.findall(r"\w+", line[1])
    assert "TCIM_LOG_LEVEL" in names
    home = tmp_path / "home"
    home.mkdir()
    homes = {name: str(home) for name in ("HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME", "TMPDIR")}
    code = f"import tcim_lite.runtime as rt; m = rt.load({str(linear_pair[0])!r}); m.get_output(m.get_output_name(0))"
    done = run_python(code, **dict.fromkeys(names, "maybe"), **homes)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert not any(home.iterdir())


def test_the_mode_of_runs_may_be_spelled_out(linear_pair, monkeypatch):
    monkeypatch.setenv("TCIM_XH2_USE_SYNC_MODE", "0")
    rt.load(linear_pair[0])


def test_a_line_of_the_log_shows_a_nul_and_what_follows(add_model):
    code = f"import tcim_lite.runtime as rt; rt.load({str(add_model)!r}, rt.Option().set_dummy_tensors(['a\\0b']))"
    assert run_python(code).stderr.endswith("set_dummy_tensors: no input is named 'a\\x00b'; ignored\n")


def test_a_device_that_is_listed_twice_is_one_and_the_log_says_so():
    code = "import tcim_lite.runtime as rt; print([rt.get_device_num() for _ in range(3)])"
    done = run_python(code, HOUMO_VISIBLE_DEVICES="1,1")
    assert done.stdout == "[1, 1, 1]\n"
    assert done.stderr.count("lists device 1 more than once; it is one device") == 1


def test_a_trace_that_cannot_be_written_says_so_once_and_at_exit():
    code = "import tcim_lite.runtime as rt; [rt.get_device_num() for _ in range(5)]"
    done = run_python(code, TCIM_LITE_LAYERS="trace", TCIM_LITE_TRACE_FILE="/dev/full")
    assert done.returncode == 0
    assert done.stderr.splitlines() == [
        "tcim_lite error: trace: '/dev/full' cannot be written (No space left on device); its lines are lost",
        "tcim_lite error: trace: lines lost: 5",
    ]


def test_a_trace_into_a_fifo_that_nobody_reads_is_refused(fifo):
    code = "import tcim_lite.runtime as rt\ntry: rt.get_device_num()\nexcept rt.ArgumentError as error: print(error)"
    done = run_python(code, TCIM_LITE_LAYERS="trace", TCIM_LITE_TRACE_FILE=str(fifo))
    assert "cannot be opened: no process reads it" in done.stdout


def test_a_trace_into_a_fifo_reaches_a_reader_that_is_slow(fifo):
    """More lines than a FIFO holds: writing waits for the reader, and loses none."""
    code = "import tcim_lite.runtime as rt; [rt.get_device_num() for _ in range(3000)]"
    environment = os.environ | {"TCIM_LITE_LAYERS": "trace", "TCIM_LITE_TRACE_FILE": str(fifo)}
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    process = subprocess.Popen([sys.executable, ISOLATED, "-c", code], env=environment, stderr=subprocess.PIPE)
    with pytest.raises(subprocess.TimeoutExpired):  # it waits
        process.wait(3)
    os.set_blocking(reader, True)
    with open(reader, "rb") as file:
        lines = file.read().splitlines()
    assert process.communicate(timeout=30)[1] == b""
    assert len(lines) == 3000
