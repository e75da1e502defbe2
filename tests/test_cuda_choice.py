"""TCIM_LITE_DEVICE=cuda where it cannot be: a sentence says what was looked for and what to do; the rest works."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tiny_graphs import add_graph
from warm_python import ISOLATED

import tcim_lite
from tcim_lite import hmm

LIBRARY = Path(tcim_lite.__file__).parent / "lib" / "libtcim_backend_cuda.so"
LOAD = """
import os, sys
import tcim_lite.runtime as rt
assert rt.get_device_num() == 1  # counting starts nothing
try:
    rt.load(sys.argv[1])
    print("loaded")
except rt.UnsupportedError as error:
    print(error)
os.environ["TCIM_LITE_DEVICE"] = "cpu"
rt.load(sys.argv[1]).run(sync=True)
print("the CPU works")
"""


@pytest.fixture
def model(tmp_path):
    hmm.write_model(tmp_path / "add.hmm", add_graph(), [])
    return tmp_path / "add.hmm"


def run(model, **environment):
    done = subprocess.run(
        [sys.executable, ISOLATED, "-c", LOAD, str(model)],
        env={**os.environ, "TCIM_LITE_DEVICE": "cuda", **environment},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.skipif(LIBRARY.exists(), reason="this installation has the CUDA backend")
def test_an_installation_without_the_backend_says_what_it_looked_for_and_the_cpu_works(model):
    message, rest = run(model)
    assert str(LIBRARY) in message
    assert "-DTCIM_LITE_CUDA=ON" in message
    assert "unset TCIM_LITE_DEVICE" in message
    assert rest == "the CPU works"


@pytest.mark.gpu
@pytest.mark.skipif(not LIBRARY.exists(), reason="this installation has no CUDA backend")
def test_without_a_gpu_the_backend_says_so_and_the_cpu_works(model):
    message, rest = run(model, CUDA_VISIBLE_DEVICES="")
    assert "no GPU can be used" in message
    assert "unset TCIM_LITE_DEVICE" in message
    assert rest == "the CPU works"
