"""The stub of the compiled core lists what the core has."""

import ast
from pathlib import Path

import pytest

from tcim_lite import _core

STUB = ast.parse((Path(__file__).parent.parent / "tcim_lite" / "_core.pyi").read_text())
DEFINITIONS = (ast.FunctionDef, ast.ClassDef)


def public(names):
    return {name for name in names if not name.startswith("_")}


def test_the_stub_lists_every_name():
    assert public(vars(_core)) == {node.name for node in STUB.body if isinstance(node, DEFINITIONS)}


@pytest.mark.parametrize("node", [n for n in STUB.body if isinstance(n, ast.ClassDef)], ids=lambda n: n.name)
def test_the_stub_lists_every_member(node):
    members = {child.name for child in node.body if isinstance(child, DEFINITIONS)}
    assert public(vars(getattr(_core, node.name))) == public(members)
