"""report.json: everything that is known of a run."""

from __future__ import annotations

import json

from ..results import Run


def text(run: Run) -> str:
    """The file."""
    return json.dumps(run.as_json(), indent=1) + "\n"
