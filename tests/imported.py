"""Scripts of the repository as modules."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from unittest import mock


def imported(path: Path) -> ModuleType:
    """A script, which finds its neighbours as where it is run."""
    specification = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(specification)
    # Dataclasses look their module up.
    with mock.patch.dict(sys.modules, {path.stem: module}), mock.patch("sys.path", [str(path.parent), *sys.path]):
        specification.loader.exec_module(module)
    return module
