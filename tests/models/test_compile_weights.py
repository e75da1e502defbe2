"""Weights and the embedding of a package: merged, quantised, tied, padded, and close to the checkpoint."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from package_contents import QUANTS, Make, files_of, stored

from tcim_lite.models.common.errors import CompileWarning
from tcim_lite.models.compiler import CompileOptions, compile_checkpoint
from tcim_lite.models.weights.packing import dequantize


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


def test_values_beyond_fp16_saturate_with_a_warning(make_checkpoint: Make, make_package: Make) -> None:
    def edit(tensors: dict[str, np.ndarray]) -> None:
        tensors["model.embed_tokens.weight"][3, :2] = (1e6, -1e6)

    with pytest.warns(CompileWarning, match="2 values of the embedding are beyond the fp16 range"):
        package = make_package(make_checkpoint(edit=edit))
    table = np.fromfile(package / "hmquant/quant_embedding.bin", np.float16).reshape(83, 64)
    assert table[3, :2].tolist() == [65504, -65504]


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
