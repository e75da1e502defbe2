"""What the libraries ask of glibc: nothing that a system with glibc 2.28 lacks, where the package is built on one."""

from __future__ import annotations

import re
import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest

import tcim_lite

PACKAGE = Path(tcim_lite.__file__).parent
LIBRARIES = (
    f"_core{sysconfig.get_config_var('EXT_SUFFIX')}",
    "lib/libtcim_runtime_lite.so",
    "lib/libtcim_runtime_c_api.so",
)
OLDEST = (2, 28)
# Names that glibc 2.33 and 2.34 moved between its libraries or made symbols; older versions have the functions. The
# `pthread_` functions with a clock came in 2.30.
MOVED = re.compile(r"dl(addr|close|error|open|sym)|[fl]?stat(64)?|sem_(post|wait)|pthread_(?!\w*clock)\w+")
MOVED_UNTIL = (2, 34)
# What libstdc++ uses where the headers have it, and does without where they do not.
OPTIONAL = {"__libc_single_threaded", "arc4random", "pthread_cond_clockwait"}


@pytest.mark.parametrize("library", LIBRARIES)
def test_no_function_is_newer_than_glibc_2_28(library):
    if shutil.which("objdump") is None:
        pytest.skip("objdump (binutils) is not on the PATH")
    listed = subprocess.run(["objdump", "-T", PACKAGE / library], capture_output=True, text=True, check=True).stdout
    needed = re.findall(r"\*UND\*.*\(GLIBC_(\d+)\.(\d+)(?:\.\d+)?\)\s+(\S+)", listed)
    assert len(needed) > 10
    versions = {name: (int(major), int(minor)) for major, minor, name in needed}
    newer = {name for name, version in versions.items() if version > OLDEST} - OPTIONAL
    assert not {name for name in newer if versions[name] > MOVED_UNTIL or not MOVED.fullmatch(name)}
