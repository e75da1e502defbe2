"""`python -m tcim_lite.conformance`, or `python FOLDER` wherever this folder was copied."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
PACKAGE = __package__ or "conformance_suite"


def load_package() -> None:
    """Makes this folder the package `conformance_suite`, whatever it is called and whatever stands beside it."""
    spec = importlib.util.spec_from_file_location(
        PACKAGE, FOLDER / "__init__.py", submodule_search_locations=[str(FOLDER)]
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[PACKAGE] = module
    spec.loader.exec_module(module)
    # Python puts the folder of a script first on the path; its `models` and `cases` are nobody else's business.
    sys.path[:] = [entry for entry in sys.path if not entry or Path(entry).resolve() != FOLDER]


if not __package__:
    load_package()

if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        worker = importlib.import_module(f"{PACKAGE}.worker")
        sys.exit(worker.main(sys.argv[2:]))
    command_line = importlib.import_module(f"{PACKAGE}.command_line")
    sys.exit(command_line.main())
