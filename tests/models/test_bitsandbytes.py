"""Checkpoints of bitsandbytes compile to what the values do that their codes stand for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from coded_checkpoints import MODULE, Coded, compiled, edited, torch, without, write

from tcim_lite.models.checkpoints.quantized.table import scheme_of
from tcim_lite.models.common.errors import CheckpointError, CompileError

pytestmark = pytest.mark.oracle
FOUR: dict[str, Any] = {
    "quant_method": "bitsandbytes",
    "load_in_4bit": True,
    "load_in_8bit": False,
    "_load_in_4bit": True,
    "_load_in_8bit": False,
    "bnb_4bit_quant_type": "nf4",
    "bnb_4bit_use_double_quant": True,
    "bnb_4bit_compute_dtype": "bfloat16",
    "bnb_4bit_quant_storage": "uint8",
    "llm_int8_threshold": 6.0,
    "llm_int8_skip_modules": ["lm_head"],
    "llm_int8_has_fp16_weight": False,
    "llm_int8_enable_fp32_cpu_offload": False,
}
EIGHT = {**FOUR, "load_in_4bit": False, "load_in_8bit": True, "_load_in_4bit": False, "_load_in_8bit": True}


def state(**said: Any) -> Any:
    return torch.tensor(list(json.dumps(said).encode()), dtype=torch.uint8)


def four_bits(block=64, outer=256, nested=True, kind="nf4"):
    def encode(weight):
        elements = weight.numel()
        blocks = -(-elements // block)
        codes = torch.randint(0, 16, (elements,))
        table = torch.sort(torch.rand(16) * 2 - 1).values
        even = torch.nn.functional.pad(codes, (0, elements % 2))
        parts = {
            ".weight": (even[0::2] << 4 | even[1::2]).to(torch.uint8)[:, None],
            ".weight.quant_map": table,
        }
        said = {"quant_type": kind, "blocksize": block, "dtype": "bfloat16", "shape": list(weight.shape)}
        scales = torch.rand(blocks) * 0.1
        if nested:
            small = torch.randint(0, 256, (blocks,), dtype=torch.uint8)
            curve, largest = torch.rand(256) * 2 - 1, torch.rand(-(-blocks // outer)) * 0.01
            parts |= {".weight.nested_absmax": largest, ".weight.nested_quant_map": curve, ".weight.absmax": small}
            said |= {"nested_blocksize": outer, "nested_dtype": "float32", "nested_offset": 0.03125}
            scales = curve[small.long()] * largest.repeat_interleave(outer)[:blocks] + 0.03125
        else:
            parts[".weight.absmax"] = scales
        parts[f".weight.quant_state.bitsandbytes__{kind}"] = state(**said)
        values = table[codes] * scales.repeat_interleave(block)[:elements]
        return parts, values.view(weight.shape)

    return encode


def eight_bits(weight):
    largest = weight.abs().amax(1)
    largest[0] = 0  # a row of zeros
    codes = torch.randint(-127, 128, weight.shape, dtype=torch.int8)
    parts = {".weight": codes, ".SCB": largest, ".weight_format": torch.tensor(0, dtype=torch.uint8)}
    return parts, codes.float() * largest[:, None] * torch.tensor(7.874015718698502e-3)


@pytest.mark.parametrize(
    ("block", "outer", "nested", "kind"),
    [(64, 256, True, "nf4"), (64, 256, False, "nf4"), (256, 7, True, "fp4"), (24, 1000, True, "nf4")],
)
def test_four_bits(tmp_path: Path, block: int, outer: int, nested: bool, kind: str) -> None:
    torch.manual_seed(1)
    coded = Coded("qwen3", FOUR, four_bits(block, outer, nested, kind), hidden_size=192, intermediate_size=320)
    got, want = coded.both(tmp_path)
    assert got == want
    coded.check_rows(tmp_path)


@pytest.mark.parametrize("family", ["qwen3_moe", "gemma3"])
def test_four_bits_of_other_families_in_chunks(tmp_path: Path, family: str) -> None:
    torch.manual_seed(2)
    got, want = Coded(family, FOUR, four_bits()).both(tmp_path, quant="w8a8h1_sefp")
    assert got == want


def test_eight_bits(tmp_path: Path) -> None:
    torch.manual_seed(3)
    got, want = Coded("qwen3", EIGHT, eight_bits).both(tmp_path)
    assert got == want


def test_early_files_do_not_name_the_method(tmp_path: Path) -> None:
    got, want = Coded("llama", {"load_in_8bit": True}, eight_bits).both(tmp_path)
    assert got == want


STATE = "weight.quant_state.bitsandbytes__nf4"
SAID = {"quant_type": "nf4", "blocksize": 64, "shape": [192, 320], "nested_blocksize": 256, "nested_offset": 0.0}


def said(**changes):
    return edited(STATE, lambda _: state(**{**SAID, **changes}))


@pytest.mark.filterwarnings("ignore:.*does not ask for")
@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (without(STATE), rf"'{MODULE}.weight' .* has dtype U8, but no '{MODULE}.{STATE}' is beside it"),
        (without("weight.absmax"), rf"no tensor '{MODULE}.weight.absmax'"),
        (without("weight.nested_quant_map"), rf"no tensor '{MODULE}.weight.nested_quant_map'"),
        (without("weight.nested_absmax"), "weight.absmax' .* has dtype U8, expected one of BF16"),
        (without("weight"), rf"no tensor '{MODULE}.weight'"),
        (edited(STATE, lambda s: s[:-1]), rf"'{MODULE}.{STATE}' .* cannot be read as JSON"),
        (edited(STATE, lambda s: s.float()), rf"'{MODULE}.{STATE}' .* expected at most 65536 bytes of JSON"),
        (edited(STATE, lambda s: torch.zeros(1 << 17, dtype=torch.uint8)), "expected at most 65536 bytes of JSON"),
        (said(blocksize=0), r"says shape=\[192, 320\] and blocksize=0, expected two sizes and one"),
        (said(shape=[192, 1 << 40]), "says shape=.* expected two sizes"),
        (said(shape=[192, 321]), r"weight' .* has shape \[30720, 1\], expected \[30816, 1\]"),
        (said(shape=[320, 192]), r"stands for shape \[320, 192\], expected \[192, 320\] by config.json"),
        (said(blocksize=128), r"absmax' .* has shape \[960\], expected \[480\]"),
        (said(nested_offset=1e999), "nested_offset=inf, expected a size and a number"),
        (said(nested_offset=10**400), "nested_offset=1000.*, expected a size and a number"),
        (said(nested_blocksize="x"), "nested_blocksize='x' and"),
        (edited("weight.nested_absmax", lambda t: t * float("nan")), "nested_absmax' .* holds NaN or infinity"),
        (edited("weight.quant_map", lambda t: t / 0), "quant_map' .* holds NaN or infinity"),
        (edited("weight.quant_map", lambda t: t[:15]), r"quant_map' .* has shape \[15\], expected \[16\]"),
        (edited("weight", lambda t: t[:-1]), r"weight' .* has shape \[30719, 1\], expected \[30720, 1\]"),
        (edited("weight", lambda t: t.view(torch.int8)), "has dtype I8, but quantization_config says 4 bits"),
    ],
)
def test_bad_tensors_of_four_bits_are_named(tmp_path: Path, edit: Any, message: str) -> None:
    coded = Coded("qwen3", FOUR, four_bits(), hidden_size=192, intermediate_size=320)
    edit(coded.tensors)
    with pytest.raises(CheckpointError, match=message):
        compiled(write(tmp_path / "coded", coded.config, coded.tensors))


@pytest.mark.filterwarnings("ignore:.*does not ask for")
@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (without("SCB"), rf"no tensor '{MODULE}.SCB'"),
        (edited("SCB", lambda t: t[:-1]), r"SCB' .* has shape \[191\], expected \[192\]"),
        (edited("SCB", lambda t: t / 0), "SCB' .* holds NaN or infinity"),
        (edited("weight_format", lambda t: t + 1), "weight_format' .* is not 0, expected codes row by row"),
        (edited("weight", lambda t: t.flatten()), r"weight' .* has shape \[61440\], expected a matrix"),
    ],
)
def test_bad_tensors_of_eight_bits_are_named(tmp_path: Path, edit: Any, message: str) -> None:
    coded = Coded("qwen3", EIGHT, eight_bits, hidden_size=192, intermediate_size=320)
    edit(coded.tensors)
    with pytest.raises(CheckpointError, match=message):
        compiled(write(tmp_path / "coded", coded.config, coded.tensors))


@pytest.mark.parametrize(
    ("scheme", "message"),
    [
        ({**FOUR, "load_in_8bit": True}, "load_in_4bit=True and load_in_8bit=True, expected one of them"),
        ({**FOUR, "bnb_4bit_quant_type": "nf3"}, "bnb_4bit_quant_type='nf3' is not supported of bitsandbytes"),
        ({**FOUR, "bnb_4bit_quant_storage": "bfloat16"}, "bnb_4bit_quant_storage='bfloat16' .* expected uint8; use"),
        ({**EIGHT, "llm_int8_has_fp16_weight": True}, "llm_int8_has_fp16_weight=True .* expected false"),
        ({**FOUR, "other": 1}, "other=1 is not known of bitsandbytes"),
    ],
)
def test_other_schemes_are_refused_by_key(scheme: dict[str, Any], message: str) -> None:
    with pytest.raises(CompileError, match=f"quantization_config: {message}"):
        scheme_of({"quantization_config": scheme})


@pytest.mark.parametrize("method", ["torchao", "hqq", "quanto", "aqlm", "eetq", None])
def test_other_methods_are_refused_by_name(method: str | None) -> None:
    with pytest.raises(CompileError, match=rf"already quantised \({method!r}\).* save the model from transformers"):
        scheme_of({"quantization_config": {"quant_method": method}})
