"""Packages: files, and the inputs, outputs and ops of their graphs."""

from __future__ import annotations

import json
import math
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from package_contents import Make, files_of, inputs_of

from tcim_lite.hmm import read
from tcim_lite.models.common.errors import CompileWarning
from tcim_lite.models.compiler import CompileOptions, compile_checkpoint

TOKENIZER = ("tokenizer.json", "config.json", "generation_config.json", "chat_template.jinja", "merges.txt")


def test_package_layout(make_checkpoint: Make, make_package: Make) -> None:
    checkpoint = make_checkpoint()
    for name in ("generation_config.json", "chat_template.jinja", "merges.txt"):
        (checkpoint / name).write_text(name)
    package = make_package(checkpoint)
    files = set(files_of(package))
    assert files == {
        "qwen3_prefill.hmm",
        "qwen3_decode.hmm",
        "qwen3.hmw",
        "hmquant/quant_embedding.bin",
        "hmquant/quant_embedding.pt",
        *(folder + name for folder in ("", "tokenizer/", "hmquant/hf_config/") for name in TOKENIZER),
    }
    weights = read(package / "qwen3.hmw")
    for stage in ("prefill", "decode"):
        model = read(package / f"qwen3_{stage}.hmm")
        assert model.sibling.file == "qwen3.hmw"
        model.verify(weights)
        assert all(entry.external for entry in model.weights)
        message = json.loads(model.custom_msg)
        assert message == {
            "prefill_length": 8,
            "batch": 1,
            "context_length": 64,
            "flash_attention": True,
            "all_logits": False,
            "model_type": "qwen3",
            "quant": "w4a8h0_ssfp",
            "head_quant": "w8a8h1_sefp",
            "embedding_dtype": "float16",
            "hidden_size": 64,
            "vocab_size": 83,
        }


@pytest.mark.parametrize("quant", ["w4a8h0_ssfp", "float32"])
def test_graph_inputs_and_outputs(make_checkpoint: Make, make_package: Make, quant: str) -> None:
    package = make_package(make_checkpoint(), quant=quant)
    dtype = "float32" if quant == "float32" else "float16"
    caches = [
        (f"model_layers_{layer}_self_attn_{which}cache_input", "state", dtype, (1, 2, 64, 32))
        for which in "kv"
        for layer in range(2)
    ]
    for stage, tokens in (("prefill", 8), ("decode", 1)):
        path = package / f"qwen3_{stage}.hmm"
        assert inputs_of(path) == [
            ("input_1", "input", dtype, (1, tokens, 64)),
            ("valid_length", "input", "int32", (1,)),
            ("current_length", "input", "int32", (1,)),
            *caches,
        ]
        graph = read(path).graph
        (output,) = (graph.values[id_] for id_ in graph.outputs)
        assert (output.name, output.dtype, tuple(output.shape)) == ("logits", dtype, (1, 1, 83))
        live = None if graph.live_rows is None else graph.values[graph.live_rows].name
        assert live == ("current_length" if stage == "prefill" else None)


def test_batch_slots(make_checkpoint: Make, make_package: Make) -> None:
    package = make_package(make_checkpoint(), batch=3)
    inputs = inputs_of(package / "qwen3_decode.hmm")
    blocks = 2
    assert inputs[0] == ("input_1", "input", "float16", (3, 1, 64))
    assert len(inputs) == 1 + 3 * (2 * blocks + 2)
    for slot in range(3):
        suffix = f"_batch_{slot}" if slot else ""
        first = 2 * blocks * slot + 2 * slot + 1
        assert [name for name, *_ in inputs[first : first + 2 + 2 * blocks]] == [
            f"valid_length{suffix}",
            f"current_length{suffix}",
            *(f"model_layers_{i}_self_attn_kcache_input{suffix}" for i in range(blocks)),
            *(f"model_layers_{i}_self_attn_vcache_input{suffix}" for i in range(blocks)),
        ]
    graph = read(package / "qwen3_decode.hmm").graph
    assert tuple(graph.values[graph.outputs[0]].shape) == (3, 1, 83)
    assert len(inputs_of(package / "qwen3_prefill.hmm")) == 1 + 2 * blocks + 2


def test_verify_shares_weights_and_caches_with_prefill(make_checkpoint: Make, make_package: Make) -> None:
    package = make_package(make_checkpoint(), verify_length=5)
    prefill, verify = (package / f"qwen3_{stage}.hmm" for stage in ("prefill", "verify"))
    assert inputs_of(verify)[0] == ("input_1", "input", "float16", (1, 5, 64))
    assert inputs_of(verify)[1:] == inputs_of(prefill)[1:]
    graph = read(verify).graph
    (output,) = (graph.values[id_] for id_ in graph.outputs)
    assert (output.name, tuple(output.shape)) == ("logits", (1, 5, 83))
    assert graph.values[graph.live_rows].name == "current_length"
    assert read(verify).sibling == read(prefill).sibling
    message, other = (json.loads(read(path).custom_msg) for path in (verify, prefill))
    assert (message["prefill_length"], message["all_logits"]) == (5, True)
    assert (other["prefill_length"], other["all_logits"]) == (8, False)


def test_all_logits_makes_prefill_return_every_row(make_checkpoint: Make, make_package: Make) -> None:
    package = make_package(make_checkpoint(), all_logits=True)
    for stage, shape, said in (("prefill", (1, 8, 83), True), ("decode", (1, 1, 83), False)):
        model = read(package / f"qwen3_{stage}.hmm")
        assert tuple(model.graph.values[model.graph.outputs[0]].shape) == shape
        assert json.loads(model.custom_msg)["all_logits"] is said


def test_compiling_again_takes_away_graphs_that_are_not_asked_for_any_more(
    make_checkpoint: Make, tmp_path: Path
) -> None:
    checkpoint, output = make_checkpoint(), tmp_path / "out"
    options = {"checkpoint": checkpoint, "output": output, "context_length": 256}
    compile_checkpoint(CompileOptions(**options, verify_length=4))
    for name in ("other_verify.hmm", "qwen3_notes.txt", "qwen3_verify.hmm.bak"):
        (output / name).write_text("mine")
    compile_checkpoint(CompileOptions(**options))
    assert not (output / "qwen3_verify.hmm").exists()
    assert {"other_verify.hmm", "qwen3_notes.txt", "qwen3_verify.hmm.bak"} < set(files_of(output))
    compile_checkpoint(CompileOptions(**options, self_contained=True))
    assert not (output / "qwen3.hmw").exists()


def test_operands_follow_ops_def(make_checkpoint: Make, make_package: Make) -> None:
    graph = read(make_package(make_checkpoint(attention_bias=True), batch=2) / "qwen3_decode.hmm").graph
    first = {kind: next(op for op in graph.ops if op.kind == kind) for kind in {op.kind for op in graph.ops}}
    used = {"Add", "FlashAttention", "KVcache", "Linear", "RMSNorm", "Reshape", "Rope", "SiluMul", "Slice"}
    assert first.keys() == used

    def names(kind: str) -> list[str]:
        return [graph.values[id_].name for id_ in first[kind].inputs]

    lengths = [("valid_length", "current_length"), ("valid_length_batch_1", "current_length_batch_1")]
    cache = "model_layers_0_self_attn_kcache_input"
    assert names("Linear") == ["layers.0.attn.norm", "layers.0.self_attn.qkv.weight", "layers.0.self_attn.qkv.bias"]
    assert names("Rope") == ["layers.0.attn.q_norm", "rope.cos", "rope.sin", lengths[0][0], lengths[1][0]]
    assert names("KVcache") == ["layers.0.attn.k", cache, *lengths[0], f"{cache}_batch_1", *lengths[1]]
    assert names("FlashAttention") == [
        "layers.0.attn.q",
        *("layers.0.attn.k_cache", "layers.0.attn.v_cache", *lengths[0]),
        *("layers.0.attn.k_cache_batch_1", "layers.0.attn.v_cache_batch_1", *lengths[1]),
    ]
    assert first["FlashAttention"].attributes == {"scale": 1 / math.sqrt(32)}
    assert first["RMSNorm"].attributes == {"epsilon": 1e-6}
    assert first["Slice"].attributes == {"start": 0, "stop": 6 * 32}
    biases = [value for value in graph.values if value.name.endswith(".bias")]
    assert {(value.dtype, tuple(value.shape)) for value in biases} == {("float32", (320,)), ("float32", (64,))}


def test_compiling_twice_gives_equal_files(make_checkpoint: Make, make_package: Make) -> None:
    checkpoint = make_checkpoint()
    assert files_of(make_package(checkpoint)) == files_of(make_package(checkpoint))


def test_compiling_does_not_import_torch(make_checkpoint: Make, run_script: Callable[..., str], tmp_path: Path) -> None:
    """Its import takes seconds. The file for `torch.load` is there all the same, not that of an earlier model."""
    file = tmp_path / "out/hmquant/quant_embedding.pt"
    file.parent.mkdir(parents=True)
    file.write_text("of an earlier model")
    run_script(
        """
        import sys
        from pathlib import Path
        sys.modules["torch"] = None
        from tcim_lite.models.compiler import CompileOptions, compile_checkpoint
        compile_checkpoint(CompileOptions(checkpoint=Path(sys.argv[1]), output=Path("out"), context_length=256))
        """,
        make_checkpoint(),
    )
    assert zipfile.is_zipfile(file)


def test_folder_without_tokenizer_warns_once(make_checkpoint: Make, make_package: Make) -> None:
    checkpoint = make_checkpoint()
    (checkpoint / "tokenizer.json").unlink()
    with pytest.warns(CompileWarning, match="no tokenizer files") as caught:
        package = make_package(checkpoint)
    assert len(caught) == 1
    assert [path.name for path in (package / "tokenizer").iterdir()] == ["config.json"]


def test_self_contained(make_checkpoint: Make, make_package: Make) -> None:
    checkpoint = make_checkpoint()
    alone, pair = make_package(checkpoint, self_contained=True), make_package(checkpoint)
    assert not (alone / "qwen3.hmw").exists()
    shared = read(pair / "qwen3.hmw")
    for stage in ("prefill", "decode"):
        model = read(alone / f"qwen3_{stage}.hmm")
        assert model.sibling is None
        model.verify()
        assert [entry.hash for entry in model.weights] == [entry.hash for entry in shared.weights]
        assert model.graph == read(pair / f"qwen3_{stage}.hmm").graph
