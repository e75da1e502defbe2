"""Packages: files, graph inputs, weights, embedding, and what is refused."""

from __future__ import annotations

import itertools
import json
import math
import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tcim_lite.hmm import read
from tcim_lite.models.common.errors import CheckpointError, CompileError, CompileWarning
from tcim_lite.models.compiler import CompileOptions, compile_checkpoint
from tcim_lite.models.weights.packing import dequantize, unpack

Make = Callable[..., Path]
QUANTS = ("w4a8h0_ssfp", "w8a8h1_sefp", "mxfp4a8", "float16", "float32")


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def stored(package: Path, name: str) -> tuple[str, np.ndarray, np.ndarray | None]:
    """Format, codes or values, and scales of a weight."""
    container = read(package / "qwen3.hmw")
    entry = next(entry for entry in container.weights if entry.name == name)
    data = container.weight_bytes(entry)
    if entry.format == "dense":
        return entry.format, np.frombuffer(data, entry.dtype).reshape(entry.shape), None
    return entry.format, *unpack(data, entry.format, *entry.shape)


def inputs_of(path: Path) -> list[tuple[str, str, str, tuple[int, ...]]]:
    graph = read(path).graph
    values = [graph.values[id_] for id_ in graph.inputs]
    return [(value.name, value.kind, value.dtype, tuple(value.shape)) for value in values]


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


@pytest.mark.parametrize(("layers", "stages", "cut"), [(4, 2, (0, 2, 4)), (5, 3, (0, 2, 4, 5)), (3, 3, (0, 1, 2, 3))])
def test_pipeline_stages(
    make_checkpoint: Make, make_package: Make, layers: int, stages: int, cut: tuple[int, ...]
) -> None:
    package = make_package(make_checkpoint(num_hidden_layers=layers), pipeline=stages, batch=2)
    shared = read(package / "qwen3.hmw")
    for stage, (first, stop) in enumerate(itertools.pairwise(cut)):
        for kind, batch, tokens, suffixes in (("prefill", 1, 8, [""]), ("decode", 2, 1, ["", "_batch_1"])):
            path = package / f"qwen3_{kind}_part{stage}.hmm"
            name = f"add_{2 * first - 1}" if stage else "input_1"
            assert inputs_of(path) == [
                (name, "input", "float16", (batch, tokens, 64)),
                *(
                    slot_input
                    for suffix in suffixes
                    for slot_input in (
                        (f"valid_length{suffix}", "input", "int32", (1,)),
                        (f"current_length{suffix}", "input", "int32", (1,)),
                        *(
                            (f"model_layers_{i}_self_attn_{kv}cache_input{suffix}", "state", "float16", (1, 2, 64, 32))
                            for i in range(first, stop)
                            for kv in "kv"
                        ),
                    )
                ),
            ]
            model = read(path)
            model.verify(shared)
            (output,) = (model.graph.values[id_] for id_ in model.graph.outputs)
            last = stop == layers
            assert output.name == ("logits" if last else f"add_{2 * stop - 1}")
            assert tuple(output.shape) == ((batch, 1, 83) if last else (batch, tokens, 64))
            blocks = {re.match(r"layers\.(\d+)\.", entry.name) for entry in model.weights} - {None}
            assert {int(match[1]) for match in blocks} == set(range(first, stop))
            message = json.loads(model.custom_msg)
            assert (message["pipeline"], message["first_block"], message["blocks"]) == (stages, first, stop - first)
    assert {path.name for path in package.glob("qwen3_*")} == {
        f"qwen3_{kind}{part}.hmm"
        for kind in ("prefill", "decode")
        for part in ("", *(f"_part{stage}" for stage in range(stages)))
    }


def test_self_contained_pipeline_stages_hold_their_own_weights_only(make_checkpoint: Make, make_package: Make) -> None:
    package = make_package(make_checkpoint(), pipeline=2, self_contained=True)
    names = [{entry.name for entry in read(package / f"qwen3_prefill_part{stage}.hmm").weights} for stage in range(2)]
    assert names[0] & names[1] == {"rope.cos", "rope.sin"}
    whole = read(package / "qwen3_prefill.hmm")
    assert names[0] | names[1] == {entry.name for entry in whole.weights}


def test_more_pipeline_stages_than_blocks(make_checkpoint: Make, make_package: Make) -> None:
    with pytest.raises(CompileError, match="--pipeline 3 is more stages than the model's 2 blocks"):
        make_package(make_checkpoint(), pipeline=3)


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


@pytest.mark.parametrize("quant", QUANTS)
def test_weights_are_merged_and_close(make_checkpoint: Make, make_package: Make, quant: str) -> None:
    kept: dict[str, np.ndarray] = {}
    package = make_package(make_checkpoint(edit=kept.update), quant=quant)
    layer = {name.removeprefix("model.layers.1."): part.astype(np.float32) for name, part in kept.items()}
    gate, up = (layer[f"mlp.{name}_proj.weight"].reshape(-1, 1, 16, 64) for name in ("gate", "up"))
    want = {
        "self_attn.qkv.weight": np.concatenate([layer[f"self_attn.{name}_proj.weight"] for name in "qkv"]),
        "mlp.gate_up.weight": np.concatenate((gate, up), axis=1).reshape(-1, 64),
        "mlp.down_proj.weight": layer["mlp.down_proj.weight"],
    }
    limit = {"w4a8h0_ssfp": 0.12, "w8a8h1_sefp": 0.01, "mxfp4a8": 0.2, "float16": 5e-4, "float32": 0}[quant]
    for name, matrix in want.items():
        _, values, scales = stored(package, f"layers.1.{name}")
        got = values if scales is None else dequantize(values, scales)
        assert np.abs(got - matrix).std() <= limit * matrix.std(), name
    norm = stored(package, "layers.1.input_layernorm.weight")[1]
    np.testing.assert_array_equal(norm, layer["input_layernorm.weight"])


def test_shards_and_single_file_give_equal_packages(make_checkpoint: Make, make_package: Make) -> None:
    one, three = (files_of(make_package(make_checkpoint(shards=shards))) for shards in (1, 3))
    assert one == three


def test_compiling_twice_gives_equal_files(make_checkpoint: Make, make_package: Make) -> None:
    checkpoint = make_checkpoint()
    assert files_of(make_package(checkpoint)) == files_of(make_package(checkpoint))


def test_tied_head_comes_from_the_checkpoint_tensor(make_checkpoint: Make, make_package: Make) -> None:
    kept: dict[str, np.ndarray] = {}
    package = make_package(make_checkpoint(tie_word_embeddings=True, edit=kept.update), quant="float32")
    embedding = kept["model.embed_tokens.weight"].astype(np.float32)
    np.testing.assert_array_equal(stored(package, "lm_head.weight")[1], embedding)
    untied: dict[str, np.ndarray] = {}
    package = make_package(make_checkpoint(edit=untied.update), quant="float32")
    np.testing.assert_array_equal(stored(package, "lm_head.weight")[1], untied["lm_head.weight"].astype(np.float32))


def test_tied_config_with_a_head_of_its_own(make_checkpoint: Make, make_package: Make) -> None:
    kept: dict[str, np.ndarray] = {}

    def copy_head(tensors: dict[str, np.ndarray]) -> None:
        tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].copy()

    def other_head(tensors: dict[str, np.ndarray]) -> None:
        tensors["lm_head.weight"] = -tensors["model.embed_tokens.weight"]
        kept.update(tensors)

    make_package(make_checkpoint(tie_word_embeddings=True, edit=copy_head))
    with pytest.warns(CompileWarning, match="taking lm_head.weight, as transformers does"):
        package = make_package(make_checkpoint(tie_word_embeddings=True, edit=other_head), quant="float32")
    np.testing.assert_array_equal(stored(package, "lm_head.weight")[1], kept["lm_head.weight"].astype(np.float32))


@pytest.mark.parametrize("head", ["w4a8h0_ssfp", "w8a8h1_sefp", "float16"])
def test_head_quant(make_checkpoint: Make, make_package: Make, head: str) -> None:
    package = make_package(make_checkpoint(), head_quant=head)
    formats = {"w4a8h0_ssfp": "linear_w4", "w8a8h1_sefp": "linear_w8", "float16": "linear_f16"}
    assert stored(package, "lm_head.weight")[0] == formats[head]
    assert stored(package, "layers.0.mlp.down_proj.weight")[0] == "linear_w4"


@pytest.mark.parametrize("quant", ["float16", "float32"])
def test_float_profiles_pad_the_intermediate_size(make_checkpoint: Make, make_package: Make, quant: str) -> None:
    kept: dict[str, np.ndarray] = {}
    package = make_package(make_checkpoint(intermediate_size=100, edit=kept.update), quant=quant)
    _, gate_up, _ = stored(package, "layers.0.mlp.gate_up.weight")
    _, down, _ = stored(package, "layers.0.mlp.down_proj.weight")
    assert gate_up.shape == (224, 64)
    assert down.shape == (64, 112)
    up = gate_up.reshape(-1, 2, 16, 64)[:, 1].reshape(-1, 64)
    np.testing.assert_array_equal(up[:100], kept["model.layers.0.mlp.up_proj.weight"].astype(gate_up.dtype))
    assert not up[100:].any()
    assert not down[:, 100:].any()


@pytest.mark.parametrize("quant", ["w4a8h0_ssfp", "float32"])
def test_embedding_files(make_checkpoint: Make, make_package: Make, quant: str) -> None:
    kept: dict[str, np.ndarray] = {}
    package = make_package(make_checkpoint(edit=kept.update), quant=quant)
    dtype = np.float32 if quant == "float32" else np.float16
    table = np.fromfile(package / "hmquant/quant_embedding.bin", dtype).reshape(83, 64)
    np.testing.assert_array_equal(table, kept["model.embed_tokens.weight"].astype(dtype))


@pytest.mark.oracle
@pytest.mark.parametrize("quant", ["w4a8h0_ssfp", "float32"])
def test_torch_loads_the_embedding(make_package: Make, make_checkpoint: Make, quant: str) -> None:
    torch = pytest.importorskip("torch", reason="it is what reads the .pt file")
    package = make_package(make_checkpoint(), quant=quant)
    state = torch.load(package / "hmquant/quant_embedding.pt", map_location="cpu", weights_only=True)
    assert list(state) == ["weight"]
    assert state.weight is state["weight"]  # vendor programs say either
    values = np.fromfile(package / "hmquant/quant_embedding.bin", state["weight"].numpy().dtype)
    np.testing.assert_array_equal(state["weight"].numpy(), values.reshape(83, 64))


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


def test_values_beyond_fp16_saturate_with_a_warning(make_checkpoint: Make, make_package: Make) -> None:
    def edit(tensors: dict[str, np.ndarray]) -> None:
        tensors["model.embed_tokens.weight"][3, :2] = (1e6, -1e6)

    with pytest.warns(CompileWarning, match="2 values of the embedding are beyond the fp16 range"):
        package = make_package(make_checkpoint(edit=edit))
    table = np.fromfile(package / "hmquant/quant_embedding.bin", np.float16).reshape(83, 64)
    assert table[3, :2].tolist() == [65504, -65504]


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


@pytest.mark.parametrize("quant", QUANTS)
def test_random_weights_need_a_config_only(tmp_path: Path, tiny_config: dict[str, Any], quant: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(tiny_config))
    packages = []
    for name, source, seed in (("a", path, 0), ("b", tmp_path, 0), ("c", path, 1)):
        options = CompileOptions(checkpoint=source, output=tmp_path / name, quant=quant, random_weights=True, seed=seed)
        with pytest.warns(CompileWarning) as caught:  # no tokenizer, and 2048 tokens of context
            compile_checkpoint(options)
        assert len(caught) == 2
        packages.append(files_of(tmp_path / name))
    assert packages[0] == packages[1]
    assert packages[0]["qwen3.hmw"] != packages[2]["qwen3.hmw"]
    for name in ("lm_head.weight", "layers.1.mlp.down_proj.weight"):
        _, values, scales = stored(tmp_path / "a", name)
        weights = values if scales is None else dequantize(values, scales)
        assert 0.015 < weights.astype(np.float32).std() < 0.025
        assert abs(weights.astype(np.float32).mean()) < 0.002


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"prefill_length": 65}, "is greater than --context-length 64; give a smaller --prefill-length"),
        ({"prefill_length": 0}, "--prefill-length must be 1 to"),
        ({"context_length": -1}, "--context-length must be 1 to"),
        ({"batch": 0}, "--batch must be 1 to"),
        ({"pipeline": 0}, "--pipeline must be 1 to"),
        ({"verify_length": 0}, "--verify-length must be 1 to"),
        ({"verify_length": 65}, "--verify-length 65 is greater than --context-length 64"),
        ({"quant": "w3"}, "unknown --quant 'w3'; choose from w4a8h0_ssfp"),
        ({"head_quant": "w3"}, "unknown --head-quant 'w3'"),
        ({"head_quant": "float32"}, "--head-quant float32 does not fit --quant w4a8h0_ssfp"),
        ({"name": "a/b"}, "--name must be a plain file name"),
        ({"seed": -1}, "--seed must not be negative"),
        ({"seed": 3}, "--seed 3: it chooses what --random-weights draws, which is missing"),
    ],
)
def test_bad_options(make_checkpoint: Make, make_package: Make, options: dict[str, Any], message: str) -> None:
    with pytest.raises(CompileError, match=message):
        make_package(make_checkpoint(), **options)


@pytest.mark.parametrize(
    ("changes", "tensor"),
    [
        ({"hidden_size": 72}, r"layers\.0\.self_attn\.q_proj.*72 inputs"),
        ({"head_dim": 24}, r"layers\.0\.self_attn\.o_proj.*144 inputs"),
        ({"intermediate_size": 100}, r"layers\.0\.mlp\.down_proj.*100 inputs"),
    ],
)
def test_group_size_that_does_not_divide(
    make_checkpoint: Make, make_package: Make, changes: dict[str, int], tensor: str
) -> None:
    checkpoint = make_checkpoint(**changes)
    with pytest.raises(CompileError, match=f"{tensor}, not a multiple of the quantisation group of 64"):
        make_package(checkpoint)
    make_package(checkpoint, quant="float16")


def test_failure_leaves_the_output_as_it_was(make_checkpoint: Make, tmp_path: Path) -> None:
    def edit(tensors: dict[str, np.ndarray]) -> None:
        tensors["model.embed_tokens.weight"][5, 5] = np.nan  # found last

    good, bad, output = make_checkpoint(), make_checkpoint(edit=edit), tmp_path / "out"
    with pytest.raises(CheckpointError, match="NaN or infinity"):
        compile_checkpoint(CompileOptions(checkpoint=bad, output=output, context_length=256))
    assert not output.exists()
    compile_checkpoint(CompileOptions(checkpoint=good, output=output, context_length=512))
    (output / "notes.txt").write_text("mine")
    before = files_of(output)
    with pytest.raises(CheckpointError, match="NaN or infinity"):
        compile_checkpoint(CompileOptions(checkpoint=bad, output=output, context_length=256))
    assert files_of(output) == before
    compile_checkpoint(CompileOptions(checkpoint=good, output=output, context_length=256))
    assert (output / "notes.txt").read_text() == "mine"
    assert not list(output.glob(".tcim-compile-*"))


def test_tensor_problems_are_found_before_the_work(make_checkpoint: Make, make_package: Make) -> None:
    missing = make_checkpoint(edit=lambda tensors: tensors.pop("model.norm.weight"))
    with pytest.raises(CheckpointError, match=r"no tensor 'model\.norm\.weight'"):
        make_package(missing)
    untied = make_checkpoint(edit=lambda tensors: tensors.pop("lm_head.weight"))
    with pytest.raises(CheckpointError, match=r"no tensor 'lm_head\.weight'"):
        make_package(untied)
    other_shape = make_checkpoint(
        edit=lambda t: t.update({"model.layers.0.self_attn.k_norm.weight": t["model.norm.weight"]})
    )
    with pytest.raises(CheckpointError, match=r"k_norm.*\[64\], expected \[32\]"):
        make_package(other_shape)


def test_tensors_without_a_place_are_named(make_checkpoint: Make, make_package: Make) -> None:
    def edit(tensors: dict[str, np.ndarray]) -> None:
        tensors["model.layers.0.self_attn.q_proj.bias"] = np.ones(192, np.float32)
        tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = np.zeros(16, np.float32)

    with pytest.warns(CompileWarning, match=r"1 tensors .*'model\.layers\.0\.self_attn\.q_proj\.bias'"):
        make_package(make_checkpoint(edit=edit))
