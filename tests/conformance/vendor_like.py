"""Writes a package that has no more than the vendor's documented names: what the suite may rely on anywhere."""

from __future__ import annotations

from pathlib import Path

PACKAGE = "vendor_like"
RUNTIME = """
from tcim_lite.runtime import (
    DevManager, Module, Option, RunOption, Status, Stream, Tensor, TensorInfo, WeightManager, get_device_num, load,
    load_model_info,
)

def get_version():
    return "v1.4.0\\nno emulator"
"""
DEV_CTRL = "from tcim_lite.dev_ctrl import DvfsMode, HalDevice, HalDeviceFactory, Status\n"


def write(folder: Path) -> str:
    """Makes the package in the folder and returns the name of its runtime."""
    package = folder / PACKAGE
    package.mkdir()
    (package / "__init__.py").write_text("from . import dev_ctrl, runtime\n")
    (package / "runtime.py").write_text(RUNTIME)
    (package / "dev_ctrl.py").write_text(DEV_CTRL)
    return f"{PACKAGE}.runtime"
