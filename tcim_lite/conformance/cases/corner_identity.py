"""C-18, C-19, C-29 and C-31: names, version, imports and Python versions."""

import ast
import importlib.util
import re
from pathlib import Path

from .. import under_test as rt
from ..checks import NotRunError, emulator_only, refused, same_rows
from ..registry import each


def modules(kit):
    """Prefill and decode of an LLM, with the number of its layers."""
    found = [rt.load(kit.model(role)) for role in ("llm_prefill", "llm_decode")]
    return found, sum("kcache" in name for name in names_of(found[0]))


def names_of(module):
    return [module.get_input_name(i) for i in range(module.get_num_inputs())]


def expected_names(layers):
    caches = [f"model_layers_{layer}_self_attn_{kind}cache_input" for kind in "kv" for layer in range(layers)]
    return ["input_1", "valid_length", "current_length", *caches]


def test_c18_an_llm_has_exactly_these_inputs_and_output_in_this_order(kit):
    found, layers = modules(kit)
    assert layers > 0
    for module in found:
        assert names_of(module) == expected_names(layers)
        assert [module.get_output_name(i) for i in range(module.get_num_outputs())] == ["logits"]


def test_c18_the_substrings_of_the_examples_select_exactly_the_caches(kit):
    found, layers = modules(kit)
    for module in found:
        names = names_of(module)
        for select in (
            lambda name: "model_layers" in name,
            lambda name: "cache" in name,
            lambda name: "kcache" in name or "vcache" in name,
        ):
            assert [name for name in names if select(name)] == names[3:]
        pattern = r"^model_layers_(\d+)_self_attn_kcache_input$"
        assert sum(bool(re.match(pattern, name)) for name in names) == layers


def test_c18_names_have_aliases_but_are_reported_as_compiled(kit):
    emulator_only("the exporter's names of inputs")
    found, layers = modules(kit)
    aliases = ["inputs_embeds", "past_seq_length", "current_input_length"]
    aliases += [f"past_{kind}_cache_{layer}" for kind in ("key", "value") for layer in range(layers)]
    for module in found:
        for name, alias in zip(expected_names(layers), aliases, strict=True):
            for spelling in (name, alias, name + ".hmcc.format", alias + ".hmcc.format"):
                assert module.get_input_info(spelling).name == name
                assert module.get_dev_input(spelling).info.name == name
        with refused("KeyError", f"no input is named 'past_key_cache_{layers}'; the inputs are input_1"):
            module.get_input_info(f"past_key_cache_{layers}")


def test_c18_every_call_takes_an_alias(kit, attention_pair, rows, step):
    emulator_only("the exporter's names of inputs")
    keys, values = "past_key_cache_0", "past_value_cache_0.hmcc.format"
    prefill = rt.load(attention_pair[0])
    decode = rt.load(attention_pair[1], rt.Option(0).set_dummy_tensors([keys, values]))
    step(prefill, rows(3), 0)
    decode.set_input("inputs_embeds", rows(4)[:, 3:])
    decode.set_input("past_seq_length", 3)
    decode.set_input("current_input_length.hmcc.format", 1)
    decode.set_input(keys, prefill.get_input(keys))
    with refused("StateError", "vcache", status="UNINITIALIZED"):
        decode.run(True)
    decode.set_dev_input(values, prefill.get_dev_input(values))
    output = rt.Tensor(decode.get_output_info("logits.hmcc.format"))
    decode.set_dev_output("logits.hmcc.format", output)
    decode.run(True)
    same_rows(decode.get_output("logits.hmcc.format").numpy(), output.numpy())
    same_rows(output.numpy()[0], step(prefill, rows(4)[:, 3:], 3))


def test_c18_slots_of_a_batch_answer_with_and_without_the_underscore(kit):
    emulator_only("the names of slots")
    module = rt.load(kit.model("llm_decode_batch"))
    for name in names_of(module):
        for spelling in (name, name.replace("_batch_", "_batch"), name.replace("_batch_", "_batch") + ".hmcc.format"):
            assert module.get_input_info(spelling).name == name
    assert module.get_input_info("past_seq_length_batch1").name == "valid_length_batch_1"
    assert module.get_input_info("past_key_cache_0_batch_1").name.endswith("_batch_1")
    with refused("KeyError", "valid_length_batch"):
        module.get_input_info("valid_length_batch0")


def test_c19_the_first_line_of_the_version_has_a_number():
    first = rt.get_version().split("\n")[0]
    assert re.search(r"v\d+\.\d+\.\d+", first)


def test_c19_the_emulator_says_which_version_it_emulates_and_its_own():
    emulator_only("lines after the first")
    first, second, third = rt.get_version().split("\n")
    assert re.search(r"v\d+\.\d+\.\d+", first).group() == f"v{rt.api_version()[0]}.{rt.api_version()[1]}.0"
    assert re.search(r"tcim_lite \d+\.\d+", second)
    assert third.startswith("- Build Time: ")


IMPORTS = {
    "bare": "import {package} as tcim; r = tcim.runtime",
    "submodule": "import {runtime} as r; from {runtime} import Tensor",
    "torch first": "import torch; import {runtime} as r",
    "torch last": "import {runtime} as r; USE(); import torch; torch.ones(64, 64) @ torch.ones(64, 64)",
    "without torch": (
        "import sys; sys.modules.update(torch=None, transformers=None, safetensors=None, ml_dtypes=None, tqdm=None); "
        "import {runtime} as r"
    ),
}


@each("order", IMPORTS)
def test_c29_imports_work_in_any_order_and_without_torch(order, linear_pair, run_script):
    if "torch " in order and importlib.util.find_spec("torch") is None:
        raise NotRunError("torch is not installed")
    package, _, last = rt.name().rpartition(".")
    if order == "bare" and last != "runtime":
        raise NotRunError(f"{rt.name()} is not called `runtime`")
    text = f"""
        import sys

        def USE():
            import numpy as np
            module = r.load(sys.argv[1])
            module.set_input("x", np.ones((1, 4, 8)))
            module.run(True)
            return module.get_output("y").numpy().sum()

        {IMPORTS[order].format(package=package, runtime=rt.name())}
        first = USE()
        assert USE() == first > 0
        print("torch" in sys.modules and sys.modules["torch"] is not None)
    """
    assert run_script(text, linear_pair[0], prelude=False) == str("torch " in order)


def test_c29_the_runtime_comes_with_a_bare_import_and_needs_numpy_alone(run_script):
    emulator_only("a lazy package")
    text = f"""
        import sys
        import {rt.package()} as tcim
        assert "numpy" not in sys.modules
        assert tcim.runtime.get_device_num() >= 1
        print(*(name for name in ("torch", "transformers", "safetensors") if name in sys.modules))
    """
    assert run_script(text, prelude=False) == ""


def test_c31_the_package_is_written_in_python_3_10():
    file = rt.module().__file__
    if file is None or Path(file).suffix != ".py":
        raise NotRunError(f"{rt.name()} is not written in Python")
    folder = Path(file).parent
    sources = sorted(folder.rglob("*.py"))
    assert sources
    for path in sources:
        ast.parse(path.read_text(encoding="utf-8"), path.name, feature_version=(3, 10))
