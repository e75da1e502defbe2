"""Taps: intermediate values as outputs, without changing any other result."""

from __future__ import annotations

import functools
import os
from pathlib import Path

import numpy as np
import pytest
import warm_python
from isas import X86_64, cpu_has

import tcim_lite.runtime as tcim
from tcim_lite.cli import main
from tcim_lite.errors import TcimError, UnknownNameError

SIZES = {"prefill_length": 16, "context_length": 64}
PROGRAM = Path(__file__).with_name("taps_program.py")


@pytest.fixture(scope="module")
def folders(tiny_package) -> list[str]:
    """Packages with prefill, decode of one slot and of three, experts, sliding windows, and no quantisation."""
    made = [
        tiny_package(quant="w4a8h0_ssfp", **SIZES),
        tiny_package(quant="w8a8h1_sefp", batch=3, **SIZES),
        tiny_package(quant="float32", **SIZES),
        tiny_package("qwen3_moe", quant="w4a8h0_ssfp", **SIZES),
        tiny_package("gpt_oss", quant="mxfp4a8", **SIZES),
    ]
    return [str(package.folder) for package in made]


@pytest.fixture(scope="module")
def digests(folders):
    """By instruction set: what the program prints."""

    @functools.cache
    def digest(isa: str) -> list[list[str]]:
        environment = os.environ | {"TCIM_LITE_ISA": isa, "TCIM_LITE_THREADS": "2"}
        done = warm_python.run(PROGRAM, *folders, env=environment)
        assert done.returncode == 0, done.stderr
        return [line.split("\t") for line in done.stdout.splitlines()]

    return digest


@pytest.mark.parametrize("isa", ["ref", *X86_64])
def test_taps_change_no_result_on_any_instruction_set(digests, isa):
    if not cpu_has(isa):
        pytest.skip(f"this CPU has no {isa}")
    lines = digests(isa)
    assert lines == digests("ref")  # taps included
    untapped = ""
    for file, choice, taps, digest in lines:
        if choice == "none":
            untapped = digest
        elif choice != "taps":
            assert digest == untapped, f"{file}: {choice} changes outputs or caches"
            assert int(taps) > 0 or choice == "one layer", f"{file}: {choice} taps nothing"


@pytest.fixture
def decode(tiny_package):
    return tiny_package(quant="w4a8h0_ssfp", **SIZES).decode_path


def test_taps_are_found_by_name_and_not_counted(decode):
    plain, module = tcim.load(decode), tcim.load(decode, tcim.Option().set_taps(["layers.1.attn.q*", "add_?"]))
    assert plain.taps() == []
    assert module.get_num_outputs() == plain.get_num_outputs() == 1
    assert module.get_output_name(0) == "logits"
    with pytest.raises(TcimError, match=r"index 1 is outside 0 \.\. 0"):
        module.get_output_name(1)
    assert module.taps() == [
        "tap:add_0",
        "tap:add_1",
        *(f"tap:layers.1.attn.{name}" for name in ("qkv", "q_flat", "q_heads", "q_norm", "q")),
        "tap:add_2",
        "tap:add_3",
    ]
    info = module.get_output_info("tap:layers.1.attn.q")
    assert (info.shape, info.name) == ((1, 1, 6, 64), "tap:layers.1.attn.q")
    assert "tap:" not in repr(module)
    with pytest.raises(UnknownNameError, match=r"asked for at load, with Option\.set_taps or TCIM_LITE_TAPS"):
        plain.get_output("tap:add_0")
    with pytest.raises(UnknownNameError, match="the outputs are logits;"):
        module.get_output("tap:layers.0.attn.q")


def test_a_tap_can_be_bound_like_an_output(decode):
    module = tcim.load(decode, tcim.Option().set_taps(["final_norm", "layers.0.attn.v_heads"]))
    module.set_input("input_1", np.linspace(-1, 1, 192, dtype=np.float16))
    module.set_input("current_length", np.array([1], np.int32))
    module.run(sync=True)
    first = {name: module.get_output(name).numpy() for name in module.taps()}
    assert all(np.abs(tap).max() > 0 for tap in first.values())
    for name in module.taps():  # one is computed in place, the other is a view that is copied
        target = module.get_dev_output(name).clone()
        target.set_zero()
        module.set_dev_output(name, target)
        module.run(sync=True)
        np.testing.assert_array_equal(target.numpy(), first[name])


def test_the_environment_asks_for_taps_and_the_option_overrides_it(decode, monkeypatch, capfd):
    monkeypatch.setenv("TCIM_LITE_TAPS", "final_norm,nothing_*,,layers.0.attn.m?x")
    assert tcim.load(decode).taps() == ["tap:layers.0.attn.mix", "tap:final_norm"]
    assert "no intermediate value fits 'nothing_*'; ignored" in capfd.readouterr().err
    assert tcim.load(decode, tcim.Option().set_taps([])).taps() == []


def test_outputs_and_caches_are_no_taps(decode):
    names = tcim.load(decode, tcim.Option().set_taps(["*"])).taps()
    assert len(names) == len(set(names)) > 30
    assert not any("cache" in name or "logits" in name for name in names)


def test_patterns_are_checked(decode):
    with pytest.raises(TypeError, match="expected a list of patterns"):
        tcim.Option().set_taps("layers.*")
    with pytest.raises(TypeError, match="tap pattern"):
        tcim.Option().set_taps([3])
    assert "taps=['a*']" in repr(tcim.Option().set_taps(["a*"]))


def test_a_model_for_several_devices_refuses_taps(tiny_package, monkeypatch):
    monkeypatch.setenv("TCIM_LITE_DEVICE_NUM", "2")
    path = tiny_package(quant="w4a8h0_ssfp", ndevice=2, **SIZES).decode_path.with_suffix(".hmms")
    option = tcim.Option(tcim.DevManager([0, 1], "Xh2HalBackend")).set_taps(["add_0"])
    with pytest.raises(TcimError, match=r"has no taps .* load the \.hmm of the same package"):
        tcim.load(path, option)


def test_stored_values_are_tapped_without_another_plan(decode):
    """The steps that a run takes, by name, are those of a run without taps."""

    def steps(patterns: list[str]) -> list[tuple[str, str]]:
        module = tcim.load(decode, tcim.Option().set_taps(patterns))
        module.set_input("current_length", np.array([1], np.int32))
        module._core.time_steps(True)
        module.run(sync=True)
        return [(op, form) for op, form, _ in module._core.step_times()]

    assert steps(["@stored"]) == steps([]) != steps(["*"])
    names = tcim.load(decode, tcim.Option().set_taps(["@stored"])).taps()
    of_layer = [name for name in names if "layers.1." in name]
    assert of_layer == [f"tap:layers.1.{name}" for name in ("attn.qkv", "attn.mix", "mlp.silu_mul")]
    assert [name for name in names if "add_" in name] == [f"tap:add_{index}" for index in range(4)]


def test_inspect_lists_what_can_be_tapped(decode, capsys):
    assert main(["inspect", str(decode), "--taps"]) == 0
    listed = [line for line in capsys.readouterr().out.partition("  taps:\n")[2].splitlines() if line[:4] == " " * 4]
    assert ["tap:" + line.split()[0] for line in listed] == tcim.load(decode, tcim.Option().set_taps(["*"])).taps()
    assert "    layers.0.attn.q  float16 [1, 1, 6, 64]  Rope" in listed
