"""GPTQ and AWQ checkpoints: their codes in the package as they are, their values where they are quantised again."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from four_bit_checkpoints import AUTO_ROUND, AWQ, GPTQ, SIZES, Made

from tcim_lite.hmm import read
from tcim_lite.models.checkpoints.checkpoint import Checkpoint
from tcim_lite.models.checkpoints.four_bit import FourBitCheckpoint, four_bit_scheme
from tcim_lite.models.checkpoints.quantized.table import scheme_of
from tcim_lite.models.common.errors import CheckpointError, CompileError
from tcim_lite.models.compiler import CompileOptions, compile_checkpoint
from tcim_lite.models.families import FAMILIES
from tcim_lite.models.weights.packing import unpack

pytestmark = pytest.mark.filterwarnings("ignore:.*has no tokenizer files", "ignore:.*does not ask for")


def compiled(source: Path, output: Path, **options: Any) -> Path:
    compile_checkpoint(CompileOptions(checkpoint=source, output=output, **{**SIZES, **options}))
    return output


def weights_of(package: Path) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Codes and scales of the 4-bit weights of a package."""
    store = read(next(package.glob("*.hmw")))
    entries = [entry for entry in store.weights if entry.format == "linear_w4"]
    return {entry.name: unpack(store.weight_bytes(entry), entry.format, *entry.shape) for entry in entries}


SCHEMES = [
    GPTQ,
    {**GPTQ, "group_size": 128},
    {**GPTQ, "group_size": -1, "checkpoint_format": "gptq_v2"},
    AWQ,
    {**AWQ, "group_size": 128, "version": "GEMM"},
    {**AUTO_ROUND, "packing_format": "auto_round:auto_gptq"},
    {**AUTO_ROUND, "packing_format": "auto_round:gptqmodel", "group_size": 128},
    {**AUTO_ROUND, "packing_format": "auto_round:auto_awq", "extra_config": {"lm_head": {"bits": 16}}},
]


@pytest.mark.parametrize("scheme", SCHEMES, ids=lambda s: f"{s.get('packing_format', '')}{s['group_size']}")
@pytest.mark.parametrize("family", ["granite", "llama", "qwen3", "seed_oss", "smollm3"])
def test_codes_and_scales_go_into_the_package_as_they_are(tmp_path: Path, scheme: dict[str, Any], family: str) -> None:
    made = Made(tmp_path / "hf", scheme, family=family)
    got = weights_of(compiled(made.write(), tmp_path / "out"))
    assert len(got) == 4 * 2
    for layer in range(2):
        prefix = f"model.layers.{layer}."

        def whole(name: str, prefix: str = prefix) -> tuple[np.ndarray, np.ndarray]:
            codes, scales = made.codes[f"{prefix}{name}_proj.weight"], made.scales[f"{prefix}{name}_proj.weight"]
            return codes, np.repeat(scales, codes.shape[1] // 64 // scales.shape[1], axis=1)

        qkv = [np.concatenate(parts) for parts in zip(*(whole(f"self_attn.{name}") for name in "qkv"), strict=True)]
        turns = [
            np.stack([part.reshape(-1, 16, part.shape[1]) for part in parts], axis=1).reshape(-1, parts[0].shape[1])
            for parts in zip(whole("mlp.gate"), whole("mlp.up"), strict=True)
        ]
        expected = {"self_attn.qkv": qkv, "self_attn.o_proj": whole("self_attn.o"), "mlp.gate_up": turns}
        expected["mlp.down_proj"] = whole("mlp.down")
        for name, (codes, scales) in expected.items():
            np.testing.assert_array_equal(got[f"layers.{layer}.{name}.weight"][0], codes, err_msg=name)
            np.testing.assert_array_equal(got[f"layers.{layer}.{name}.weight"][1], scales, err_msg=name)


@pytest.mark.parametrize("scheme", [GPTQ, AWQ], ids=lambda s: s["quant_method"])
@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("quant", ["float32", "w8a8h1_sefp"])
def test_another_quant_takes_the_values(tmp_path: Path, scheme: dict[str, Any], symmetric: bool, quant: str) -> None:
    """As of the same values without quantisation, bit for bit."""
    made = Made(tmp_path / "hf", scheme, symmetric=symmetric)
    got, want = (
        compiled(made.write(), tmp_path / "a", quant=quant),
        compiled(made.write_floats(), tmp_path / "b", quant=quant),
    )
    for name in ("qwen3.hmw", "qwen3_prefill.hmm", "qwen3_decode.hmm"):
        assert (got / name).read_bytes() == (want / name).read_bytes(), name


def test_codes_of_gate_and_up_in_one_tensor_take_turns(tmp_path: Path) -> None:
    made = Made(tmp_path / "hf", GPTQ, family="phi3")
    store = read(next(compiled(made.write(), tmp_path / "out").glob("*.hmw")))
    for layer in range(2):
        (entry,) = (entry for entry in store.weights if entry.name.startswith(f"layers.{layer}.mlp.gate_up"))
        outputs, inputs = entry.shape
        codes, _ = unpack(np.frombuffer(store.weight_bytes(entry), np.uint8), entry.format, outputs, inputs)
        halves = made.codes[f"model.layers.{layer}.mlp.gate_up_proj.weight"].reshape(2, -1, 16, inputs)
        np.testing.assert_array_equal(codes, halves.swapaxes(0, 1).reshape(outputs, inputs))


@pytest.mark.parametrize(
    ("family", "where", "parts"),
    [
        ("mixtral", "block_sparse_moe", ("w1", "w3", "w2")),
        ("qwen3_moe", "mlp", ("gate_proj", "up_proj", "down_proj")),
        ("dots1", "mlp", ("gate_proj", "up_proj", "down_proj")),  # whose sum of experts has a factor
    ],
)
@pytest.mark.parametrize("scheme", [GPTQ, AWQ], ids=lambda s: s["quant_method"])
def test_codes_of_experts_go_into_the_package_as_they_are(
    tmp_path: Path, scheme: dict[str, Any], family: str, where: str, parts: tuple[str, str, str]
) -> None:
    made = Made(tmp_path / "hf", scheme, family=family)
    *gate_up, down = parts
    store = read(next(compiled(made.write(), tmp_path / "out").glob("*.hmw")))
    entries = {entry.name: entry for entry in store.weights if len(entry.shape) == 3 and entry.format == "linear_w4"}
    assert len(entries) == 2 * (1 if family == "dots1" else 2)
    factor = np.float32(FAMILIES[family].tiny.get("routed_scaling_factor", 1.0))
    for name, entry in entries.items():
        count, outputs, inputs = entry.shape
        data = np.frombuffer(store.weight_bytes(entry), np.uint8).reshape(count, -1)
        for expert in range(count):
            codes, scales = unpack(data[expert], entry.format, outputs, inputs)
            prefix = f"model.layers.{name.split('.')[1]}.{where}.experts.{expert}."
            if "down" in name:
                want, want_scales = made.codes[f"{prefix}{down}.weight"], made.scales[f"{prefix}{down}.weight"]
                want_scales = (want_scales * factor).astype(np.float16)
            else:
                pairs = [
                    (made.codes[f"{prefix}{part}.weight"], made.scales[f"{prefix}{part}.weight"]) for part in gate_up
                ]
                want, want_scales = (
                    np.stack([half.reshape(-1, 16, half.shape[1]) for half in halves], axis=1).reshape(outputs, -1)
                    for halves in zip(*pairs, strict=True)
                )
            np.testing.assert_array_equal(codes, want, err_msg=f"{name} {expert}")
            np.testing.assert_array_equal(scales, want_scales, err_msg=f"{name} {expert}")


def test_rows_may_begin_anywhere(tmp_path: Path) -> None:
    for scheme in (GPTQ, AWQ):
        made = Made(tmp_path / scheme["quant_method"], scheme, symmetric=False)
        made.write()
        parsed = four_bit_scheme(made.config["quantization_config"])
        checkpoint = FourBitCheckpoint(Checkpoint(made.folder), parsed)
        name = "model.layers.1.mlp.down_proj.weight"
        assert checkpoint.shape(name) == (256, 384)
        np.testing.assert_array_equal(checkpoint.read(name, 5, 21), made.floats[name][5:21])
        assert set(checkpoint.names()) == set(made.floats)


def test_inputs_in_the_order_of_their_activations(tmp_path: Path) -> None:
    """Their values are right; their codes are refused, unless the order is the usual one after all."""
    made = Made(tmp_path / "hf", {**GPTQ, "desc_act": True})
    stem = "model.layers.0.mlp.up_proj"
    order = (np.arange(256) % 4).astype(np.int32)
    for name in [name.removesuffix(".qweight") for name in made.tensors if name.endswith(".qweight")]:
        inputs = made.floats[f"{name}.weight"].shape[1]
        made.tensors[f"{name}.g_idx"] = (np.arange(inputs) // 64).astype(np.int32)
    compiled(made.write(), tmp_path / "usual")
    made.tensors[f"{stem}.g_idx"] = order
    made.folder = tmp_path / "ordered"
    folder = made.write()
    with pytest.raises(
        CheckpointError, match=rf"'{stem}\.g_idx' puts inputs in the order of their activations.*another"
    ):
        compiled(folder, tmp_path / "out")
    parsed = four_bit_scheme(made.config["quantization_config"])
    scales = made.scales[f"{stem}.weight"].astype(np.float32)
    values = FourBitCheckpoint(Checkpoint(folder), parsed).read(f"{stem}.weight")
    np.testing.assert_array_equal(values, made.codes[f"{stem}.weight"] * scales[:, order])
    made.tensors[f"{stem}.g_idx"] = order + 1
    made.folder = tmp_path / "beyond"
    with pytest.raises(CheckpointError, match=rf"'{stem}\.g_idx' names groups 1 to 4 of 4"):
        compiled(made.write(), tmp_path / "out", quant="float16")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"quant_method": "hqq"},
            r"already quantised \('hqq'\), which is not read here; expected one of gptq, awq, .*; use one of these",
        ),
        ({"bits": 8}, "bits=8 is not supported, only 4: the scales of our 8-bit format are powers of two"),
        ({"group_size": "64"}, "group_size must be a positive integer or -1, got '64'"),
        ({"checkpoint_format": "marlin"}, "checkpoint_format='marlin' is not supported, only gptq and gptq_v2"),
        ({"quant_method": "awq", "version": "gemv"}, "version='gemv' is not supported, only gemm"),
        ({"format": "marlin", "checkpoint_format": None}, "checkpoint_format='marlin' is not supported"),
        ({"dynamic": {"+:.*down.*": {"bits": 8}}}, r"dynamic=.* is not supported of gptq, expected rules that leave"),
        ({"adapter": {"name": "lora"}}, r"adapter=.* is not supported of gptq, expected nothing; use the original"),
        ({"extra_config": {"lm_head": {"bits": 4}}}, r"extra_config=.* is not supported .* modules in more than 8"),
        ({"extra_config": "lm_head"}, r"extra_config='lm_head' is not supported .* modules in more than 8"),
        ({"dynamic": [1]}, r"dynamic=\[1\] is not supported of gptq, expected rules that leave"),
        ({"quant_method": "auto-round", "data_type": "mx_fp"}, "data_type='mx_fp' is not supported .* expected int"),
        ({**AUTO_ROUND, "packing_format": "auto_round:llm_compressor"}, "packing_format='auto_round:llm_comp"),
        ({"pack_dtype": "int16"}, "pack_dtype='int16' is not supported of gptq, expected int32"),
        ({"quant_method": "awq", "backend": "llm-awq"}, "backend='llm-awq' is not supported of awq, expected another"),
    ],
)
def test_other_schemes_are_refused_by_name(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(CompileError, match=message):
        scheme_of({"quantization_config": {**GPTQ, **changes}})


STEM = "model.layers.1.self_attn.v_proj"


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda t: t.pop(f"{STEM}.scales"), rf"has no tensor '{STEM}\.scales'"),
        (lambda t: t.pop(f"{STEM}.qweight"), rf"has no tensor '{STEM}\.weight'"),
        (
            lambda t: t.update({f"{STEM}.qzeros": t[f"{STEM}.qzeros"][:-1]}),
            rf"tensor '{STEM}\.qzeros' in .* has shape \[3, 16\], expected \[4, 16\]",
        ),
        (
            lambda t: t.update({f"{STEM}.qweight": t[f"{STEM}.qweight"][:-1]}),
            rf"tensor '{STEM}\.qweight' in .* has shape \[31, 128\], expected \[32, 128\]",
        ),
        (
            lambda t: t.update({f"{STEM}.qweight": t[f"{STEM}.qweight"].astype(np.float32)}),
            rf"tensor '{STEM}\.qweight' in .* has dtype F32, expected one of I32",
        ),
        (
            lambda t: t.update({f"{STEM}.qzeros": t[f"{STEM}.qzeros"] ^ 1}),
            rf"tensor '{STEM}\.qzeros' holds a zero of 7, expected 8 everywhere \(symmetric\).*another --quant",
        ),
        (
            lambda t: t.update({f"{STEM}.scales": t[f"{STEM}.scales"].astype(np.float32) * np.float32(1.0001)}),
            rf"tensor '{STEM}\.scales' holds numbers that fp16 does not",
        ),
        (
            lambda t: t.update({f"{STEM}.scales": t[f"{STEM}.scales"] * np.float16("nan")}),
            rf"tensor '{STEM}\.scales' in .* holds NaN or infinity",
        ),
    ],
)
def test_bad_tensors_are_named(tmp_path: Path, edit: Any, message: str) -> None:
    made = Made(tmp_path / "hf", GPTQ)
    edit(made.tensors)
    with pytest.raises(CheckpointError, match=message):
        compiled(made.write(), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_biases_of_zeros_are_none(tmp_path: Path) -> None:
    """AutoGPTQ writes one for each Linear; one that holds numbers is named as what is left out."""
    made = Made(tmp_path / "hf", GPTQ)
    name = "model.layers.1.mlp.down_proj.bias"
    made.tensors[name] = np.zeros(256, np.float16)
    want = compiled(made.write(), tmp_path / "a")
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        assert compiled(made.folder, tmp_path / "b")
    assert not [str(warning.message) for warning in seen if "does not ask for" in str(warning.message)]
    made.tensors[name][7] = 1
    made.folder = tmp_path / "biased"
    with pytest.warns(match=rf"1 tensors that config\.json does not ask for, such as '{name}'"):
        got = compiled(made.write(), tmp_path / "c")
    assert (got / "qwen3.hmw").read_bytes() == (want / "qwen3.hmw").read_bytes()


def test_groups_that_our_format_does_not_have(tmp_path: Path) -> None:
    made = Made(tmp_path / "hf", {**GPTQ, "group_size": 32})
    folder = made.write()
    with pytest.raises(
        CheckpointError, match=r"has a scale for each 32 inputs, our 4-bit format one for 64; another --q"
    ):
        compiled(folder, tmp_path / "out")
    compiled(folder, tmp_path / "out", quant="mxfp4a8")
