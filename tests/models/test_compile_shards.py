"""Tensor parallel packages: what each device gets, and that it is cut from the same weights."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tcim_lite import _core
from tcim_lite.hmm import Container, Split, read
from tcim_lite.hmm.parts import CARRIED
from tcim_lite.models.compiler import CompileOptions, compile_checkpoint
from tcim_lite.models.weights.packing import unpack

Make = Callable[..., Path]
QUANTS = ("w4a8h0_ssfp", "w8a8h1_sefp", "mxfp4a8", "float16", "float32")
STAGES = ("prefill", "decode", "verify")


def numbers(container: Container, name: str) -> list[np.ndarray]:
    """Values or codes, and scales, one row an output."""
    entry = next(entry for entry in container.weights if entry.name == name)
    data = container.weight_bytes(entry)
    if entry.format == "dense":
        return [np.frombuffer(data, entry.dtype).reshape(entry.shape)]
    return [part for part in unpack(data, entry.format, *entry.shape) if part is not None]


def test_files_and_what_a_program_sees(make_checkpoint: Make, make_package: Make) -> None:
    package = make_package(make_checkpoint(), ndevice=2, verify_length=3, batch=2, pipeline=2)
    shared = read(package / "qwen3.hmw")
    for stage in STAGES:
        single, several = (read(package / f"qwen3_{stage}{suffix}") for suffix in (".hmm", ".hmms"))
        several.verify(shared)
        assert (several.ndevice, len(several.graphs)) == (2, 2)
        message = json.loads(several.custom_msg)
        assert message == json.loads(single.custom_msg) | {"ndevice": 2}
        for what in ("inputs", "outputs"):
            whole = [single.graph.values[id_] for id_ in getattr(single.graph, what)]
            for graph in several.graphs:
                part = [graph.values[id_] for id_ in getattr(graph, what)]
                assert [(v.name, v.kind, v.dtype) for v in part] == [(v.name, v.kind, v.dtype) for v in whole]
                assert [v.shape for v in part] == [
                    (1, 1, *v.shape[2:]) if v.kind == "state" else v.shape for v in whole
                ]
            axes = [1 if v.kind == "state" else -1 for v in whole]
            assert getattr(several.split, what) == tuple(axes)
        lives = [None if g.live_rows is None else g.values[g.live_rows].name for g in several.graphs]
        assert lives == [None if stage == "decode" else "current_length"] * 2
    assert not list(package.glob("*part*.hmms"))


def test_devices_share_each_op_along_the_axis_that_its_definition_names(
    make_checkpoint: Make, make_package: Make
) -> None:
    allowed = {
        "no": lambda axis, rank: False,
        "columns": lambda axis, rank: axis == rank - 1,
        "heads": lambda axis, rank: axis in (1, 2),
        "rows": lambda axis, rank: axis < rank - 1,
        "as its operand": lambda axis, rank: True,
    }
    cuts = {row["name"]: row["cut"] for row in _core.op_table()}
    package = make_package(make_checkpoint(), ndevice=2)
    single = read(package / "qwen3_prefill.hmm").graph
    whole = {single.values[id_].name: single.values[id_].shape for op in single.ops for id_ in op.outputs}
    cut = set()
    for graph in read(package / "qwen3_prefill.hmms").graphs:
        for op in graph.ops:
            for value in (graph.values[id_] for id_ in op.outputs):
                shape = whole[value.name.removesuffix(".part")]
                axes = [axis for axis, extent in enumerate(value.shape) if extent != shape[axis]]
                assert all(allowed[cuts[op.kind]](axis, len(shape)) for axis in axes), (op.kind, value.name)
                cut |= {op.kind} if axes else set()
    assert cut >= {"Linear", "RMSNorm", "Rope", "KVcache", "FlashAttention", "SiluMul"}


def test_the_reader_knows_what_ops_hand_from_run_to_run() -> None:
    assert {row["name"]: row["carried"] for row in _core.op_table() if row["carried"] is not None} == CARRIED


def test_every_result_of_a_cut_op_is_gathered(make_checkpoint: Make, make_package: Make) -> None:
    several = read(make_package(make_checkpoint(), ndevice=2) / "qwen3_prefill.hmms")
    assert several.split == Split([-1, -1, -1, 1, 1, 1, 1], [-1])
    for rank, graph in enumerate(several.graphs):
        gathers = [op for op in graph.ops if op.kind == "AllGather"]
        layer = [("mix", 192, 96), ("out", 64, 32), ("silu_mul", 128, 64), ("out", 64, 32)]
        assert [
            (graph.values[op.outputs[0]].name.split(".")[-1], graph.values[op.outputs[0]].shape[-1]) for op in gathers
        ] == [(name, width) for name, width, _ in layer * 2] + [("logits", 83)]
        columns = [part for _, _, part in layer * 2] + [48]
        assert [op.attributes for op in gathers] == [{"offset": rank * begin} for begin in columns]
        assert graph.values[gathers[-1].inputs[0]].shape[-1] == (48, 35)[rank]
        weights = {value.name for value in graph.values if value.weight is not None}
        cut = {name for name in weights if name.endswith(f".{rank}of2")}
        assert {name.split(".")[-3] for name in cut} == {"qkv", "o_proj", "gate_up", "down_proj", "lm_head"}
        assert all("norm" in name or name.startswith("rope") for name in weights - cut)


# What decides which rows are cut where: heads that fill no whole block, and biases.
SHAPES = [{}, {"num_attention_heads": 8, "head_dim": 24, "attention_bias": True}]


@pytest.mark.parametrize("changes", SHAPES)
@pytest.mark.parametrize("quant", QUANTS)
def test_devices_hold_the_rows_of_the_whole_weight(
    make_checkpoint: Make, make_package: Make, quant: str, changes: dict[str, Any]
) -> None:
    shared = read(make_package(make_checkpoint(**changes), ndevice=2, quant=quant) / "qwen3.hmw")
    head_dim, num_q = changes.get("head_dim", 32), changes.get("num_attention_heads", 6)
    q_rows, kv_rows = num_q * head_dim, 2 * head_dim
    layer = "layers.1."
    names = [f"{layer}self_attn.qkv.weight", f"{layer}self_attn.o_proj.weight"]
    names += [name.replace("weight", "bias") for name in names if changes]
    for name in [*names, f"{layer}mlp.gate_up.weight", f"{layer}mlp.down_proj.weight", "lm_head.weight"]:
        for whole, first, second in zip(
            *(numbers(shared, f"{name}{part}") for part in ("", ".0of2", ".1of2")), strict=True
        ):
            if ".qkv." in name:
                q, k, v = np.split(whole, [q_rows, q_rows + kv_rows])
                halves = zip(*(np.split(part, 2) for part in (q, k, v)), strict=True)
                want = [np.concatenate(half) for half in halves]
            else:
                want = np.split(whole, [{"gate_up": 128, "lm_head": 48}.get(name.split(".")[-2], 32)])
            np.testing.assert_array_equal(first, want[0])
            np.testing.assert_array_equal(second, want[1])


def test_gate_and_up_of_a_device_belong_together(make_checkpoint: Make, make_package: Make) -> None:
    kept: dict[str, np.ndarray] = {}
    package = make_package(make_checkpoint(intermediate_size=100, edit=kept.update), ndevice=2, quant="float32")
    shared = read(package / "qwen3.hmw")
    gate, up = (kept[f"model.layers.0.mlp.{name}_proj.weight"].astype(np.float32) for name in ("gate", "up"))
    for rank, (begin, end) in enumerate(((0, 64), (64, 112))):
        (rows,) = numbers(shared, f"layers.0.mlp.gate_up.weight.{rank}of2")
        pairs = rows.reshape(-1, 2, 16, 64)
        for index, part in enumerate((gate, up)):
            padded = np.pad(part, ((0, 12), (0, 0)))[begin:end]
            np.testing.assert_array_equal(pairs[:, index].reshape(-1, 64), padded)


def test_devices_are_cut_from_the_weights_of_the_single_device_package(tmp_path: Path, tiny_config: Any) -> None:
    (tmp_path / "config.json").write_text(json.dumps(tiny_config))
    tables = []
    for ndevice in (1, 2):
        options = {
            "checkpoint": tmp_path,
            "output": tmp_path / str(ndevice),
            "random_weights": True,
            "ndevice": ndevice,
        }
        with pytest.warns(match="no tokenizer files"):
            compile_checkpoint(CompileOptions(**options, context_length=128, prefill_length=8))
        entries = read(tmp_path / f"{ndevice}/qwen3.hmw").weights
        tables.append({entry.name: entry.hash for entry in entries})
    assert tables[0].items() < tables[1].items()
    assert all(name.endswith("of2") for name in tables[1].keys() - tables[0].keys())


def test_four_devices_may_get_unequal_shares_of_outputs(make_checkpoint: Make, make_package: Make) -> None:
    changes = {"num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 16, "intermediate_size": 192}
    package = make_package(make_checkpoint(**changes, hidden_size=128, vocab_size=101), ndevice=4)
    graphs = read(package / "qwen3_decode.hmms").graphs
    last = [[op for op in graph.ops if op.kind == "AllGather"][-1] for graph in graphs]
    assert [op.attributes["offset"] for op in last] == [0, 32, 64, 96]
    widths = [graph.values[op.inputs[0]].shape[-1] for graph, op in zip(graphs, last, strict=True)]
    assert widths == [32, 32, 32, 5]


@pytest.mark.parametrize(
    ("options", "whole"), [({}, False), ({"pipeline": 2}, True), ({"self_contained": True}, False)]
)
def test_without_single_device_graphs_only_what_is_used_is_stored(
    make_checkpoint: Make, make_package: Make, options: dict[str, Any], whole: bool
) -> None:
    package = make_package(make_checkpoint(), ndevice=2, single_device=False, **options)
    graphs = {path.name for path in package.glob("*.hmm*")}
    assert {name for name in graphs if "part" not in name} == {"qwen3_prefill.hmms", "qwen3_decode.hmms"}
    model = read(package / "qwen3_decode.hmms")
    stored = model if "self_contained" in options else read(package / "qwen3.hmw")
    model.verify(None if stored is model else stored)
    names = {entry.name for entry in stored.weights}
    assert "lm_head.weight.1of2" in names
    assert ("lm_head.weight" in names) == whole


def test_compiling_again_for_one_device_takes_the_other_files_away(make_checkpoint: Make, tmp_path: Path) -> None:
    options = {"checkpoint": make_checkpoint(), "output": tmp_path / "out", "context_length": 256}
    compile_checkpoint(CompileOptions(**options, ndevice=2))
    assert list((tmp_path / "out").glob("*.hmms"))
    compile_checkpoint(CompileOptions(**options))
    assert not list((tmp_path / "out").glob("*.hmms"))
