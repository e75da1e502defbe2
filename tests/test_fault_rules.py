"""Rules of faults: the file, the environment, the fixture, Ctrl-C; what is wrong is named with its line."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import warm_python
from warm_python import ISOLATED

import tcim_lite.runtime as rt
from tcim_lite import faults, layers


@pytest.fixture(autouse=True)
def nothing_left():
    yield
    layers.disable("faults")


LOAD = "import sys, tcim_lite.runtime as rt\nmodule = rt.load(sys.argv[1])"


def run_python(code: str, *arguments: object, **environment: str) -> subprocess.CompletedProcess:
    return warm_python.run("-c", code, *arguments, env=os.environ | environment, timeout=60)


def test_the_environment_names_a_file(tmp_path, add_model):
    rules = tmp_path / "rules.toml"
    rules.write_text('[[fault]]\nkind = "load_failure"\n')
    done = run_python(LOAD, add_model, TCIM_LITE_FAULTS=str(rules))
    assert done.returncode == 1
    assert f"faults: load_failure: '{add_model}' is damaged" in done.stderr
    assert f"tcim_lite.errors.HmmFormatError: Module.load error: '{add_model}' is damaged" in done.stderr
    assert run_python(LOAD, add_model, TCIM_LITE_FAULTS="").returncode == 0


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (None, "cannot be read (No such file or directory)"),
        (os.mkdir, "is a folder; give the path of a file"),
        (os.mkfifo, "is not a regular file"),
        (lambda path: path.write_bytes(b"#" * (1 << 20) + b"\n"), "has more than 1048576 bytes"),
        (lambda path: path.write_bytes(b"\0"), "rules.toml:1: got '?', expected text without control characters"),
        (lambda path: path.write_text("kind = 1"), "rules.toml:1: got the key 'kind' above the first rule"),
    ],
)
def test_a_file_that_cannot_be_is_refused_by_every_call(tmp_path, add_model, make, words):
    path = tmp_path / "rules.toml"
    if make:
        make(path)
    done = run_python(LOAD, add_model, TCIM_LITE_FAULTS=str(path))
    assert done.returncode == 1
    assert "tcim_lite.errors.ArgumentError: " in done.stderr
    assert words in done.stderr


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "rules: got no rule, expected [[fault]]"),
        ("[fault]", "rules:1: got the table 'fault', expected [[fault]]"),
        ("\n[[faults]]", "rules:2: got the table 'faults'"),
        ("[[fault]]", 'rules:1: got a rule without kind, expected kind = "...", one of device_lost, hang'),
        ("[[fault]]\nkind = 'hung'", "rules:2: got kind = 'hung', expected one of device_lost, hang"),
        ("[[fault]]\nkind = 1", "rules:2: got kind = 1, expected one of"),
        ("[[fault]]\nkind = 'hang'\ntimeout = 1", "rules:3: got the key 'timeout', expected one of kind, call"),
        ("[[fault]]\nkind = 'hang'\ntimeout_s = 601", "got timeout_s = 601, expected a number from 0 to 600"),
        ("[[fault]]\nkind = 'hang'\nnth = 0", "got nth = 0, expected an integer from 1 to"),
        ("[[fault]]\nkind = 'hang'\nnth = 1.0", "got nth = 1, expected an integer"),
        ("[[fault]]\nkind = 'hang'\nprobability = 1.5", "expected a number from 0 to 1"),
        ("[[fault]]\nkind = 'hang'\ncall = 'Module.runs'", "got call = 'Module.runs', expected for hang: execute, "),
        ("[[fault]]\nkind = 'hang'\ncall = 'get_version'", "got call = 'get_version', expected for hang"),
        ("[[fault]]\nkind = 'flaky_sync'\ncall = 'Module.run'", "expected for flaky_sync: Module.sync"),
        ("[[fault]]\nkind = 'hang'\ndevice = 4096", "expected an integer from 0 to 4095"),
        ("[[fault]]\nkind = 'hang'\nafter_s = 2\nbefore_s = 1", "got before_s = 1, expected more than after_s"),
        ("[[fault]]\nkind = 'slow'", "got slow without its measure"),
        ("[[fault]]\nkind = 'slow'\nfactor = 2\ncall = 'Module.run'", "got factor of a call"),
        ("[[fault]]\nkind = 'throttle'", "got throttle without clock_mhz"),
        ("[[fault]]\nkind = 'firmware'", "got firmware without version"),
        ("[[fault]]\nkind = 'bit_flip'", "got bit_flip without a tensor"),
        ("[[fault]]\nkind = 'bit_flip'\ninput = 'a'\nweight = 'w'", "got a second tensor, weight, expected one"),
        ("[[fault]]\nkind = 'bit_flip'\ninput = 'a'\ncall = 'Module.load'", "expected execute, or a weight"),
        ("[[fault]]\nkind = 'bit_flip'\ninput = 'a'\nbit = 8", "got bit = 8, expected an integer from 0 to 7"),
        ("[[fault]]\nkind = 'bit_flip'\ninput = ''", "got input = '', expected the name of a tensor"),
    ],
)
def test_what_is_wrong_in_a_rule_is_named_with_its_line(text, words):
    with pytest.raises(rt.ArgumentError, match=re.escape(words)):
        layers.enable("faults", rules=text)
    assert layers.active() == []


EVERY_KIND = (Path(__file__).parent / "data/faults/every_kind.toml").read_text()


def test_every_kind_and_key_can_be_read():
    layers.enable("faults", rules=EVERY_KIND)
    page = (Path(__file__).parents[1] / "docs/fault-injection.md").read_text()
    kinds, keys = (set(re.findall(pattern, EVERY_KIND, re.M)) for pattern in (r'^kind = "(\w+)"', r"^(\w+) ="))
    assert kinds == set(re.findall(r"^\| `(\w+)` \|.*\|.*\|$", page, re.M)) - {"kind"}
    assert all(f"`{key}`" in page for key in keys)


def test_any_bytes_are_read_or_refused_with_their_line():
    rng = random.Random(3)
    for _ in range(3000):
        text = list(EVERY_KIND)
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(len(text))
            change = rng.choice(["", rng.choice('\n"[]=#0.-e\\é\0'), EVERY_KIND[at - 9 : at]])
            text[at : at + rng.randint(0, 5)] = change
        refusal = ""
        try:
            layers.enable("faults", rules="".join(text))
        except rt.ArgumentError as error:
            refusal = str(error)
        assert re.fullmatch(r"|rules:\d+: got .*, expected .*", refusal, re.S), refusal


def test_a_rule_of_a_wrong_type_is_refused():
    with pytest.raises(TypeError, match=r"the value \[1\]: expected a str, int, float or bool"):
        faults.inject(kind="hang", nth=[1])
    with pytest.raises(rt.ArgumentError, match="both file and rules"):
        layers.enable("faults", rules="x", file="y")


def test_texts_of_rules_survive_the_file():
    tomllib = pytest.importorskip("tomllib")
    rules = [{"kind": 'a"b\\c\n\t\r', "nth": 3, "p": 0.25, "e": 1e-30, "big": 1e22, "on": True}, {"kind": "é"}]
    assert tomllib.loads(faults.rules_text(rules)) == {"fault": rules}


def test_the_fixture_ends_with_its_test_and_fails_where_nothing_happened(add_model, tmp_path):
    (tmp_path / "test_inner.py").write_text(f"""
import pytest, tcim_lite.runtime as rt

def load():
    return rt.load({str(add_model)!r})

def test_survives(tcim_faults):
    injected = tcim_faults({{"kind": "load_failure", "times": 2}}, kind="hang", timeout_s=0.01)
    for _ in range(2):
        with pytest.raises(rt.HmmFormatError):
            load()
    with pytest.raises(rt.DeviceError):
        load().run(True)
    assert [fault.kind for fault in injected.fired] == ["load_failure", "load_failure", "hang"]

def test_after_it_all_is_well():
    load().run(True)

def test_of_nothing(tcim_faults):
    tcim_faults(kind="load_failure", nth=2)
    load()
""")
    # In a process of its own: pytest warns of modules that are imported before it.
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:schemathesis", "test_inner.py"]
    printed = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False).stdout
    assert "3 passed, 1 error" in printed
    assert "these rules never did anything: [{'kind': 'load_failure', 'nth': 2}]" in printed


@pytest.mark.parametrize(
    ("call", "last"),
    [("execute", "run(); module.sync()"), ("execute", "run(True)"), ("Module.set_input", "set_input('a', a)")],
)
def test_an_interrupt_ends_the_wait_for_a_hanging_device(tmp_path, add_model, call, last):
    (tmp_path / "rules.toml").write_text(f'[[fault]]\nkind = "hang"\ntimeout_s = 100\ncall = "{call}"\nnth = 2\n')
    code = f"""
import sys, numpy as np, tcim_lite.runtime as rt
module, a = rt.load(sys.argv[1]), np.ones((2, 3), np.float16)
module.set_input("a", a)
module.run(True)
print("up", flush=True)
module.{last}
"""
    environment = os.environ | {"TCIM_LITE_FAULTS": str(tmp_path / "rules.toml")}
    command = [sys.executable, ISOLATED, "-c", code, str(add_model)]
    with subprocess.Popen(
        command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as started:
        assert started.stdout.readline() == "up\n"
        time.sleep(0.3)
        started.send_signal(signal.SIGINT)
        _, errors = started.communicate(timeout=50)
    assert "KeyboardInterrupt" in errors


def test_a_process_ends_at_once_while_its_device_hangs(tmp_path, add_model):
    (tmp_path / "rules.toml").write_text('[[fault]]\nkind = "hang"\ntimeout_s = 100\n')
    done = run_python(f"{LOAD}\nmodule.run()", add_model, TCIM_LITE_FAULTS=str(tmp_path / "rules.toml"))
    assert done.returncode == 0, done.stderr


def test_the_matrix_of_the_suite_has_every_call_that_needs_a_device():
    """A call that is new must be tried with every kind."""
    from tcim_lite.conformance.cases.faults import CALLS

    with pytest.raises(rt.ArgumentError, match="expected for device_lost: ") as error:
        faults.inject(kind="device_lost", call="nothing")
    known = set(str(error.value).split("expected for device_lost: ")[1].split(", "))
    cpp = Path(rt.__file__).parents[1] / "conformance/cpp/faults_cases.cpp"
    of_cpp = known - set(CALLS)
    assert of_cpp == {"Buffer.create", "Tensor.data"}
    assert all(f'"{call}"' in cpp.read_text(encoding="utf-8") for call in of_cpp)
