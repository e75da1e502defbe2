"""A package for two devices against itself on one."""

import os

import warm_python

SCRIPT = """
import sys
sys.path.insert(0, sys.argv[2])
from llm_packages import LoadedPackage
from tcim_lite.llm import Package
package = Package.open(sys.argv[1])
one, two = LoadedPackage(package), LoadedPackage(package, (0, 1))
tokens = list(range(40))
assert one.prefill(tokens).tobytes() == two.prefill(tokens).tobytes()
assert all(one.decode(t, 40 + t).tobytes() == two.decode(t, 40 + t).tobytes() for t in range(8))
"""


def check_two_devices(package, monkeypatch) -> None:
    """In a process of its own: logits of a prompt and of eight tokens are the same bits on devices 0 and 0, 1."""
    monkeypatch.setenv("TCIM_LITE_DEVICE_NUM", "2")
    done = warm_python.run("-c", SCRIPT, package.folder, os.path.dirname(__file__))
    assert done.returncode == 0, done.stderr
