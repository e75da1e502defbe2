"""Packages whose activations are rounded to the vendor's block format: which, and the same bits everywhere."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import warm_python
from isas import FLAGS

import tcim_lite.runtime as rt
from tcim_lite.cli import main
from tcim_lite.hmm import read
from tcim_lite.models.common.errors import CompileError
from tcim_lite.models.reference.model import Reference, ReferenceCache

Make = Callable[..., Path]
TOKENS = [5, 81, 0, 33, 7, 7, 60]


# -- packages


def logits_of(package: Path) -> np.ndarray:
    """The logits of the last of TOKENS by the runtime, prefill in one chunk."""
    module = rt.load(package / "qwen3_prefill.hmm")
    hidden = np.fromfile(package / "hmquant/quant_embedding.bin", np.float16).reshape(83, 64)
    rows = np.zeros((1, 8, 64), np.float16)
    rows[0, : len(TOKENS)] = hidden[TOKENS]
    module.set_input("input_1", rows)
    module.set_input("valid_length", 0)
    module.set_input("current_length", len(TOKENS))
    module.run(True)
    return module.get_output("logits").numpy().reshape(-1)


@pytest.mark.parametrize("quant", ["w4a8h0_ssfp", "w8a8h1_sefp"])
def test_a_package_says_that_its_activations_are_rounded_so_and_they_are(
    make_checkpoint: Make, make_package: Make, quant: str
) -> None:
    checkpoint = make_checkpoint()
    plain = make_package(checkpoint, quant=quant)
    package = make_package(checkpoint, quant=quant, activations="hidden_exponent")
    model = read(package / "qwen3_decode.hmm")
    assert json.loads(model.custom_msg)["activations"] == "hidden_exponent"
    linears = [op for op in model.graph.ops if op.kind == "Linear"]
    assert all(op.attributes == {"activations": "hidden_exponent"} for op in linears)
    # The weights and what is not a graph are those of any package, and so is a package without the option.
    assert (package / "qwen3.hmw").read_bytes() == (plain / "qwen3.hmw").read_bytes()
    assert "activations" not in json.loads(read(plain / "qwen3_decode.hmm").custom_msg)
    assert not any(op.attributes for op in read(plain / "qwen3_decode.hmm").graph.ops if op.kind == "Linear")
    explicit = make_package(checkpoint, quant=quant, activations="a8")
    for file in ("qwen3_prefill.hmm", "qwen3_decode.hmm"):
        assert (explicit / file).read_bytes() == (plain / file).read_bytes()

    got, ours = logits_of(package), logits_of(plain)
    for logits, folder in ((got, package), (ours, plain)):
        expected = Reference(folder).run(TOKENS, ReferenceCache())[-1]
        assert np.abs(logits - expected).max() < 0.001 * np.ptp(expected)
    assert np.abs(got - ours).max() > 0.01 * np.ptp(ours)  # so the bound above tells them apart


def run_with(isa: str, package: Path | str) -> subprocess.CompletedProcess[str]:
    """Prints the logits of a package by the kernels of an instruction set; of no package, only has the set chosen."""
    text = """
import os, sys
os.environ["TCIM_LITE_ISA"] = sys.argv[1]
from importlib import resources
from pathlib import Path
import tcim_lite.runtime as rt
if sys.argv[2]:
    sys.path[:0] = sys.argv[3:]
    import test_hidden_exponent
    print(test_hidden_exponent.logits_of(Path(sys.argv[2])).tobytes().hex())
else:
    rt.load(str(resources.files("tcim_lite.conformance") / "models" / "add.hmm")).run(True)
"""
    here = Path(__file__).parent
    return warm_python.run("-c", text, isa, package, here, here.parent)


@pytest.mark.slow
def test_every_instruction_set_gives_the_same_bits(make_checkpoint: Make, make_package: Make) -> None:
    isas = [isa for isa in FLAGS if run_with(isa, "").returncode == 0]
    assert "ref" in isas
    assert len(isas) > 1
    for quant in ("w4a8h0_ssfp", "w8a8h1_sefp"):
        package = make_package(make_checkpoint(), quant=quant, activations="hidden_exponent")
        own = logits_of(package).tobytes().hex()
        assert {isa: run_with(isa, package).stdout.strip() for isa in isas} == dict.fromkeys(isas, own)


def test_prefill_and_decode_agree(make_checkpoint: Make, make_package: Make) -> None:
    package = make_package(make_checkpoint(), activations="hidden_exponent")
    prefill, decode_module = (rt.load(package / f"qwen3_{name}.hmm") for name in ("prefill", "decode"))
    hidden = np.fromfile(package / "hmquant/quant_embedding.bin", np.float16).reshape(83, 64)
    for index in range(3, decode_module.get_num_inputs()):
        name = decode_module.get_input_name(index)
        decode_module.set_input(name, prefill.get_dev_input(name))
    decode_module.set_input("current_length", 1)
    for position, token in enumerate(TOKENS):
        decode_module.set_input("input_1", hidden[token])
        decode_module.set_input("valid_length", position)
        decode_module.run(True)
    assert decode_module.get_output("logits").numpy().tobytes() == logits_of(package).tobytes()


def test_numerics_float_rounds_no_activations(
    make_checkpoint: Make, make_package: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = make_checkpoint()
    packages = [make_package(checkpoint, activations=how) for how in ("a8", "hidden_exponent")]
    monkeypatch.setenv("TCIM_LITE_NUMERICS", "float")
    assert logits_of(packages[0]).tobytes() == logits_of(packages[1]).tobytes()


@pytest.mark.parametrize("quant", ["w4a8h0_ssfp", "w8a8h1_sefp"])
def test_the_environment_asks_any_package_for_it(
    make_checkpoint: Make, make_package: Make, monkeypatch: pytest.MonkeyPatch, quant: str
) -> None:
    checkpoint = make_checkpoint()
    plain, compiled = (make_package(checkpoint, quant=quant, activations=how) for how in ("a8", "hidden_exponent"))
    expected = logits_of(compiled).tobytes()
    assert logits_of(plain).tobytes() != expected
    monkeypatch.setenv("TCIM_LITE_NUMERICS", "hidden_exponent")
    for package in (plain, compiled):
        assert logits_of(package).tobytes() == expected


def test_the_environment_cannot_ask_it_of_mxfp4_and_changes_no_float_package(
    make_checkpoint: Make, make_package: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = make_checkpoint()
    mxfp4, floats = (make_package(checkpoint, quant=quant) for quant in ("mxfp4a8", "float16"))
    expected = logits_of(floats).tobytes()
    monkeypatch.setenv("TCIM_LITE_NUMERICS", "hidden_exponent")
    assert logits_of(floats).tobytes() == expected
    with pytest.raises(rt.UnsupportedError, match=r"TCIM_LITE_NUMERICS=hidden_exponent.*linear_mxfp4.*unset it"):
        logits_of(mxfp4)


def test_devices_and_stages_of_a_package_round_alike(make_checkpoint: Make, make_package: Make) -> None:
    package = make_package(make_checkpoint(), activations="hidden_exponent", ndevice=2, pipeline=2)
    for file in package.glob("*.hmm*"):
        for graph in read(file).graphs:
            linears = [op for op in graph.ops if op.kind == "Linear"]
            assert linears
            assert all("activations" in op.attributes for op in linears)


@pytest.mark.parametrize(
    "options", [{"quant": "mxfp4a8"}, {"quant": "float16"}, {"head_quant": "mxfp4a8"}, {"draft_quant": "float16"}]
)
def test_profiles_that_have_no_such_activations_are_refused(
    make_checkpoint: Make, make_package: Make, options: dict[str, str]
) -> None:
    with pytest.raises(CompileError, match="--activations hidden_exponent fits --quant w4a8h0_ssfp and w8a8h1_sefp"):
        make_package(make_checkpoint(), activations="hidden_exponent", **options)


def test_a_float16_head_reads_what_it_reads(make_checkpoint: Make, make_package: Make) -> None:
    package = make_package(make_checkpoint(), activations="hidden_exponent", head_quant="float16")
    graph = read(package / "qwen3_decode.hmm").graph
    linears = [op for op in graph.ops if op.kind == "Linear"]
    assert [bool(op.attributes) for op in linears] == [True] * (len(linears) - 1) + [False]


def test_the_command_line_takes_the_option(
    make_checkpoint: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output, small = tmp_path / "out", ["--prefill-length", "8", "--context-length", "64"]
    arguments = ["compile", str(make_checkpoint()), "-o", str(output), "--activations", "hidden_exponent", *small]
    assert main(arguments) == 0
    capsys.readouterr()
    assert main(["inspect", str(output)]) == 0
    assert "activations=hidden_exponent" in capsys.readouterr().out
