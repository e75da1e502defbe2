"""C-18, C-19, C-29 and C-31: names, version, imports and Python versions."""

import ast
import importlib.metadata
import re
import subprocess
import sys
from pathlib import Path

import pytest

import tcim_lite
import tcim_lite.runtime as rt

PACKAGE = Path(tcim_lite.__file__).parent
SOURCES = sorted(PACKAGE.rglob("*.py"))


@pytest.fixture(scope="module")
def modules(tiny_package):
    """Prefill and decode of a compiled Qwen3 with two layers."""
    package = tiny_package()
    return [rt.load(package.prefill_path), rt.load(package.decode_path)]


EXPECTED = ["input_1", "valid_length", "current_length"]
EXPECTED += [f"model_layers_{layer}_self_attn_{kind}cache_input" for kind in "kv" for layer in range(2)]


def test_c18_an_llm_has_exactly_these_inputs_and_output_in_this_order(modules):
    for module in modules:
        assert [module.get_input_name(i) for i in range(module.get_num_inputs())] == EXPECTED
        assert [module.get_output_name(i) for i in range(module.get_num_outputs())] == ["logits"]


def test_c18_the_substrings_of_the_examples_select_exactly_the_caches(modules):
    for module in modules:
        names = [module.get_input_name(i) for i in range(module.get_num_inputs())]
        for select in (
            lambda name: "model_layers" in name,
            lambda name: "cache" in name,
            lambda name: "kcache" in name or "vcache" in name,
        ):
            assert [name for name in names if select(name)] == names[3:]
        pattern = r"^model_layers_(\d+)_self_attn_kcache_input$"
        assert sum(bool(re.match(pattern, name)) for name in names) == 2


def test_c18_names_have_aliases_but_are_reported_as_compiled(modules):
    aliases = ["inputs_embeds", "past_seq_length", "current_input_length"]
    aliases += [f"past_{kind}_cache_{layer}" for kind in ("key", "value") for layer in range(2)]
    for module in modules:
        for name, alias in zip(EXPECTED, aliases, strict=True):
            for spelling in (name, alias, name + ".hmcc.format", alias + ".hmcc.format"):
                assert module.get_input_info(spelling).name == name
                assert module.get_dev_input(spelling).info.name == name
        with pytest.raises(KeyError, match="no input is named 'past_key_cache_2'; the inputs are input_1"):
            module.get_input_info("past_key_cache_2")


def test_c19_the_first_line_of_the_version_is_the_emulated_one():
    first, second = rt.get_version().split("\n")
    assert re.search(r"v\d+\.\d+\.\d+", first).group() == "v1.4.0"
    assert "tcim_lite" in second


IMPORTS = {
    "bare": "import tcim_lite as tcim; r = tcim.runtime",
    "submodule": "import tcim_lite.runtime as r; from tcim_lite.runtime import Tensor",
    "torch first": "import torch; import tcim_lite.runtime as r",
    "torch last": "import tcim_lite.runtime as r; USE(); import torch; torch.ones(64, 64) @ torch.ones(64, 64)",
    "without torch": (
        "import sys; sys.modules.update(torch=None, transformers=None, safetensors=None, ml_dtypes=None, tqdm=None); "
        "import tcim_lite.runtime as r"
    ),
}


@pytest.mark.parametrize("order", IMPORTS)
def test_c29_imports_work_in_any_order_and_without_torch(order, linear_pair, run_script):
    if "torch " in order:
        pytest.importorskip("torch", reason="torch is not installed")
    text = f"""
        import sys

        def USE():
            import numpy as np
            module = r.load(sys.argv[1])
            module.set_input("x", np.ones((1, 4, 8)))
            module.run(True)
            return module.get_output("y").numpy().sum()

        {IMPORTS[order]}
        first = USE()
        assert USE() == first > 0
        print("torch" in sys.modules and sys.modules["torch"] is not None)
    """
    assert run_script(text, str(linear_pair[0])) == str("torch " in order)


def test_c31_the_package_supports_python_3_10():
    assert importlib.metadata.metadata("tcim-lite")["Requires-Python"] == ">=3.10"
    assert len(SOURCES) > 30
    for path in SOURCES:
        ast.parse(path.read_text(encoding="utf-8"), path.name, feature_version=(3, 10))


def test_c31_the_package_uses_no_name_that_python_3_10_lacks(tmp_path):
    config = tmp_path / "mypy.ini"
    # numpy's own stubs may be written for a newer Python.
    config.write_text("[mypy]\nfollow_imports = skip\nignore_missing_imports = True\n")
    command = [sys.executable, "-m", "mypy", "--config-file", config, "--python-version", "3.10", "-p", "tcim_lite"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=600, check=False)
    pattern = r'Module ("[\w.]+" )?has no attribute|\[syntax\]|\[import-not-found\]'
    missing = [line for line in done.stdout.splitlines() if re.search(pattern, line)]
    assert not missing, done.stdout
    assert "source files" in done.stdout, done.stdout + done.stderr
