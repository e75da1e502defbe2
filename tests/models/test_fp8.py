"""FP8 checkpoints compile to what the values do that their codes and scales stand for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from coded_checkpoints import Coded, compiled, torch, write

from tcim_lite.models.checkpoints.quantized.table import scheme_of
from tcim_lite.models.common.errors import CheckpointError, CompileError

pytestmark = pytest.mark.oracle
E4M3 = torch.float8_e4m3fn
FP8: dict[str, Any] = {
    "quant_method": "fp8",
    "fmt": "e4m3",
    "activation_scheme": "dynamic",
    "weight_block_size": [128, 128],
    "modules_to_not_convert": ["lm_head", "model.layers.0.mlp.gate"],
}


def in_blocks(weight, rows=128, columns=128, dtype=torch.float32):
    """Codes, the scales of blocks, and the values, of a matrix or of one an expert."""
    *several, outputs, inputs = weight.shape
    grid = -(-outputs // rows), -(-inputs // columns)
    padded = torch.zeros(*several, grid[0] * rows, grid[1] * columns)
    padded[..., :outputs, :inputs] = weight
    largest = padded.unflatten(-1, (grid[1], columns)).unflatten(-3, (grid[0], rows)).abs().amax((-3, -1))
    scales = (largest / 448).to(dtype)
    if dtype == torch.float8_e8m0fnu:
        scales = torch.exp2(torch.ceil(torch.log2(largest / 448))).to(dtype)
    each = scales.float().repeat_interleave(rows, -2).repeat_interleave(columns, -1)[..., :outputs, :inputs]
    codes = (weight / each).to(E4M3)
    return codes, scales, codes.float() * each


def block_encoder(rows=128, columns=128, dtype=torch.float32):
    def encode(weight):
        codes, scales, values = in_blocks(weight, rows, columns, dtype)
        return {".weight": codes, ".weight_scale_inv": scales}, values

    return encode


def whole(weight, name=".weight_scale_inv", beside=".activation_scale", shape=(), dtype=torch.bfloat16):
    """One scale for all, and one for activations, which is not read."""
    scale = (weight.abs().max() / 448).to(dtype)
    codes = (weight / scale.float()).to(E4M3)
    parts = {".weight": codes, name: scale.reshape(shape), beside: torch.tensor(0.5)}
    return parts, codes.float() * scale.float()


@pytest.mark.parametrize(
    ("family", "changes"),
    [
        ("qwen3", {"hidden_size": 192, "intermediate_size": 320}),  # no multiples of the block
        ("qwen3_moe", {}),
        ("glm4_moe", {}),
        ("qwen3_5", {}),
    ],
)
def test_scales_of_blocks(tmp_path: Path, family: str, changes: dict[str, Any]) -> None:
    coded = Coded(family, FP8, block_encoder(), **changes)
    got, want = coded.both(tmp_path)
    assert got == want
    if family == "qwen3":
        coded.check_rows(tmp_path)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float8_e8m0fnu], ids=["bf16", "ue8m0"])
def test_blocks_and_scales_of_other_kinds(tmp_path: Path, dtype: Any) -> None:
    """A package of quantised weights, read in chunks of rows that begin inside of blocks."""
    scheme = {**FP8, "weight_block_size": [24, 40], "scale_fmt": "ue8m0" if dtype != torch.bfloat16 else "float"}
    coded = Coded("qwen3", scheme, block_encoder(24, 40, dtype), hidden_size=192, intermediate_size=320)
    got, want = coded.both(tmp_path, quant="w8a8h1_sefp")
    assert got == want


def test_transformers_reads_the_same_values() -> None:
    finegrained = pytest.importorskip("transformers.integrations.finegrained_fp8", reason="oracle")
    codes, scales, values = in_blocks(torch.randn(256, 384) * 0.1)
    oracle = finegrained.Fp8Dequantize(None)._dequantize_one(codes, scales, output_dtype=torch.float32)
    assert torch.equal(oracle, values)


@pytest.mark.parametrize("form", ["ministral", "autofp8", "vector"])
def test_one_scale_for_a_tensor(tmp_path: Path, form: str) -> None:
    """As Ministral 3 and the files of AutoFP8 have it, which say nothing of blocks."""
    scheme = {"quant_method": "fp8", "activation_scheme": "static"}
    if form == "ministral":
        got, want = Coded("ministral3", {**scheme, "weight_block_size": None, "dequantize": False}, whole).both(
            tmp_path
        )
    else:
        shape = (1,) if form == "vector" else ()

        def encode(weight):
            return whole(weight, ".weight_scale", ".input_scale", shape, torch.float32)

        got, want = Coded("llama", {**scheme, "ignored_layers": ["lm_head"]}, encode).both(tmp_path)
    assert got == want


@pytest.mark.parametrize(
    ("family", "columns"), [("qwen3_5_moe", False), ("qwen3_vl_moe", True)], ids=["rows first", "columns first"]
)
def test_experts_in_one_tensor(tmp_path: Path, family: str, columns: bool) -> None:
    """[E, N, K] as transformers writes them, and [E, K, N] as Qwen3-VL publishes them."""
    coded = Coded(family, FP8, block_encoder(), hidden_size=192, moe_intermediate_size=160)
    count = coded.config["num_experts"]
    for layer in range(coded.config["num_hidden_layers"]):
        base = f"model.layers.{layer}.mlp.experts"
        for which in ("gate_up", "down"):
            parts = [f"{part}_proj.weight" for part in which.split("_")]
            rows = torch.stack(
                [torch.cat([coded.floats.pop(f"{base}.{e}.{part}") for part in parts]) for e in range(count)]
            )
            for name in [f"{base}.{e}.{part}" for e in range(count) for part in parts]:
                coded.tensors.pop(name)
                coded.tensors.pop(f"{name}_scale_inv")
            codes, scales, values = in_blocks(rows.transpose(1, 2) if columns else rows)
            coded.tensors |= {f"{base}.{which}_proj": codes, f"{base}.{which}_proj_scale_inv": scales}
            coded.floats[f"{base}.{which}_proj"] = values
    got, want = coded.both(tmp_path)
    assert got == want


def test_names_of_a_model_with_a_vision_tower(tmp_path: Path) -> None:
    """Their language model lies deeper, and its scales with it."""
    coded = Coded("qwen3_vl", FP8, block_encoder())

    def deeper(tensors):
        return {name.replace("model.", "model.language_model.", 1): tensor for name, tensor in tensors.items()}

    coded.tensors, coded.floats = deeper(coded.tensors), deeper(coded.floats)
    got, want = coded.both(tmp_path)
    assert got == want


WEIGHT = "model.layers.1.mlp.down_proj.weight"
SCALE = f"{WEIGHT}_scale_inv"


def changed(name, value):
    def edit(tensors):
        tensors[name] = value(tensors[name])

    return edit


def filled(number, dtype=torch.float32):
    def fill(tensor):
        other = tensor.float()
        other.view(-1)[-1] = number
        return other.to(dtype)

    return changed(SCALE, fill)


def no_number(codes):
    codes.view(torch.uint8)[3, 5] = 0x7F
    return codes


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda t: t.pop(SCALE), rf"'{WEIGHT}' in .* has dtype F8_E4M3, but no '{SCALE}' is beside it"),
        (lambda t: t.pop(WEIGHT), rf"has no tensor '{WEIGHT}'"),
        (changed(SCALE, lambda s: s[:1]), rf"'{SCALE}' in .* has shape \[1, 3\], expected \[2, 3\]"),
        (changed(SCALE, lambda s: s[:, :1]), rf"'{SCALE}' in .* has shape \[2, 1\], expected \[2, 3\]"),
        (changed(SCALE, lambda s: s.flatten()), rf"'{SCALE}' in .* has shape \[6\], expected \[2, 3\]"),
        (changed(SCALE, lambda s: s.to(torch.int32)), rf"'{SCALE}' in .* has dtype I32, expected one of BF16"),
        (filled(float("nan")), rf"'{SCALE}' in .* holds NaN or infinity, expected finite scales"),
        (filled(float("inf")), rf"'{SCALE}' in .* holds NaN or infinity, expected finite scales"),
        (filled(0.0), rf"'{SCALE}' in .* holds a scale of zero"),
        (filled(float("nan"), torch.float8_e8m0fnu), rf"'{SCALE}' in .* holds NaN"),
        (changed(WEIGHT, lambda w: w[:-1]), rf"'{WEIGHT}' in .* stands for shape \[191, 320\], expected \[192, 320\]"),
        (changed(WEIGHT, lambda w: w.float()), rf"'{WEIGHT}' in .* has dtype F32, but '{SCALE}' beside it"),
        (changed(WEIGHT, lambda w: w.view(torch.int8)), rf"'{WEIGHT}' in .* has dtype I8, expected F8_E4M3"),
        (changed(WEIGHT, lambda w: w.float().to(torch.float8_e5m2)), rf"'{WEIGHT}' in .* has dtype F8_E5M2"),
        (changed(WEIGHT, lambda w: w.flatten()), rf"'{WEIGHT}' in .* has shape \[61440\], expected a matrix"),
        (changed(WEIGHT, no_number), rf"'{WEIGHT}' in .* holds a code that stands for NaN"),
    ],
)
@pytest.mark.filterwarnings("ignore:.*does not ask for")
def test_bad_tensors_are_named(tmp_path: Path, edit: Any, message: str) -> None:
    coded = Coded("qwen3", FP8, block_encoder(), hidden_size=192, intermediate_size=320)
    edit(coded.tensors)
    with pytest.raises(CheckpointError, match=message):
        compiled(write(tmp_path / "coded", coded.config, coded.tensors))
    assert not (tmp_path / "coded_out").exists()


def test_what_is_said_of_the_language_model_alone_is_read() -> None:
    whole = scheme_of({"quantization_config": FP8})
    assert scheme_of({"text_config": {"quantization_config": FP8}}) == whole is not None
    assert scheme_of({"text_config": []}) is None


@pytest.mark.filterwarnings("ignore:.*does not ask for")
def test_fp8_without_a_config_is_no_float(tmp_path: Path) -> None:
    coded = Coded("qwen3", FP8, block_encoder())
    del coded.config["quantization_config"]
    with pytest.raises(CheckpointError, match=r"has dtype F8_E4M3, expected one of BF16, F16, F32"):
        compiled(write(tmp_path / "coded", coded.config, coded.tensors))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"weight_block_size": [128]}, r"weight_block_size=\[128\] is not supported of fp8, expected two positive"),
        ({"weight_block_size": [0, 128]}, r"weight_block_size=\[0, 128\] is not supported"),
        ({"weight_block_size": [128, 1 << 40]}, r"weight_block_size=\[128, 1099511627776\] is not supported"),
        ({"fmt": "e5m2"}, "fmt='e5m2' is not supported of fp8, expected e4m3 or float8_e4m3fn; use the original"),
        ({"expert_dtype": "fp4"}, "expert_dtype='fp4' is not supported"),
        ({"activation_scheme": 1}, "activation_scheme=1 is not supported"),
        ({"modules_to_not_convert": "lm_head"}, "modules_to_not_convert='lm_head' is not supported.* a list of names"),
        ({"rotation": "hadamard"}, "rotation='hadamard' is not known of fp8, which has activation_scheme, .*; use the"),
    ],
)
def test_other_schemes_are_refused_by_key(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(CompileError, match=f"quantization_config: {message}"):
        scheme_of({"quantization_config": {**FP8, **changes}})
