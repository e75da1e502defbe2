"""Experts that a checkpoint packs into one tensor, in MXFP4 or as floats: gpt-oss, Qwen3-VL."""

from __future__ import annotations

import json
import warnings

import ml_dtypes
import numpy as np
import pytest
from compile_memory import compile_peak
from family_checkpoints import family_tensors
from safetensors.numpy import save_file

from tcim_lite import hmm
from tcim_lite.models.common.errors import CheckpointError, CompileError
from tcim_lite.models.compiler import CompileOptions, compile_checkpoint
from tcim_lite.models.families import FAMILIES, read_config
from tcim_lite.models.weights.packing import unpack

CONFIG = FAMILIES["gpt_oss"].tiny_config
CODED = {**CONFIG, "quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]}}


def compile_package(source, output, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compile_checkpoint(
            CompileOptions(checkpoint=source, output=output, prefill_length=8, context_length=64, **options)
        )
    return output


def packed(tensors, config, coded):
    """The tensors of `family_tensors` as a checkpoint holds them, experts in MXFP4 where `coded`; and these values."""
    read = read_config(config)
    kept = {name: tensor for name, tensor in tensors.items() if ".experts." not in name}
    values = {}
    random = np.random.default_rng(2)
    for layer in range(read.num_layers):
        base = f"model.layers.{layer}.mlp.experts"
        for which in ("gate_up", "down"):
            parts = [f"{part}_proj" for part in which.split("_")]

            def whole(expert, what, base=base, parts=parts):
                """Rows of gate and up in turns."""
                rows = np.stack([tensors[f"{base}.{expert}.{part}.{what}"] for part in parts], axis=1)
                return rows.reshape(-1, *rows.shape[2:])

            weights = np.stack([whole(expert, "weight") for expert in range(read.experts.count)])
            kept[f"{base}.{which}_proj_bias"] = np.stack([whole(e, "bias") for e in range(read.experts.count)])
            if coded:
                groups = (*weights.shape[:2], weights.shape[2] // 32)
                blocks = random.integers(0, 256, (*groups, 16), dtype=np.uint8)
                scales = random.integers(118, 124, groups, dtype=np.uint8)
                kept[f"{base}.{which}_proj_blocks"], kept[f"{base}.{which}_proj_scales"] = blocks, scales
                sizes = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)
                nibbles = np.stack((blocks % 16, blocks // 16), axis=-1).reshape(*groups, 32)
                numbers = (
                    np.where(nibbles < 8, 1, -1) * sizes[nibbles % 8] * np.float32(2.0) ** (scales[..., None] - 127.0)
                )
                weights = numbers.reshape(weights.shape).astype(np.float32)
            else:
                kept[f"{base}.{which}_proj"] = np.ascontiguousarray(weights.transpose(0, 2, 1))
            values[f"{base}.{which}"] = weights
    return kept, values


def checkpoint(folder, config, tensors):
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    save_file(tensors, folder / "model.safetensors")
    return folder


@pytest.mark.parametrize("quant", ["float32", "w4a8h0_ssfp"])
def test_experts_may_be_packed_as_floats_or_by_themselves(tmp_path, quant):
    tensors = family_tensors(CONFIG)
    forms = {"own": tensors, "packed": packed(tensors, CONFIG, False)[0]}
    files = []
    for name, form in forms.items():
        folder = checkpoint(tmp_path / name, CONFIG, form)
        compile_package(folder, tmp_path / f"{name}_out", quant=quant)
        files.append((tmp_path / f"{name}_out" / "gpt_oss.hmw").read_bytes())
    assert files[0] == files[1]


@pytest.mark.parametrize("sizes", [(192, 64), (192, 96), (128, 128)], ids=["", "square gate_up", "square down"])
def test_qwen3_vl_files_have_inputs_first_or_outputs_first(tmp_path, sizes):
    hidden, inner = sizes
    config = FAMILIES["qwen3_vl_moe"].tiny_config | {"hidden_size": hidden, "moe_intermediate_size": inner}
    tensors = family_tensors(config)
    kept = {name: tensor for name, tensor in tensors.items() if ".experts." not in name}
    forms = {"own": dict(tensors), "published": dict(kept), "written by transformers 5": dict(kept)}
    for layer in range(config["num_hidden_layers"]):
        base = f"model.layers.{layer}.mlp.experts"

        def of(expert, parts, base=base):
            return np.concatenate([tensors[f"{base}.{expert}.{part}_proj.weight"] for part in parts])

        for which in ("gate_up", "down"):
            rows = np.stack([of(expert, which.split("_")) for expert in range(config["num_experts"])])
            forms["written by transformers 5"][f"{base}.{which}_proj"] = rows
            forms["published"][f"{base}.{which}_proj"] = np.ascontiguousarray(rows.transpose(0, 2, 1))
    files = []
    for name, form in forms.items():
        renamed = {name.replace("model.", "model.language_model.", 1): tensor for name, tensor in form.items()}
        folder = checkpoint(tmp_path / name, config, renamed)
        compile_package(folder, tmp_path / f"{name}_out", quant="float32")
        files.append((tmp_path / f"{name}_out" / "qwen3_vl_moe.hmw").read_bytes())
    assert files[0] == files[1] == files[2]


def test_mxfp4_goes_into_mxfp4_without_a_change_of_value(tmp_path):
    """And is what transformers makes of the same blocks and scales."""
    tensors, values = packed(family_tensors(CODED), CODED, True)
    folder = checkpoint(tmp_path / "hf", CODED, tensors)
    compile_package(folder, tmp_path / "out", quant="mxfp4a8")
    store = hmm.read(tmp_path / "out" / "gpt_oss.hmw")
    entries = {entry.name: entry for entry in store.weights}
    for layer in range(2):
        for which, name in (("gate_up", "gate_up"), ("down", "down_proj")):
            entry = entries[f"layers.{layer}.mlp.experts.{name}.weight"]
            each = np.frombuffer(store.weight_bytes(entry), np.uint8).reshape(entry.shape[0], -1)
            wanted = values[f"model.layers.{layer}.mlp.experts.{which}"]
            for data, want in zip(each, wanted, strict=True):
                codes, exponents = unpack(data, entry.format, *entry.shape[1:])
                got = codes * np.float32(2.0) ** np.repeat(exponents.astype(np.float32), 32, axis=1)
                if which == "gate_up":  # blocks of 16 rows of gate and of up
                    got = got.reshape(-1, 2, 16, got.shape[1]).transpose(0, 2, 1, 3).reshape(-1, got.shape[1])
                np.testing.assert_array_equal(got[: want.shape[0], : want.shape[1]], want)


@pytest.mark.oracle
def test_mxfp4_stands_for_what_transformers_says(tmp_path):
    torch = pytest.importorskip("torch", reason="oracle")
    convert = pytest.importorskip("transformers.integrations.mxfp4", reason="oracle").convert_moe_packed_tensors
    tensors, values = packed(family_tensors(CODED), CODED, True)
    for name in ("model.layers.0.mlp.experts.gate_up", "model.layers.1.mlp.experts.down"):
        parts = [torch.from_numpy(tensors[f"{name}_proj_{part}"]) for part in ("blocks", "scales")]
        oracle = convert(*parts, dtype=torch.float32).numpy()  # inputs first
        np.testing.assert_array_equal(oracle.transpose(0, 2, 1), values[name])
    floats = {name: tensor for name, tensor in tensors.items() if not name.endswith(("_blocks", "_scales"))}
    floats |= {f"{name}_proj": np.ascontiguousarray(value.transpose(0, 2, 1)) for name, value in values.items()}
    files = []
    for name, config, form in (("coded", CODED, tensors), ("floats", CONFIG, floats)):
        compile_package(checkpoint(tmp_path / name, config, form), tmp_path / f"{name}_out", quant="float32")
        files.append((tmp_path / f"{name}_out" / "gpt_oss.hmw").read_bytes())
    assert files[0] == files[1]


def without(name):
    return lambda tensors: tensors.pop(name)


def cut(name, *index):
    def edit(tensors):
        tensors[name] = np.ascontiguousarray(tensors[name][index])

    return edit


def of_another_dtype(tensors):
    tensors["model.layers.0.mlp.experts.down_proj_scales"] = tensors[
        "model.layers.0.mlp.experts.down_proj_scales"
    ].astype(np.float16)


def no_number(tensors):
    tensors["model.layers.0.mlp.experts.down_proj_scales"][3, 7, 1] = 255


EXPERTS, ALL = "model.layers.1.mlp.experts", slice(None)


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (without("model.layers.1.mlp.router.bias"), r"no tensor 'model.layers.1.mlp.router.bias'"),
        (without("model.layers.0.self_attn.sinks"), r"no tensor 'model.layers.0.self_attn.sinks'"),
        (without(f"{EXPERTS}.gate_up_proj_blocks"), rf"no tensor '{EXPERTS}.gate_up_proj_blocks'"),
        (without(f"{EXPERTS}.down_proj_scales"), rf"no tensor '{EXPERTS}.down_proj_scales'"),
        (without(f"{EXPERTS}.down_proj_bias"), rf"no tensor '{EXPERTS}.down_proj_bias'"),
        (
            cut(f"{EXPERTS}.down_proj_blocks", slice(7)),
            rf"'{EXPERTS}.down_proj_blocks' .* has shape \[7, 192, 10, 16\], expected \[8, 192, 10, 16\]",
        ),
        (
            cut(f"{EXPERTS}.gate_up_proj_blocks", ALL, ALL, slice(5)),
            rf"'{EXPERTS}.gate_up_proj_blocks' .* has shape \[8, 640, 5, 16\], expected \[8, 640, 6, 16\]",
        ),
        (
            cut(f"{EXPERTS}.gate_up_proj_scales", ALL, slice(639)),
            rf"'{EXPERTS}.gate_up_proj_scales' .* has shape \[8, 639, 6\], expected \[8, 640, 6\]",
        ),
        (
            cut(f"{EXPERTS}.gate_up_proj_bias", slice(7)),
            rf"'{EXPERTS}.gate_up_proj_bias' .* has shape \[7, 640\], expected \[8, 640\]",
        ),
        (
            cut("model.layers.1.mlp.router.weight", slice(7)),
            r"'model.layers.1.mlp.router.weight' .* has shape \[7, 192\], expected \[8, 192\]",
        ),
        (of_another_dtype, r"'model.layers.0.mlp.experts.down_proj_scales' .* has dtype F16, expected one of U8"),
        (no_number, r"'model.layers.0.mlp.experts.down_proj_scales' holds 255, which stands for NaN"),
    ],
)
def test_checkpoints_that_do_not_fit_are_named(tmp_path, edit, message):
    tensors, _ = packed(family_tensors(CODED), CODED, True)
    edit(tensors)
    with pytest.raises(CheckpointError, match=message):
        compile_package(checkpoint(tmp_path / "hf", CODED, tensors), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_file_that_ends_in_the_blocks_is_named(tmp_path):
    tensors, _ = packed(family_tensors(CODED), CODED, True)
    folder = checkpoint(tmp_path / "hf", CODED, tensors)
    whole = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(CheckpointError, match=r"tensor '.*' ends at byte \d+, the file has \d+ of \d+"):
        compile_package(folder, tmp_path / "out")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_experts_per_tok": 9}, "num_experts_per_tok=9 is more than the 8 experts of a layer"),
        ({"num_local_experts": None}, "config.json has no 'num_local_experts'"),
        ({"swiglu_limit": 0}, "swiglu_limit must be a positive number"),
        ({"layer_types": ["sliding_attention"]}, "layer_types must name 2 attention layers"),
        ({"quantization_config": {"quant_method": "hqq"}}, "already quantised"),
    ],
)
def test_configs_that_cannot_be(changes, message):
    with pytest.raises(CompileError, match=message):
        read_config(CONFIG | changes)


def test_a_window_as_long_as_the_context_is_none(tmp_path):
    """Of the layers that have one; the others see everything anyway."""
    files = []
    for window in (64, None):
        (tmp_path / f"{window}").mkdir()
        (tmp_path / f"{window}" / "config.json").write_text(json.dumps(CONFIG | {"sliding_window": window}))
        package = compile_package(tmp_path / f"{window}", tmp_path / f"out{window}", random_weights=True)
        files.append((package / "gpt_oss_decode.hmm").read_bytes())
    assert files[0] == files[1]


@pytest.mark.slow
def test_a_checkpoint_is_never_in_memory_as_a_whole(tmp_path):
    """100 MB of experts, in tensors of 34 MB."""
    layers, experts, hidden, inner = 2, 8, 1024, 1024
    config = CONFIG | {"hidden_size": hidden, "intermediate_size": inner, "num_local_experts": experts}
    config["num_hidden_layers"] = layers
    small = family_tensors(config | {"intermediate_size": 16})
    tensors = {name: value for name, value in small.items() if ".experts." not in name}
    for layer in range(layers):
        base = f"model.layers.{layer}.mlp.experts"
        for which, rows, inputs in (("gate_up", 2 * inner, hidden), ("down", hidden, inner)):
            part = np.random.default_rng(layer).standard_normal((inputs, rows), np.float32).astype(ml_dtypes.bfloat16)
            tensors[f"{base}.{which}_proj"] = np.broadcast_to(part, (experts, inputs, rows)).copy()
            tensors[f"{base}.{which}_proj_bias"] = np.zeros((experts, rows), np.float32)
    folder = checkpoint(tmp_path / "hf", config, tensors)
    assert (folder / "model.safetensors").stat().st_size > 100_000_000
    grown = compile_peak(folder, tmp_path / "out", prefill_length=8, context_length=64)
    assert grown < 60_000_000, grown
