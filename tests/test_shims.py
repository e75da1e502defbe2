"""Stand-ins for modules that demos import: a monitor of memory, a lock of a device, and one name of the quantiser."""

from __future__ import annotations

import subprocess
import sys
import time

import numpy as np
import pytest
from hmatc.utils.monitor import ProcessMemoryMonitor
from tcim.test_utils.utils import DeviceLock
from xhquant.api import HMONNXInference


def test_the_monitor_sees_what_a_block_holds(capsys):
    with ProcessMemoryMonitor(interval=0.005, quiet=True) as monitor:
        before = monitor.get_memory_info()["rss_mb"]
        held = np.ones(256 << 20, np.uint8)  # others may free some of theirs meanwhile
        deadline = time.monotonic() + 20
        while monitor.peak_memory_mb < before + 60 and time.monotonic() < deadline:
            time.sleep(0.005)
        del held
    assert monitor.peak_memory_mb >= before + 60
    assert not monitor.is_monitoring
    assert 0 < monitor.get_memory_info()["percent"] < 100
    assert capsys.readouterr().out == ""


def test_the_monitor_says_what_it_sees(capsys, tmp_path):
    monitor = ProcessMemoryMonitor(interval=60)
    monitor.stop()  # has not begun
    monitor.start()
    monitor.start()
    monitor.stop()
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["RSS:", "RSS:", "[Monitoring"]
    file = tmp_path / "memory.log"
    with pytest.raises(KeyError), ProcessMemoryMonitor(interval=60, log_file=str(file)):
        raise KeyError
    assert len(file.read_text().splitlines()) == 3
    assert capsys.readouterr().out == ""


def test_intervals_that_cannot_be_are_refused():
    with pytest.raises(ValueError, match="interval=0: expected seconds above 0"):
        ProcessMemoryMonitor(interval=0)


def test_the_quantiser_is_imported_but_not_used():
    with pytest.raises(NotImplementedError, match="not emulated; compile the checkpoint"):
        HMONNXInference("model.onnx")
    program = "from xhquant.api import create_quant_config"
    done = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, text=True)
    assert done.returncode == 1
    assert "ImportError: cannot import 'create_quant_config': xhquant quantises models" in done.stderr


def run_program(program, *path):
    code = f"import sys; sys.path += {[str(entry) for entry in path]!r}\n{program}"
    return subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True)


@pytest.mark.parametrize(
    ("program", "says"),
    [
        ("import tcim; tcim.build('model.onnx')", "ImportError: cannot import 'build'"),
        ("from tcim import build", "ImportError: cannot import 'build'"),
        ("from tcim import frontend", "ImportError: cannot import 'frontend'"),
        ("import tcim.frontend.onnx", "ModuleNotFoundError: No module named 'tcim.frontend'"),
        ("from tcim.test_utils import bench", "ImportError: cannot import name 'bench'"),
        ("import tcim.test_utils.bench", "ModuleNotFoundError: No module named 'tcim.test_utils.bench'"),
    ],
)
def test_programs_that_build_models_are_told_what_to_do(program, says):
    done = run_program(program)
    assert done.returncode == 1
    assert says in done.stderr
    if "from tcim.test_utils" not in program:
        assert "tcim is the vendor's compiler, which is not emulated; compile the checkpoint" in done.stderr


def test_the_compiler_is_there_for_what_only_looks():
    looks = "import tcim; from tcim import test_utils; print(test_utils.__name__, hasattr(tcim, '__all__'))"
    assert run_program(looks).stdout == "tcim.test_utils False\n"


def test_a_real_compiler_goes_first(tmp_path):
    (tmp_path / "tcim").mkdir()
    (tmp_path / "tcim" / "__init__.py").write_text("from .parts import build\n")
    (tmp_path / "tcim" / "parts.py").write_text("def build(): return 'real'\n")
    done = run_program("import tcim, tcim.parts; print(tcim.build(), tcim.parts.__name__)", tmp_path)
    assert done.stdout == "real tcim.parts\n", done.stderr
    done = run_program("import tcim.missing", tmp_path)
    assert done.stderr.endswith("ModuleNotFoundError: No module named 'tcim.missing'\n")


HOLDER = """
import sys
from tcim.test_utils.utils import DeviceLock
with DeviceLock("xh2", 0, "other"):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_device_is_locked_for_one_process_at_a_time(tmp_path, monkeypatch):
    monkeypatch.setenv("TCIM_LITE_DEVICE_NUM", "2")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)  # what it found before
    start = [sys.executable, "-P", "-c", HOLDER]
    with DeviceLock("xh2", 0, "demo") as lock, DeviceLock("xh2", 1):  # devices are apart
        assert lock.path.parent == tmp_path
        with pytest.raises(RuntimeError, match="already locked by this object"):
            lock.__enter__()
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        other = subprocess.Popen(start, **pipes)
        says = other.stderr.readline()
        assert f"waiting for {lock.path}" in says
        assert says.rstrip().endswith(" demo")
    try:
        assert other.stdout.readline() == "held\n"
    finally:
        other.kill()
        other.communicate()
    with DeviceLock("xh2", 0), pytest.raises(IndexError, match="device 99 does not exist"):  # free after a kill
        DeviceLock("xh2", 99)
