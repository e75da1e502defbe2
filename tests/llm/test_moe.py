"""Mixture of experts as a model: what must be equal whatever the numbers are, and checkpoints that do not fit."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from compile_memory import compile_peak
from llm_packages import LoadedPackage, compile_package

from tcim_lite.models.common.errors import CheckpointError
from tcim_lite.models.families import FAMILIES

safetensors = pytest.importorskip("safetensors.numpy", reason="needs the extra [compile]")

DENSE, SPARSE = FAMILIES["qwen3"].tiny_config, FAMILIES["qwen3_moe"].tiny_config
HIDDEN, INNER = SPARSE["hidden_size"], 128
PROMPT, NEXT = np.random.default_rng(2).integers(0, SPARSE["vocab_size"], 21).tolist(), [7, 300, 12]
SIZES = {"prefill_length": 16, "context_length": 64}


def attention_tensors(config: dict, seed: int = 3) -> dict[str, np.ndarray]:
    """All of a checkpoint but its MLPs."""
    random = np.random.default_rng(seed)
    heads, kv_heads, head_dim = (config[k] for k in ("num_attention_heads", "num_key_value_heads", "head_dim"))

    def matrix(*shape: int) -> np.ndarray:
        return (random.standard_normal(shape) * 0.06).astype(np.float32)

    tensors = {name: matrix(config["vocab_size"], HIDDEN) for name in ("model.embed_tokens.weight", "lm_head.weight")}
    tensors["model.norm.weight"] = np.ones(HIDDEN, np.float32)
    for layer in range(config["num_hidden_layers"]):
        here = f"model.layers.{layer}"
        for norm in ("input_layernorm", "post_attention_layernorm"):
            tensors[f"{here}.{norm}.weight"] = 1 + matrix(HIDDEN)
        for name in "qk":
            tensors[f"{here}.self_attn.{name}_norm.weight"] = 1 + matrix(head_dim)
        for name, rows in {"q": heads, "k": kv_heads, "v": kv_heads}.items():
            tensors[f"{here}.self_attn.{name}_proj.weight"] = matrix(rows * head_dim, HIDDEN)
        tensors[f"{here}.self_attn.o_proj.weight"] = matrix(HIDDEN, heads * head_dim)
    return tensors


def mlp_tensors(layer: int, expert: int = 0) -> dict[str, np.ndarray]:
    """The three matrices of a gated MLP, by projection."""
    random = np.random.default_rng([layer, expert])
    shapes = {"gate_proj": (INNER, HIDDEN), "up_proj": (INNER, HIDDEN), "down_proj": (HIDDEN, INNER)}
    return {name: (random.standard_normal(shape) * 0.1).astype(np.float32) for name, shape in shapes.items()}


def sparse_tensors(config: dict, expert_of=lambda expert: expert, router_scale: float = 0.2) -> dict[str, np.ndarray]:
    tensors = attention_tensors(config)
    for layer in range(config["num_hidden_layers"]):
        here = f"model.layers.{layer}.mlp"
        router = np.random.default_rng(layer).standard_normal((config["num_experts"], HIDDEN)) * router_scale
        tensors[f"{here}.gate.weight"] = router.astype(np.float32)
        for expert in range(config["num_experts"]):
            for name, matrix in mlp_tensors(layer, expert_of(expert)).items():
                tensors[f"{here}.experts.{expert}.{name}.weight"] = matrix
    return tensors


def checkpoint(folder: Path, config: dict, tensors: dict[str, np.ndarray]) -> Path:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config))
    safetensors.save_file(tensors, folder / "model.safetensors")
    return folder


def logits(tmp_path: Path, name: str, config: dict, tensors: dict[str, np.ndarray], **options) -> np.ndarray:
    """Of the prompt and of each token after it."""
    folder = checkpoint(tmp_path / name, config, tensors)
    loaded = LoadedPackage(compile_package(folder, tmp_path / f"{name}_out", **SIZES, **options))
    found = [loaded.prefill(PROMPT)]
    found += [loaded.decode(token, len(PROMPT) + i) for i, token in enumerate(NEXT)]
    return np.stack(found)


@pytest.mark.parametrize("quant", ["w4a8h0_ssfp", "mxfp4a8", "float16", "float32"])
def test_one_of_equal_experts_is_a_dense_model(tmp_path, quant):
    """Bit for bit: with k = 1 its share is 1."""
    dense = attention_tensors(DENSE)
    for layer in range(DENSE["num_hidden_layers"]):
        for name, matrix in mlp_tensors(layer).items():
            dense[f"model.layers.{layer}.mlp.{name}.weight"] = matrix
    want = logits(tmp_path, "dense", DENSE | {"intermediate_size": INNER}, dense, quant=quant)
    one = SPARSE | {"num_experts_per_tok": 1}
    got = logits(tmp_path, "sparse", one, sparse_tensors(one, lambda expert: 0), quant=quant)
    assert got.tobytes() == want.tobytes()
    if quant == "float32":
        got = logits(tmp_path, "two", SPARSE, sparse_tensors(SPARSE, lambda expert: 0), quant=quant)
        np.testing.assert_allclose(got, want, atol=1e-5 * np.abs(want).max())


@pytest.mark.parametrize("quant", ["w4a8h0_ssfp", "float32"])
def test_of_equal_logits_the_first_experts_are_taken(tmp_path, quant):
    """A router of zeros: experts 2 to 7 might not be there, and their shares of 1/8 are normalised away."""
    got = logits(tmp_path, "eight", SPARSE, sparse_tensors(SPARSE, router_scale=0), quant=quant)
    two = SPARSE | {"num_experts": 2}
    want = logits(tmp_path, "two", two, sparse_tensors(two, router_scale=0), quant=quant)
    assert got.tobytes() == want.tobytes()
    others = sparse_tensors(SPARSE, lambda expert: expert + 1, router_scale=0)
    assert got.tobytes() != logits(tmp_path, "others", SPARSE, others, quant=quant).tobytes()


def test_shares_count(tmp_path):
    """A model whose experts differ notices whether shares are normalised."""
    tensors = sparse_tensors(SPARSE)
    plain = SPARSE | {"norm_topk_prob": False}
    assert logits(tmp_path, "a", SPARSE, tensors).tobytes() != logits(tmp_path, "b", plain, tensors).tobytes()


@pytest.mark.oracle
@pytest.mark.parametrize(
    "changes",
    [
        {"norm_topk_prob": False, "num_experts_per_tok": 3},
        {"mlp_only_layers": [0]},
        {"decoder_sparse_step": 2, "num_hidden_layers": 3},
        {"attention_bias": True, "num_experts": 5, "num_experts_per_tok": 5},
    ],
)
def test_variants_agree_with_transformers(tmp_path, changes):
    transformers = pytest.importorskip("transformers", reason="oracle")
    pytest.importorskip("torch", reason="oracle")
    from oracle import assert_float32_graphs_agree, random_model

    assert transformers
    assert_float32_graphs_agree(tmp_path, random_model({**FAMILIES["qwen3_moe"].tiny, **changes}, "qwen3_moe"))


def missing(tensors):
    del tensors["model.layers.1.mlp.experts.5.up_proj.weight"]


def fewer(tensors):
    tensors["model.layers.0.mlp.gate.weight"] = tensors["model.layers.0.mlp.gate.weight"][:7].copy()


def narrow(tensors):
    name = "model.layers.0.mlp.experts.7.down_proj.weight"
    tensors[name] = tensors[name][:, :64].copy()


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (missing, r"no tensor 'model.layers.1.mlp.experts.5.up_proj.weight'"),
        (fewer, r"'model.layers.0.mlp.gate.weight' .* has shape \[7, 192\], expected \[8, 192\] by config.json"),
        (narrow, r"experts.7.down_proj.weight' .* has shape \[192, 64\], expected \[192, 128\] by config.json"),
    ],
)
def test_checkpoints_that_do_not_fit(tmp_path, edit, message):
    tensors = sparse_tensors(SPARSE)
    edit(tensors)
    folder = checkpoint(tmp_path / "hf", SPARSE, tensors)
    with pytest.raises(CheckpointError, match=message):
        compile_package(folder, tmp_path / "out", **SIZES)


@pytest.mark.slow
def test_experts_are_written_one_after_the_other(tmp_path):
    """150 MB of experts, of which the process takes 15 at a time."""
    config = SPARSE | {"num_experts": 32, "moe_intermediate_size": 2048, "hidden_size": 768, "vocab_size": 64}
    config["num_hidden_layers"] = 2
    (tmp_path / "config.json").write_text(json.dumps(config))
    options = {"prefill_length": 8, "context_length": 64, "random_weights": True}
    grown = compile_peak(tmp_path, tmp_path / "out", **options)
    assert sum(path.stat().st_size for path in (tmp_path / "out").glob("*.hmw")) > 150 << 20
    assert grown < 75 << 20, grown
