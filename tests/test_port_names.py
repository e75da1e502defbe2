"""Which names the inputs of a module answer to: stored aliases, those of version 1.0 files, and vendor spellings."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tiny_graphs import attention_graph

import tcim_lite.runtime as rt
from tcim_lite import hmm
from tcim_lite.errors import UnknownNameError

GOLDEN = Path(__file__).parent / "data/hmm"
K_CACHE = "model_layers_0_self_attn_kcache_input"
# Compiled name to exporter's name, as the runtime derived it before files stored aliases.
DERIVED = {
    "input_1": "inputs_embeds",
    "valid_length": "past_seq_length",
    "current_length": "current_input_length",
    K_CACHE: "past_key_cache_0",
    "model_layers_0_self_attn_vcache_input": "past_value_cache_0",
}


def renamed(graph: hmm.Graph, names: dict[str, str]) -> hmm.Graph:
    return replace(graph, values=[replace(v, name=names.get(v.name, v.name)) for v in graph.values])


def load(graph: hmm.Graph) -> rt.Module:
    return rt.load(hmm.model_bytes(graph))


def answers(module: rt.Module, name: str) -> str | None:
    """The compiled name of the input that `name` stands for."""
    try:
        return module.get_input_info(name).name
    except UnknownNameError:
        return None


@pytest.mark.parametrize(
    ("file", "alias"),
    [("every_op.hmm", None), ("two_devices.hmms", None), ("ports.hmm", "ключи"), ("ports_two_devices.hmms", "ключи")],
)
def test_golden_files_answer_to_the_exporters_names(file, alias, monkeypatch):
    devices = [0, 1] if file.endswith("s") else [0]
    monkeypatch.setenv("TCIM_LITE_DEVICE_NUM", str(len(devices)))
    module = rt.load(GOLDEN / file, rt.Option(rt.DevManager(devices)))
    for name, exported in DERIVED.items():
        for spelling in (name, exported, f"{name}.hmcc.format", f"{exported}.hmcc.format"):
            assert answers(module, spelling) == name
    assert alias is None or answers(module, alias) == K_CACHE


def test_version_1_0_files_answer_to_derived_names_of_batch_slots():
    assert hmm.read(hmm.model_bytes(attention_graph(1))).version == (1, 0)
    module = load(renamed(attention_graph(1), {name: f"{name}_batch_12" for name in DERIVED}))
    for name, exported in DERIVED.items():
        for base in (name, exported):
            for spelling in (f"{base}_batch_12", f"{base}_batch12", f"{base}_batch12.hmcc.format"):
                assert answers(module, spelling) == f"{name}_batch_12"
            assert answers(module, base) is None
            assert answers(module, f"{base}_batch_1") is None


def test_names_compiled_with_a_format_suffix_answer_without_it():
    module = load(renamed(attention_graph(1), {name: f"{name}_batch_1.hmcc.format" for name in DERIVED}))
    for name, exported in DERIVED.items():
        for spelling in (f"{name}_batch_1", f"{name}_batch1", f"{exported}_batch_1", f"{exported}_batch1.hmcc.format"):
            assert answers(module, spelling) == f"{name}_batch_1.hmcc.format"


@pytest.mark.parametrize(
    "name", ["model_layers__self_attn_kcache_input", "model_layers_1_self_attn_kcache", "xinput_1", "input_1_batch_"]
)
def test_other_names_of_version_1_0_have_no_alias(name):
    module = load(renamed(attention_graph(1), {K_CACHE: name}))
    assert answers(module, name) == name
    assert [answers(module, alias) for alias in ("past_key_cache_", "past_key_cache_1")] == [None, None]


def test_a_derived_name_never_hides_a_compiled_one():
    module = load(renamed(attention_graph(1), {"current_length": "past_seq_length"}))
    assert answers(module, "past_seq_length") == "past_seq_length"
    assert answers(module, "valid_length") == "valid_length"


def test_stored_aliases_are_all_there_is_from_version_1_1_on():
    graph = attention_graph(1)
    graph = replace(graph, values=[replace(graph.values[0], aliases=["tokens"]), *graph.values[1:]])
    module = load(graph)
    assert answers(module, "tokens") == "input_1"
    assert [answers(module, name) for name in ("inputs_embeds", "past_seq_length")] == [None, None]


def test_outputs_have_aliases_too():
    graph = attention_graph(1)
    graph = replace(graph, values=[*graph.values[:-1], replace(graph.values[-1], aliases=["y", "z_batch_2"])])
    module = load(graph)
    assert [module.get_output_info(name).name for name in ("y", "y.hmcc.format", "z_batch2")] == ["logits"] * 3
