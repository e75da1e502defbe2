"""Adapters of PEFT as inputs of graphs that were compiled with another: of a smaller rank, of fewer Linears."""

from __future__ import annotations

import json

import numpy as np
import pytest
from llm_packages import DEMO_CHECKPOINT, compile_package
from lora_adapters import linears_of, write_random_adapter

pytest.importorskip("safetensors.numpy", reason="writes adapters")

from tcim_lite.llm.engine.slots import Slots
from tcim_lite.llm.lora import fitted, read_inputs
from tcim_lite.llm.ports import is_lora
from tcim_lite.models.common.errors import CompileError
from tcim_lite.models.compiler.adapter_inputs import adapter_inputs

SIZES = {"prefill_length": 16, "context_length": 64, "name": "it"}
PROMPT = list(range(7, 27))


@pytest.fixture(scope="module")
def adapters(tmp_path_factory):
    """Folders of PEFT: one of all Linears, and smaller ones."""
    folder = tmp_path_factory.mktemp("adapters")
    write_random_adapter(folder / "all", linears_of(DEMO_CHECKPOINT), seed=1, rank=5)
    write_random_adapter(folder / "thin", linears_of(DEMO_CHECKPOINT), seed=2, rank=2)
    write_random_adapter(folder / "queries", linears_of(DEMO_CHECKPOINT, ("q_proj", "down_proj")), seed=3, rank=4)
    return folder


@pytest.fixture(scope="module")
def package(adapters, tmp_path_factory):
    return compile_package(DEMO_CHECKPOINT, tmp_path_factory.mktemp("all"), lora=adapters / "all", batch=2, **SIZES)


def ports_of(slots):
    decode = slots.stages[0].decode
    names = [decode.get_input_name(index) for index in range(decode.get_num_inputs())]
    infos = {name: decode.get_input_info(name) for name in names if is_lora(name)}
    return {name: (tuple(info.shape), str(np.dtype(info.dtype))) for name, info in infos.items()}


def logits_of(slots, adapter):
    slots.tokens[0] = []
    slots.assign(0, adapter)
    slots.prefill(0, PROMPT[:16])
    return [slots.prefill(0, PROMPT[16:]), slots.decode({0: 9})[0].copy()]


def test_they_are_the_files_that_compile_writes(package, adapters):
    made = adapter_inputs(package.tokenizer_folder / "config.json", adapters / "all")
    files = read_inputs("all", package.adapters["all"])
    assert made.keys() == files.keys()
    for name, values in files.items():
        assert np.array_equal(made[name].astype(values.dtype), values), name


@pytest.mark.parametrize("name", ["thin", "queries"])
def test_a_smaller_adapter_answers_as_in_graphs_of_its_own(package, adapters, tmp_path, name):
    own = Slots.open(compile_package(DEMO_CHECKPOINT, tmp_path, lora=adapters / name, batch=2, **SIZES))
    own.adapters.add(name, tmp_path / f"it_{name}_prefill_lora_input")
    slots = Slots.open(package)
    values = adapter_inputs(package.tokenizer_folder / "config.json", adapters / name)
    slots.adapters.add_values(name, fitted(name, values, ports_of(slots)))
    base, found, expected = logits_of(slots, None), logits_of(slots, name), logits_of(own, name)
    for before, ours, theirs in zip(base, found, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=0.05)
        assert np.abs(ours - before).max() > 0.5
    assert [row.tobytes() for row in logits_of(slots, None)] == [row.tobytes() for row in base]


def test_another_adapter_of_the_name_takes_its_place(package, adapters):
    slots = Slots.open(package)
    found = []
    for name in ("thin", "queries", "thin"):
        values = adapter_inputs(package.tokenizer_folder / "config.json", adapters / name)
        slots.adapters.add_values("it", fitted("it", values, ports_of(slots)))
        found.append(logits_of(slots, "it")[1].tobytes())
    assert found[0] == found[2] != found[1]
    slots.adapters.remove("it")
    with pytest.raises(ValueError, match="not loaded"):
        logits_of(slots, "it")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda down, up: {"lora_bundle_other_down": down, "lora_bundle_other_up": up}, "takes? nothing for"),
        (lambda down, up: {"x_down": np.zeros((1, 9, 2)), "x_up": up}, r"x_down has \[1, 9, 2\].*another model"),
        (lambda down, up: {"x_down": np.zeros((1, 8, 4)), "x_up": np.zeros((1, 4, 6))}, "rank 4, the graphs take 3"),
        (lambda down, up: {"x_down": down + 1e6, "x_up": up}, "beyond float16"),
        (lambda down, up: {"x_up": up}, "x_up, but not x_down"),
    ],
)
def test_what_graphs_do_not_take_is_refused_by_name(change, message):
    ports = {"x_down": ((1, 8, 3), "float16"), "x_up": ((1, 3, 6), "float16")}
    values = change(np.zeros((1, 8, 2), np.float32), np.zeros((1, 2, 6), np.float32))
    with pytest.raises(ValueError, match=f"adapter 'a'.*{message}"):
        fitted("a", values, ports)


def test_a_folder_without_an_adapter_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"no adapter_config\.json and no \.npy"):
        read_inputs("a", tmp_path)


def test_an_adapter_of_another_model_is_refused(package, adapters, tmp_path):
    config = json.loads((package.tokenizer_folder / "config.json").read_text()) | {"num_hidden_layers": 2}
    config["layer_types"] = config["layer_types"][:2]
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(CompileError, match="no Linear of a layer"):
        adapter_inputs(tmp_path / "config.json", adapters / "all")
