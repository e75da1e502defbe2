"""Bytes and operations of a run, counted from the ops of a graph."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from imported import imported
from tiny_graphs import add_graph, attention_graph, heads_graphs

from tcim_lite import hmm
from tcim_lite.bench.cost import cost_of, slot_count, weight_bytes
from tcim_lite.bench.network import operations as network_operations
from tcim_lite.cli import main
from tcim_lite.errors import UnsupportedError
from tcim_lite.models.blocks import Attention, LatentAttention
from tcim_lite.models.families import FAMILIES, read_config

ROOT = Path(__file__).parent.parent
CONFIG = FAMILIES["qwen3"].tiny_config
PREFILL, CONTEXT, VERIFY, BATCH, DEPTH = 16, 64, 3, 3, 32


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    """The tiny Qwen3 with every kind of graph; weights are float16."""
    folder = tmp_path_factory.mktemp("cost")
    (folder / "config.json").write_text(json.dumps(CONFIG))
    lengths = ["--prefill-length", str(PREFILL), "--context-length", str(CONTEXT), "--verify-length", str(VERIFY)]
    graphs = ["--batch", str(BATCH), "--pipeline", "2", "--ndevice", "2"]
    options = ["-o", str(folder / "out"), "--random-weights", "--quant", "float16", "--name", "p", "-q"]
    assert main(["compile", str(folder), *options, *lengths, *graphs]) == 0
    return lambda graph: hmm.read(folder / "out" / f"p_{graph}")


HIDDEN, HEAD_DIM = CONFIG["hidden_size"], CONFIG["head_dim"]
HEADS, KV_HEADS = CONFIG["num_attention_heads"], CONFIG["num_key_value_heads"]
LAYERS, VOCAB = CONFIG["num_hidden_layers"], CONFIG["vocab_size"]
INNER = -(-CONFIG["intermediate_size"] // 16) * 16
QKV = HIDDEN * HEAD_DIM * (HEADS + 2 * KV_HEADS)
REST = HIDDEN * HEAD_DIM * HEADS + 3 * HIDDEN * INNER
HEAD = HIDDEN * VOCAB
CACHE_ROW = 2 * KV_HEADS * HEAD_DIM * 2  # of a layer


def operations(layers: int, rows: int, last_rows: int = 0, head_rows: int = 0) -> int:
    """`last_rows`: what follows attention in the last layer runs for so many rows, if it is in the graph."""
    if not last_rows:
        return 2 * rows * layers * (QKV + REST)
    return 2 * (rows * (layers * QKV + (layers - 1) * REST) + last_rows * REST + head_rows * HEAD)


@pytest.mark.parametrize(
    ("graph", "slots", "tokens", "expected"),
    [
        ("prefill.hmm", 1, PREFILL, operations(LAYERS, PREFILL, 1, 1)),
        ("verify.hmm", 1, VERIFY, operations(LAYERS, VERIFY, VERIFY, VERIFY)),
        ("decode.hmm", BATCH, BATCH, operations(LAYERS, BATCH, BATCH, BATCH)),
        ("prefill_part0.hmm", 1, PREFILL, operations(1, PREFILL)),
        ("prefill_part1.hmm", 1, PREFILL, operations(1, PREFILL, 1, 1)),
        ("prefill.hmms", 1, PREFILL, operations(LAYERS, PREFILL, 1, 1)),
    ],
)
def test_a_language_model_costs_what_its_shapes_say(package, graph, slots, tokens, expected):
    file = package(graph)
    layers = LAYERS if "part" not in graph else 1
    assert LAYERS == 2
    assert slot_count(file) == slots
    for depth in (0, DEPTH):
        cost = cost_of(file, depth)
        assert (cost.tokens, cost.operations, cost.quantized) == (tokens, expected, False)
        cache_bytes = slots * layers * CACHE_ROW * (depth + tokens // slots)
        assert cost.read_bytes == weight_bytes(file) + cache_bytes


def test_weights_are_read_once_on_every_device_that_uses_them(package):
    """The RoPE tables are not: a token reads one row."""
    one, several = package("prefill.hmm"), package("prefill.hmms")
    sizes = {entry.name: entry.nbytes for entry in one.weights}
    tables = sizes["rope.cos"] + sizes["rope.sin"]
    norms = sum(nbytes for name, nbytes in sizes.items() if "norm" in name)
    assert weight_bytes(one) == sum(sizes.values()) - tables
    # Cut weights are padded to blocks of 16 outputs, which these sizes fill but for the head's.
    padding = sum(entry.nbytes for entry in several.weights) - sum(sizes.values())
    assert weight_bytes(several) == weight_bytes(one) + norms + padding


# What bench reported of these files when it still read the names of weights.
@pytest.mark.parametrize(
    ("graph", "expected"),
    [
        ("llm_prefill", (16, 185920, 5194496)),
        ("llm_decode", (1, 178240, 525056)),
        ("llm_decode_batch", (3, 212032, 1575168)),
        ("llm_verify", (4, 179776, 2100224)),
    ],
)
def test_figures_of_the_shipped_language_model(graph, expected):
    import tcim_lite.conformance

    cost = cost_of(hmm.read(Path(tcim_lite.conformance.__file__).parent / f"models/{graph}.hmm"), DEPTH)
    assert (cost.tokens, cost.read_bytes, cost.operations) == expected
    assert cost.quantized


def test_names_mean_nothing():
    graph = attention_graph(4)
    renamed = replace(graph, values=[replace(v, name=f"v{i}") for i, v in enumerate(graph.values)])
    files = [hmm.read(hmm.model_bytes(each)) for each in (graph, renamed)]
    assert cost_of(files[0], 5) == cost_of(files[1], 5)
    assert cost_of(files[0], 5).read_bytes == 2 * 2 * 64 * 2 * (5 + 4)
    assert slot_count(files[1]) == 1


def test_devices_share_the_caches():
    split = hmm.Split([-1, -1, -1, 1, 1], [-1])
    whole = hmm.read(hmm.model_bytes(heads_graphs(4, (3,))))
    parts = hmm.read(hmm.model_bytes(heads_graphs(4, (2, 1)), split=split))
    assert cost_of(parts, 7) == cost_of(whole, 7)


def test_a_graph_without_attention_is_refused(tmp_path):
    file = hmm.read(hmm.model_bytes(add_graph()))
    for ask in (slot_count, lambda file: cost_of(file, 0)):
        with pytest.raises(UnsupportedError, match="the graph has no KV caches of a language model"):
            ask(file)
    with hmm.WeightsWriter(tmp_path / "w.hmw") as weights:
        weights.add("w", "uint8", "dense", [4], b"abcd")
    with pytest.raises(UnsupportedError, match="a file of weights has no graph"):
        slot_count(hmm.read(tmp_path / "w.hmw"))


def test_rows_before_a_window_are_not_read():
    whole = attention_graph(2)
    ops = [replace(op, attributes={"window": 10}) if op.kind == "FlashAttention" else op for op in whole.ops]

    def read_bytes(graph: hmm.Graph, depth: int) -> int:
        return cost_of(hmm.read(hmm.model_bytes(graph)), depth).read_bytes

    row = read_bytes(whole, 1) - read_bytes(whole, 0)
    for depth, rows in ((0, 2), (5, 7), (9, 11), (10, 11), (40, 11)):
        assert read_bytes(replace(whole, ops=ops), depth) == rows * row


def test_masks_are_read_once_for_all_layers(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(FAMILIES["gpt_oss"].tiny_config | {"num_hidden_layers": 4}))
    sizes = ["--prefill-length", "16", "--context-length", "64", "--batch", "2"]
    costs = []
    for masks in ([], ["--masks"]):
        output = tmp_path / f"out{len(costs)}"
        assert main(["compile", str(tmp_path), "-o", str(output), "--random-weights", "-q", *sizes, *masks]) == 0
        costs.append(cost_of(hmm.read(output / "gpt_oss_decode.hmm"), 20).read_bytes)
    assert costs[1] - costs[0] == 2 * 2 * (16 + 64)  # slots, bytes of float16; the local and the global mask


@pytest.mark.parametrize("family", FAMILIES)
def test_the_table_of_models_counts_what_a_package_reads(tmp_path, family):
    module = imported(ROOT / "docs/make_models.py")
    config = FAMILIES[family].tiny_config
    (tmp_path / "config.json").write_text(json.dumps(config))
    options = ["-o", str(tmp_path / "out"), "--random-weights", "--name", "p", "-q"]
    assert main(["compile", str(tmp_path), *options, "--prefill-length", "8", "--context-length", "16"]) == 0
    decode = hmm.read(tmp_path / "out" / "p_decode.hmm")
    read = read_config(config)
    assert module.token_bytes(read, "w4a8h0_ssfp") == weight_bytes(decode)
    # The first token reads its own row of every cache, keys and values in float16, and nothing else of the slot.
    row = 2 * read.num_kv_heads * read.head_dim * 2
    blocks = [block for layer in range(read.num_layers) for block in read.blocks(layer)]
    attentions = [block for block in blocks if isinstance(block, Attention)]
    latents = [block for block in blocks if isinstance(block, LatentAttention)]  # one row of each, which is both
    # And, where layers with a window take a mask, all of its columns.
    masked = sum(block.window is not None for block in attentions) if read.family.contract.local_mask else 0
    assert cost_of(decode, 0).read_bytes == weight_bytes(decode) + len(attentions) * row + masked * 16 * 2 + sum(
        2 * (block.latent + read.head_dim) for block in latents
    )


@pytest.mark.parametrize("quant", ["w8a8h1_sefp", "float16"])
def test_the_operations_of_a_network_are_those_of_its_layers(tmp_path, quant):
    """A grouped and a plain convolution of 5x7 outputs, and a product of 70 terms; the plain ones are quantised."""
    onnx = pytest.importorskip("onnx", reason="needs onnx")
    from onnx import TensorProto, helper, numpy_helper

    shapes = {"w1": (24, 4, 3, 3), "w2": (2, 24, 3, 3), "w3": (70, 6)}
    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["a"], group=2, pads=[1, 1, 1, 1]),
        helper.make_node("Conv", ["a", "w2"], ["b"], pads=[1, 1, 1, 1]),
        helper.make_node("Flatten", ["b"], ["c"]),
        helper.make_node("MatMul", ["c", "w3"], ["y"]),
    ]
    constants = [numpy_helper.from_array(np.ones(shape, np.float32), name) for name, shape in shapes.items()]
    ports = [[helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)] for name, shape in
             (("x", (1, 8, 5, 7)), ("y", (1, 6)))]  # fmt: skip
    model = helper.make_model(
        helper.make_graph(nodes, "g", *ports, constants), opset_imports=[helper.make_opsetid("", 17)]
    )
    onnx.save(model, tmp_path / "net.onnx")
    assert main(["compile", str(tmp_path / "net.onnx"), "-o", str(tmp_path), "--quant", quant, "-q"]) == 0
    grouped, plain, product = 2 * 24 * 35 * 4 * 9, 2 * 2 * 35 * 24 * 9, 2 * 6 * 70
    int8, floats = network_operations(hmm.read(tmp_path / "net.hmm"))
    if quant == "float16":
        assert (int8, floats) == (0, grouped + plain + product)
    else:  # Linear counts its padded terms
        assert (int8, floats) == (plain + 2 * 6 * 128, grouped)
