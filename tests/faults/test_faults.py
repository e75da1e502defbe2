"""The conformance suite catches every seeded fault (docs/seeded-faults.md)."""

from __future__ import annotations

import os
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import catalogue
import run

from tcim_lite.conformance import registry

FAULTS = catalogue.FAULTS


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory) -> dict[str, dict[str, str]]:
    """What became of the cases named with each fault; under "", of all of them with no fault."""
    if not any(shutil.which(name) for name in (os.environ.get("CXX", "c++"), "g++", "clang++")):
        pytest.skip("no C++ compiler")
    run.seeded_package()
    shared = tmp_path_factory.mktemp("shared")
    every = sorted({case for fault in FAULTS.values() for case in fault.caught_by})
    conforming = run.verdicts("", every, shared)  # first: it builds what the others share
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        found = pool.map(lambda name: run.verdicts(name, list(FAULTS[name].caught_by), shared), FAULTS)
        return {"": conforming} | dict(zip(FAULTS, found, strict=True))


@pytest.mark.build
def test_the_build_conforms_while_no_fault_is_chosen(verdicts):
    cases = {case for fault in FAULTS.values() for case in fault.caught_by}
    assert verdicts[""] == dict.fromkeys(cases, "passed")


@pytest.mark.build
@pytest.mark.parametrize("name", FAULTS)
def test_a_seeded_fault_is_caught(verdicts, name):
    assert verdicts[name].keys() == set(FAULTS[name].caught_by)
    assert set(verdicts[name].values()) <= run.CAUGHT, verdicts[name]


def test_every_fault_names_cases_of_the_suite():
    known = {case.id for case in registry.all_cases()}
    for fault in FAULTS.values():
        assert fault.caught_by, fault.name
        assert set(fault.caught_by) <= known, fault.name


def test_every_fault_patches_one_place_of_the_sources():
    root = Path(__file__).parents[2]
    for fault in FAULTS.values():
        assert (root / fault.file).read_text(encoding="utf-8").count(fault.before) == 1, f"{fault.name}: {fault.file}"


def test_no_two_faults_have_one_name():
    assert len(FAULTS) == sum(map(len, catalogue.LAYERS.values())) >= 30


def test_the_page_lists_the_faults():
    page = Path(__file__).parents[2] / "docs/seeded-faults.md"
    assert page.read_text(encoding="utf-8") == catalogue.page(), "write it again: see tests/faults/catalogue.py"
