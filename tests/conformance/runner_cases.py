"""Cases that show how a fake runtime behaves, and what a report says of them."""

from __future__ import annotations

import sys
from pathlib import Path

import tcim_lite.conformance

sys.path.insert(0, str(Path(__file__).parent))

SUITE = Path(tcim_lite.conformance.__file__).parent
# The case that shows how the fake behaves, one before it in its group, one after it.
CASE = "refusals::test_run_options_refuse_rounds_below_one"
BEFORE, AFTER = (
    "refusals::test_managers_refuse_device_ids_that_are_none",
    "refusals::test_options_refuse_what_is_no_device",
)
VERSION = "corner_identity::test_c19_the_first_line_of_the_version_has_a_number"


def outcomes(report):
    return {result["id"]: result["outcome"] for result in report["results"]}
