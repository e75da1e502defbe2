"""Scripts of the repository as modules."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest


def imported(path: Path) -> ModuleType:
    """A script, which finds its neighbours as where it is run."""
    specification = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(specification)
    # Dataclasses look their module up. Only it leaves sys.modules again: what it imported, others have imported too.
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, path.stem, module)
        patch.setattr(sys, "path", [str(path.parent), *sys.path])
        specification.loader.exec_module(module)
    return module
