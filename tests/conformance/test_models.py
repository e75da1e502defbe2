"""The models that the suite ships are what their script makes."""

from pathlib import Path

from imported import imported

import tcim_lite.conformance.models as shipped

make_models = imported(Path(__file__).with_name("make_models.py"))


def test_the_script_makes_the_shipped_models(tmp_path):
    make_models.make(tmp_path)
    made = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    golden = {path.name: path.read_bytes() for path in make_models.SHIPPED.iterdir()}
    assert made.keys() == golden.keys()
    assert [name for name in made if made[name] != golden[name]] == []


def test_every_role_has_a_model_and_every_file_a_use():
    models = shipped.Models(shipped.SHIPPED)
    assert all(models.path(role).is_file() for role in shipped.ROLES)
