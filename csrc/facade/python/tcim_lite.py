"""Makes `import tcim_lite` find the package around this SDK, for PYTHONPATH=$TCIM_RUNTIME_PATH/python.

Vendor environment scripts set that path; it stands before site-packages, so it also decides which of two installed
runtimes is used. The Python and its numpy must be those the package was built for.
"""

import importlib.util
import sys
from pathlib import Path

_package = Path(__file__).resolve().parents[1]
_spec = importlib.util.spec_from_file_location(
    "tcim_lite", _package / "__init__.py", submodule_search_locations=[str(_package)]
)
sys.modules["tcim_lite"] = _module = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_module)
