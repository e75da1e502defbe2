"""The vendor's block format: the codec against a plain one written from docs/numerics.md, and packages that use it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import warm_python
from hypothesis import example, given, settings
from hypothesis import strategies as st
from isas import FLAGS

import tcim_lite.runtime as rt
from tcim_lite.cli import main
from tcim_lite.hmm import read
from tcim_lite.models.common.errors import CompileError
from tcim_lite.models.reference.model import Reference, ReferenceCache
from tcim_lite.models.weights.hidden_exponent import codes_of, decode, encode

Make = Callable[..., Path]
TOKENS = [5, 81, 0, 33, 7, 7, 60]

# Blocks of 64 finite halves. Drawn as bytes, because hypothesis takes as long for a number as for a block of bytes.
TIES = np.array([0, 8, 16, 24, 512, 1016, 1023], np.uint16)


def any_halves(drawn: bytes) -> list[int]:
    bits = np.frombuffer(drawn, np.uint16)
    return np.where(bits & 0x7C00 == 0x7C00, bits & 0xBFFF, bits).tolist()


def near_halves(drawn: bytes, top: int) -> list[int]:
    """Of one magnitude, where codes are large and ties occur."""
    bits, choice = np.frombuffer(drawn, np.uint16).reshape(2, 64)
    exponent = top - (choice & 0xFF) % 9
    mantissa = np.where(choice >> 15, TIES[(choice >> 8 & 0x7F) % len(TIES)], bits & 1023)
    return (bits & 0x8000 | exponent << 10 | mantissa).tolist()


BLOCKS = st.one_of(
    st.binary(min_size=128, max_size=128).map(any_halves),
    st.builds(near_halves, st.binary(min_size=256, max_size=256), st.integers(14, 30)),
)


def plain_block(halves: list[int]) -> list[int]:
    """64 bytes as integers -128..127, from the bits of 64 finite fp16 numbers; integers and fractions alone."""
    exponent = max(max(bits >> 10 & 31 for bits in halves), 1) - 21
    block = []
    for element, bits in enumerate(halves):
        biased, mantissa = bits >> 10 & 31, bits & 1023
        magnitude = Fraction((mantissa + 1024) << (biased - 1) if biased else mantissa, 1 << 24)
        value = -magnitude if bits >> 15 else magnitude
        place = element % 32 - 16
        if place >= 0 and place % 2 == 0:
            code = 2 * round(value / Fraction(2) ** (exponent + 1))  # round takes ties to even
            code = min(code, 126) + (exponent + 127 >> place // 2 & 1)
        else:
            code = min(round(value / Fraction(2) ** exponent), 127)
        assert -128 <= code <= 127
        block.append(code)
    return block


def plain_values(block: list[int]) -> list[Fraction]:
    """What 64 bytes stand for."""
    exponents = []
    for start in (16, 48):
        exponents.append(sum((block[start + 2 * bit] & 1) << bit for bit in range(8)) - 127)
    assert exponents[0] == exponents[1]
    hidden = {start + 2 * bit for start in (16, 48) for bit in range(8)}
    return [
        (code - (code & 1) if element in hidden else code) * Fraction(2) ** exponents[0]
        for element, code in enumerate(block)
    ]


def halves_of(values: list[float]) -> list[int]:
    return np.array(values, np.float16).view(np.uint16).tolist()


@pytest.mark.slow
@settings(max_examples=400)
@given(BLOCKS)
@example([0] * 64)
@example([0x8000] * 64)
@example([1] * 64)  # 2^-24, the smallest
@example([0x7BFF] * 64)
@example([0xFBFF] * 64)
@example(halves_of([i / 2 - 16 for i in range(64)]))
@example(halves_of([-127.5, 127.5] * 32))
@example(halves_of([63.5, -63.5, 64, 127] * 16))
def test_bytes_and_values_are_those_of_the_plain_codec(halves: list[int]) -> None:
    values = np.array(halves, np.uint16).view(np.float16)
    packed = encode(values)
    assert packed.dtype == np.int8
    assert packed.tolist() == plain_block(halves)
    decoded = decode(packed)
    assert [Fraction(float(value)) for value in decoded] == plain_values(packed.tolist())
    codes, exponents = codes_of(values)
    np.testing.assert_array_equal(codes * np.ldexp(1.0, exponents), decoded)
    # Half a step for most, a whole one where codes are even; at the upper end one more, 127 or 126 being the last.
    steps = np.where(np.isin(np.arange(64) % 32, range(16, 32, 2)), 2, 1) * np.ldexp(1.0, exponents)
    assert (np.abs(decoded - values) <= steps * np.where(decoded > 0, 1, 0.5)).all()


@given(BLOCKS)
def test_what_was_decoded_encodes_to_the_same_bytes(halves: list[int]) -> None:
    """But where -128 became the largest magnitude, which is the next power of two."""
    values = np.array(halves, np.uint16).view(np.float16)
    packed, codes = encode(values), codes_of(values)[0]
    if codes.min() > -128:
        np.testing.assert_array_equal(encode(decode(packed)), packed)


def test_corners_of_the_format() -> None:
    x = np.zeros(192, np.float32)
    x[:4] = (1.0, -0.5, 1 / 128, -1.999)  # step 2^-6: 0.5 and 127.9 steps
    x[16:20] = (1.0, 1 / 64, 3 / 64, 1 / 32)  # 64, 1, 3 and 2 steps
    x[64] = 6e-8  # a group of subnormals stays at 2^-20
    codes, exponents = codes_of(x)
    assert exponents.tolist() == [-6, -20, -20]
    assert codes[:4].tolist() == [64, -32, 0, -128]
    assert codes[16:20].tolist() == [64, 1, 4, 2]  # element 18 is even: 3 is a tie between 2 and 4
    assert not codes[64:].any()
    packed = encode(x)
    assert [byte & 1 for byte in packed[16:32:2]] == [(121 >> bit) & 1 for bit in range(8)]  # 121 = 127 - 6
    assert packed[64:].tolist() == [107 >> (i % 32 - 16) // 2 & 1 if i % 32 >= 16 and i % 2 == 0 else 0
                                    for i in range(128)]  # fmt: skip


def test_what_is_beyond_fp16_saturates_and_a_nan_is_refused() -> None:
    values = np.full(64, 1.0, np.float32)
    values[:3] = (np.inf, -np.inf, 1e30)
    np.testing.assert_array_equal(encode(values)[:3], [127, -128, 127])
    values[5] = np.nan
    with pytest.raises(ValueError, match=r"a NaN has no code.*replace it before"):
        encode(values)


def test_an_axis_is_padded_with_zeros() -> None:
    values = np.random.default_rng(1).standard_normal((3, 2, 70)).astype(np.float16)
    packed = encode(values)
    assert packed.shape == (3, 2, 128)
    whole = np.concatenate((values, np.zeros((3, 2, 58), np.float16)), axis=-1)
    np.testing.assert_array_equal(packed, encode(whole))
    assert not decode(packed)[..., 70:].any()
    with pytest.raises(ValueError, match="no multiple of 64"):
        codes_of(values)
    with pytest.raises(ValueError, match="no axis"):
        encode(np.float32(1))


def test_bytes_that_are_not_of_this_format_are_refused() -> None:
    packed = encode(np.ones(64, np.float16))
    packed[16] ^= 1
    with pytest.raises(ValueError, match="different exponents"):
        decode(packed)
    for wrong in (packed[:63], packed.view(np.uint8), np.int8(3)):
        with pytest.raises(ValueError, match="expected int8 with a multiple of 64"):
            decode(np.asarray(wrong))


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
