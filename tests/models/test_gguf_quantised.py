"""Quantised tensors of GGUF files are what the `gguf` package makes of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from family_checkpoints import family_config, family_tensors
from gguf_families import CHANGES, Type, compiled, make_gguf
from gguf_files import add_key, add_tensor, gguf, gguf_tensors, metadata_of, write_gguf

from tcim_lite.models.checkpoints.gguf import GgufCheckpoint
from tcim_lite.models.common.errors import CheckpointError

pytestmark = pytest.mark.filterwarnings("ignore:.*has no tokenizer files")

QUANTISED = [(family, "Q8_0") for family in ("gpt_oss", "llama", "mixtral", "phi3", "qwen2", "qwen3_moe", "seed_oss")]
# Rows that lie in another order, and experts in one tensor; names do not depend on the type.
QUANTISED += [
    (family, kind) for family in ("llama", "mixtral") for kind in ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "BF16", "F16")
]


@pytest.mark.parametrize(("family", "kind"), QUANTISED)
def test_quantised_tensors_are_what_the_gguf_package_makes_of_them(tmp_path: Path, family: str, kind: str) -> None:
    checkpoint = GgufCheckpoint(make_gguf(tmp_path / "m.gguf", family, Type[kind]))
    config = family_config(family)
    for name, tensor in family_tensors(config).items():
        want = tensor.astype(np.float32)
        if want.ndim == 2:  # rows are quantised one by one, so their order does not matter
            want = gguf.quants.dequantize(gguf.quants.quantize(want, Type[kind]), Type[kind])
        np.testing.assert_array_equal(checkpoint.read(name), want, err_msg=name)
        np.testing.assert_array_equal(checkpoint.read(name, 3, 7), want[3:7], err_msg=name)


@pytest.mark.parametrize("kind", ["Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "IQ4_XS", "MXFP4", "TQ1_0"])
def test_types_that_only_llama_cpp_writes_are_dequantised_by_the_gguf_package(tmp_path: Path, kind: str) -> None:
    block, block_bytes = gguf.GGML_QUANT_SIZES[Type[kind]]
    rng = np.random.default_rng(2)
    rows = rng.integers(0, 60, (5, 2 * block_bytes), np.uint8)  # small bytes: fp16 scales below 2
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "qwen2")
    writer.add_tensor("output.weight", rows, raw_dtype=Type[kind])
    for step in (writer.write_header_to_file, writer.write_kv_data_to_file, writer.write_tensors_to_file, writer.close):
        step()
    got = GgufCheckpoint(tmp_path / "m.gguf").read("lm_head.weight", 1, 4)
    np.testing.assert_array_equal(got, gguf.quants.dequantize(rows[1:4], Type[kind]))
    assert got.shape == (3, 2 * block)
    assert np.ptp(got) > 0


def test_a_type_that_nobody_dequantises_is_refused_with_what_to_do(tmp_path: Path) -> None:
    """Q1_0, which newer converters write and the package gguf knows by name alone."""
    if not hasattr(Type, "Q1_0"):
        pytest.skip("this gguf does not know Q1_0")
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "qwen2")
    size = gguf.GGML_QUANT_SIZES[Type.Q1_0][1]
    writer.add_tensor("output.weight", np.zeros((2, size), np.uint8), raw_dtype=Type.Q1_0)
    for step in (writer.write_header_to_file, writer.write_kv_data_to_file, writer.write_tensors_to_file, writer.close):
        step()
    with pytest.raises(CheckpointError, match=r"'output\.weight' has type Q1_0, .* `llama-quantize --allow-requantize"):
        GgufCheckpoint(tmp_path / "m.gguf").read("lm_head.weight")


def mxfp4_rows(tensor: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Random rows of ggml's MXFP4 like a tensor [E, N, K], and their values: a scale 2^(s - 127), then 16 bytes whose
    lower halves are elements 0 to 15 and upper halves 16 to 31."""
    groups = (*tensor.shape[:-1], tensor.shape[-1] // 32)
    scales = rng.integers(118, 124, (*groups, 1), dtype=np.uint8)
    codes = rng.integers(0, 256, (*groups, 16), dtype=np.uint8)
    sizes = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)
    nibbles = np.concatenate((codes % 16, codes // 16), axis=-1)
    values = np.where(nibbles < 8, 1, -1) * sizes[nibbles % 8] * np.float32(2.0) ** (scales - 127.0)
    rows = np.concatenate((scales, codes), axis=-1).reshape(*tensor.shape[:-1], -1)
    return rows, values.reshape(tensor.shape).astype(np.float32)


@pytest.mark.parametrize("quant", ["mxfp4a8", "w4a8h0_ssfp"])
def test_experts_in_mxfp4_are_their_values(tmp_path: Path, quant: str) -> None:
    """As the files of gpt-oss have them: the package is that of a file with the same values as floats."""
    config, rng = family_config("gpt_oss", **CHANGES["gpt_oss"]), np.random.default_rng(4)
    keys = {"general.architecture": "gpt-oss", **metadata_of(config, "gpt-oss")}
    tensors = gguf_tensors(config, family_tensors(config), "gpt-oss")
    coded = {name: mxfp4_rows(t, rng) for name, t in tensors.items() if name.endswith("_exps.weight")}
    assert len(coded) == 3 * config["num_hidden_layers"]
    writer = gguf.GGUFWriter(tmp_path / "coded.gguf", "gpt-oss")
    for key, value in keys.items():
        if key != "general.architecture":
            add_key(writer, key, value)
    for name, tensor in tensors.items():
        if name in coded:
            writer.add_tensor(name, coded[name][0], raw_dtype=Type.MXFP4)
        else:
            add_tensor(writer, name, tensor, Type.F32)
    for step in (writer.write_header_to_file, writer.write_kv_data_to_file, writer.write_tensors_to_file, writer.close):
        step()
    floats = write_gguf(tmp_path / "floats.gguf", keys, {**tensors, **{name: pair[1] for name, pair in coded.items()}})
    want = compiled(floats, tmp_path / "a", quant=quant)
    assert compiled(tmp_path / "coded.gguf", tmp_path / "b", quant=quant) == want
