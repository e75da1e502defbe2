"""Checkpoints of compressed-tensors compile to what the values do that their codes stand for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from coded_checkpoints import MODULE, Coded, compiled, edited, torch, without, write

from tcim_lite.hmm import read
from tcim_lite.models.checkpoints.checkpoint import Checkpoint
from tcim_lite.models.checkpoints.quantized.table import decoded, scheme_of
from tcim_lite.models.common.errors import CheckpointError, CompileError
from tcim_lite.models.weights.packing import unpack

pytestmark = pytest.mark.oracle


def scheme(form: str, weights: dict[str, Any], **changes: Any) -> dict[str, Any]:
    inputs = {"num_bits": 8, "type": "float", "dynamic": True, "strategy": "token"}
    group = {"targets": ["Linear"], "weights": weights, "input_activations": inputs, "output_activations": None}
    return {
        "quant_method": "compressed-tensors",
        "format": form,
        "config_groups": {"group_0": group},
        "ignore": ["lm_head", "re:.*mlp.gate$"],
        "kv_cache_scheme": None,
        "quantization_status": "compressed",
        "global_compression_ratio": 1.5,
        **changes,
    }


def args(bits: int, kind: str, strategy: str, size: int | None = None, symmetric: bool = True, **more: Any) -> Any:
    return {
        "num_bits": bits,
        "type": kind,
        "symmetric": symmetric,
        "strategy": strategy,
        "group_size": size,
        "block_structure": None,
        "dynamic": False,
        "actorder": None,
        "observer": "minmax",
        "observer_kwargs": {},
        **more,
    }


def repeated(scales, shape):
    """A grid of scales to all elements of a matrix, with smaller blocks at its ends."""
    rows, columns = (-(-size // count) for size, count in zip(shape, scales.shape, strict=True))
    return scales.float().repeat_interleave(rows, 0).repeat_interleave(columns, 1)[: shape[0], : shape[1]]


def floats8(grid, dtype=torch.bfloat16, shape=None):
    def encode(weight):
        scales = (torch.rand(*grid(weight)) * 0.001 + 0.0005).to(dtype)
        codes = (weight / repeated(scales, weight.shape)).clamp(-448, 448).to(torch.float8_e4m3fn)
        parts = {".weight": codes, ".weight_scale": scales.reshape(shape or scales.shape), ".input_scale": scales[0]}
        return parts, codes.float() * repeated(scales, weight.shape)

    return encode


def words(codes, bits):
    """[a, b] in 0..2^bits - 1 -> int32 [a, ceil(b / (32 / bits))], the first lowest."""
    each = 32 // bits
    padded = torch.nn.functional.pad(codes.long(), (0, -codes.shape[1] % each)).unflatten(1, (-1, each))
    total = (padded << torch.arange(0, 32, bits)).sum(-1)
    return torch.where(total >= 1 << 31, total - (1 << 32), total).to(torch.int32)


def integers(bits=4, size=32, symmetric=True, packed=True, order=None):
    """`order`: that of the inputs by activation, which gives each a group."""

    def encode(weight):
        outputs, inputs = weight.shape
        groups = 1 if size is None else -(-inputs // size)
        half = 1 << (bits - 1)
        codes = torch.randint(-half, half, weight.shape)
        scales = (torch.rand(outputs, groups) * 0.01 + 0.001).to(torch.bfloat16)
        zeros = torch.zeros(outputs, groups) if symmetric else torch.randint(-half, half, (outputs, groups))
        group_of = torch.arange(inputs) // (size or inputs)
        if order == "group":
            group_of = group_of[torch.randperm(inputs)]
        parts = {".weight_scale": scales}
        if packed:
            parts |= {".weight_packed": words(codes + half, bits), ".weight_shape": torch.tensor([outputs, inputs])}
            if not symmetric:
                parts[".weight_zero_point"] = words((zeros + half).T, bits).T
        else:
            parts[".weight"] = codes.to(torch.int8)
            if not symmetric:
                parts[".weight_zero_point"] = zeros.to(torch.int8)
        if order:
            parts[".weight_g_idx"] = (group_of if order == "group" else torch.full((inputs,), -1)).to(torch.int32)
        return parts, (codes - zeros[:, group_of]) * scales.float()[:, group_of]

    return encode


def nvfp4(weight):
    sizes = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    codes = torch.randint(0, 16, weight.shape)
    scales = (torch.rand(weight.shape[0], weight.shape[1] // 16) * 400).to(torch.float8_e4m3fn)
    whole = torch.tensor([12345.6])
    packed = (codes[:, 0::2] | codes[:, 1::2] << 4).to(torch.uint8)
    parts = {".weight_packed": packed, ".weight_scale": scales, ".weight_global_scale": whole}
    signed = torch.where(codes < 8, 1, -1) * sizes[codes % 8]
    return {**parts, ".input_global_scale": whole}, signed * repeated(scales.float() / whole, weight.shape)


CASES = {
    "fp8 tensor": (scheme("float-quantized", args(8, "float", "tensor")), floats8(lambda _: (1, 1), shape=(1,))),
    "fp8 channel": (scheme("float-quantized", args(8, "float", "channel")), floats8(lambda w: (len(w), 1))),
    "fp8 block": (
        scheme("float-quantized", args(8, "float", "block", block_structure=[32, 32])),
        floats8(lambda w: (len(w) // 32, w.shape[1] // 32), torch.float32),
    ),
    "naive fp8": (scheme("naive-quantized", args(8, "float", "tensor")), floats8(lambda _: (1, 1), torch.float32, ())),
    "w4a16": (scheme("pack-quantized", args(4, "int", "group", 32)), integers()),
    "w4a16 channel": (scheme("pack-quantized", args(4, "int", "channel")), integers(size=None)),
    "w4a16 odd group": (scheme("pack-quantized", args(4, "int", "group", 40)), integers(size=40)),
    "w4a16 zeros": (scheme("pack-quantized", args(4, "int", "group", 64, False)), integers(4, 64, False)),
    "w4a16 order": (scheme("pack-quantized", args(4, "int", "group", 32, actorder="group")), integers(order="group")),
    "w4a16 no order": (scheme("pack-quantized", args(4, "int", "group", 32, actorder="static")), integers(order="-1")),
    "w8a16": (scheme("pack-quantized", args(8, "int", "channel", -1)), integers(8, None)),
    "w8a16 zeros": (scheme("pack-quantized", args(8, "int", "group", 32, False)), integers(8, 32, False)),
    "w8a8": (scheme("int-quantized", args(8, "int", "channel")), integers(8, None, packed=False)),
    "w8a8 zeros": (scheme("int-quantized", args(8, "int", "channel", None, False)), integers(8, None, False, False)),
    "naive w4": (scheme("naive-quantized", args(4, "int", "group", 32)), integers(packed=False)),
    "nvfp4": (scheme("nvfp4-pack-quantized", args(4, "float", "tensor_group", 16)), nvfp4),
}
W4A16 = CASES["w4a16 zeros"][0]


@pytest.mark.parametrize("case", CASES)
def test_values(tmp_path: Path, case: str) -> None:
    torch.manual_seed(3)
    given, encode = CASES[case]
    coded = Coded("qwen3", given, encode, hidden_size=192, intermediate_size=320)
    got, want = coded.both(tmp_path)
    assert got == want
    coded.check_rows(tmp_path)


@pytest.mark.parametrize("case", ["fp8 channel", "w4a16 zeros", "w8a8"])
def test_experts_and_chunks_of_rows(tmp_path: Path, case: str) -> None:
    torch.manual_seed(4)
    given, encode = CASES[case]
    got, want = Coded("qwen3_moe", given, encode).both(tmp_path, quant="w8a8h1_sefp")
    assert got == want


@pytest.mark.parametrize(("size", "kept"), [(64, True), (128, True), (None, True), (32, False)])
def test_codes_of_four_bits_are_kept_where_they_fit(tmp_path: Path, size: int | None, kept: bool) -> None:
    torch.manual_seed(5)
    given = scheme("pack-quantized", args(4, "int", "group" if size else "channel", size))
    coded = Coded("qwen3", given, integers(size=size), hidden_size=256, intermediate_size=384, head_dim=64)
    folder = write(tmp_path / "coded", coded.config, coded.tensors)
    store = read(next(compiled(folder, quant="w4a8h0_ssfp").glob("*.hmw")))
    (entry,) = (entry for entry in store.weights if entry.name == "layers.1.mlp.down_proj.weight")
    codes, scales = unpack(store.weight_bytes(entry), entry.format, *entry.shape)
    values = torch.from_numpy(codes * np.repeat(scales.astype(np.float32), 64, axis=1))
    assert torch.equal(values, coded.floats[f"{MODULE}.weight"]) == kept


def test_codes_are_kept_where_fp16_holds_all_scales(tmp_path: Path) -> None:
    """As it holds those of bf16 here."""
    coded = Coded("qwen3", scheme("pack-quantized", args(4, "int", "group", 64)), integers(size=64))
    scales = coded.tensors[f"{MODULE}.weight_scale"].float()
    scales[3, 1] += 2.0**-20
    coded.tensors[f"{MODULE}.weight_scale"] = scales
    store = decoded(Checkpoint(write(tmp_path / "coded", coded.config, coded.tensors)), coded.config)
    assert not store.has_codes(f"{MODULE}.weight")
    assert store.has_codes(f"{MODULE}.weight".replace("layers.1", "layers.0"))


def test_groups_by_target(tmp_path: Path) -> None:
    """A name or a pattern goes before the class; what is ignored is stored as floats."""
    groups = {
        "all": {"targets": ["Linear"], "weights": args(8, "float", "channel"), "format": "float-quantized"},
        "mlp": {
            "targets": [r"re:.*mlp\.(gate|up)_proj$", "model.layers.1.mlp.down_proj"],
            "weights": args(4, "int", "group", 32),
            "format": "pack-quantized",
        },
        "attention": {"targets": ["re:.*self_attn$"], "weights": None},
    }
    given = scheme("mixed-precision", {}, config_groups=groups, ignore=["re:.*layers.0.self_attn.*"])
    coded = Coded("qwen3", given, lambda weight: ({".weight": weight}, weight))
    for name in [name for name in coded.floats if name.endswith("_proj.weight")]:
        if "gate" in name or "up_" in name or "1.mlp.down" in name:
            coded.encode(name, integers())
        elif "layers.0.self_attn" not in name:
            coded.encode(name, CASES["fp8 channel"][1])
    got, want = coded.both(tmp_path)
    assert got == want


@pytest.mark.filterwarnings("ignore:.*does not ask for")
@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (without("weight_scale"), rf"'{MODULE}\.weight_packed' .* has dtype I32, but no '{MODULE}\.weight_scale' is"),
        (without("weight_zero_point"), rf"has no tensor '{MODULE}\.weight_zero_point'"),
        (without("weight_shape"), rf"has no tensor '{MODULE}\.weight_shape'"),
        (without("weight_packed"), rf"has no tensor '{MODULE}\.weight'"),
        (edited("weight_packed", lambda w: w[:, :-1]), r"packed' .* has shape \[192, 39\], expected \[192, 40\]"),
        (edited("weight_packed", lambda w: w[:-1]), r"weight_shape' .* \[192, 320\], expected \[191, the inputs\]"),
        (edited("weight_packed", lambda w: w.flatten()), r"weight_packed' .* has shape \[7680\], expected a matrix"),
        (edited("weight_packed", lambda w: w.view(torch.uint8)), "dtype U8, but .* integers of 4 bits, expected I32"),
        (edited("weight_shape", lambda s: s * 0 - 1), r"says \[-1, -1\], expected \[192, the inputs\]"),
        (edited("weight_shape", lambda s: s * torch.tensor([1, 1 << 40])), r"says \[192, \d+\], expected \[192"),
        (edited("weight_shape", lambda s: s.float()), "weight_shape' .* has dtype F32, expected one of I64"),
        (edited("weight_shape", lambda s: s + torch.tensor([0, 64])), r"has shape \[192, 40\], expected \[192, 48\]"),
        (edited("weight_scale", lambda s: s[:, :-1]), r"weight_scale' .* has shape \[192, 4\], expected \[192, 5\]"),
        (edited("weight_scale", lambda s: s * float("nan")), "weight_scale' .* holds NaN or infinity"),
        (edited("weight_scale", lambda s: s * 0), "weight_scale' .* holds a scale of zero"),
        (edited("weight_zero_point", lambda z: z[1:]), r"weight_zero_point' .* \[23, 5\], expected \[24, 5\]"),
        (
            lambda t: t.update({f"{MODULE}.weight_g_idx": torch.full((320,), 5, dtype=torch.int32)}),
            "weight_g_idx' .* names groups up to 5, expected them below 5",
        ),
        (
            lambda t: t.update({f"{MODULE}.weight_g_idx": torch.zeros(0, dtype=torch.int32)}),
            r"weight_g_idx' .* has shape \[0\], expected \[320\]",
        ),
    ],
)
def test_bad_tensors_are_named(tmp_path: Path, edit: Any, message: str) -> None:
    coded = Coded("qwen3", W4A16, integers(4, 64, False), hidden_size=192, intermediate_size=320)
    edit(coded.tensors)
    with pytest.raises(CheckpointError, match=message):
        compiled(write(tmp_path / "coded", coded.config, coded.tensors))


@pytest.mark.parametrize(
    ("what", "value", "message"),
    [
        ("weight_global_scale", 0.0, r"weight_global_scale' .* holds a scale of zero"),
        ("weight_global_scale", float("inf"), r"weight_global_scale' .* holds NaN or infinity"),
        ("weight_scale", float("nan"), r"weight_scale' .* holds NaN or infinity"),
    ],
)
def test_bad_scales_of_nvfp4_are_named(tmp_path: Path, what: str, value: float, message: str) -> None:
    coded = Coded("qwen3", *CASES["nvfp4"])
    name = f"{MODULE}.{what}"
    coded.tensors[name] = torch.full_like(coded.tensors[name].float(), value).to(coded.tensors[name].dtype)
    with pytest.raises(CheckpointError, match=message):
        compiled(write(tmp_path / "coded", coded.config, coded.tensors))


def test_a_module_that_no_target_names(tmp_path: Path) -> None:
    group = {"weights": args(4, "int", "group", 32)}
    groups = {name: {**group, "targets": [f"re:.*{name}.*"]} for name in ("self_attn", "gate_proj")}
    coded = Coded("qwen3", scheme("pack-quantized", {}, config_groups=groups), integers())
    with pytest.raises(CheckpointError, match=r"no target of config_groups is 'model.layers.0.mlp.(up|down)_proj'"):
        compiled(write(tmp_path / "coded", coded.config, coded.tensors))


def group_of(**changes: Any) -> dict[str, Any]:
    return {"config_groups": {"group_0": {"targets": ["Linear"], "weights": args(4, "int", "group", 32), **changes}}}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": "marlin-24"}, "format='marlin-24' is not supported of compressed-tensors, expected dense or"),
        ({"sparsity_config": {"format": "sparse-24-bitmask"}}, "sparsity_config=.* is not supported"),
        ({"transform_config": {"config_groups": {}}}, "transform_config=.* is not supported"),
        ({"config_groups": {}}, "config_groups={} is not supported"),
        ({"config_groups": {"W4A16": ["Linear"]}}, r"config_groups.W4A16 is \['Linear'\], expected an object"),
        (group_of(output_activations={"num_bits": 8}), "config_groups.group_0: output_activations=.* is not known"),
        (group_of(weights=args(3, "int", "group", 32)), "group_0.weights: num_bits=3 is not supported.* 4 or 8"),
        (group_of(weights=args(4, "int", "group", 0)), "group_size=0 is not supported"),
        (group_of(weights=args(4, "int", "group", -1)), "strategy='group' with group_size=-1, expected a positive"),
        (group_of(weights=args(8, "float", "block")), "strategy='block' without block_structure"),
        (group_of(weights=args(4, "float", "group", 32)), "num_bits=4 and type='float' with strategy='group' and"),
        (group_of(weights=args(8, "float", "channel", None, False)), "symmetric=False with type='float' is not"),
        (group_of(weights=args(4, "int", "group", 32, lattice=8)), "lattice=8 is not known of compressed-tensors"),
        (group_of(targets=["re:("]), r"the target 're:\(' is no regular expression"),
        ({"ignore": "lm_head"}, "ignore='lm_head' is not supported"),
    ],
)
def test_other_schemes_are_refused_by_key(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(CompileError, match=f"quantization_config: .*{message}|quantization_config.*{message}"):
        scheme_of({"quantization_config": {**W4A16, **changes}})
