"""Programs that hear, written in C++ as the vendor's engine is, on packages of random weights."""

from __future__ import annotations

import json
import subprocess
import warnings
from pathlib import Path

import numpy as np
import pytest
from cpp_programs import porting_program

from tcim_lite.models.compiler import CompileOptions, compile_checkpoint

pytestmark = pytest.mark.slow  # compiles a program

WHISPER = {
    "model_type": "whisper",
    "architectures": ["WhisperForConditionalGeneration"],
    "d_model": 64,
    "encoder_layers": 1,
    "decoder_layers": 3,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
    "vocab_size": 320,
    "num_mel_bins": 16,
    "max_source_positions": 50,
    "max_target_positions": 64,
}


def drawn_package(folder: Path, config: dict, **options) -> Path:
    """Of a config alone; the weights are drawn."""
    (folder / "config.json").write_text(json.dumps(config))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it has no tokenizer
        compile_checkpoint(
            CompileOptions(checkpoint=folder, output=folder / "out", quant="float16", random_weights=True, **options)
        )
    return folder / "out"


def test_an_engine_in_cpp_writes_what_whisper_hears(tmp_path):
    """It takes all keys of the encoder before all values; other programs take both of a layer in turn."""
    from speech_host import PROMPT, answered

    from tcim_lite.llm import Package

    package = drawn_package(tmp_path, WHISPER)
    features = np.random.default_rng(6).standard_normal((1, 16, 100)).astype(np.float16)
    features.astype(np.float32).tofile(tmp_path / "features")
    _, _, wanted = answered(Package.open(package), features, 12)
    program = porting_program(tmp_path, "transcribe")

    def words(encoder: str) -> list[int]:
        files = [package / f"whisper_{part}.hmm" for part in (encoder, "prefill", "decode")]
        command = [program, "words", *files, tmp_path / "features", 11, *PROMPT]
        done = subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return [int(token) for token in done.stdout.split()]

    assert words("encode_keys_first") == wanted
    assert words("encode") != wanted


def test_an_engine_in_cpp_gives_the_encoder_of_glm_asr_float32(tmp_path, tiny_package):
    import tcim_lite.runtime as rt

    audio = {
        "num_mel_bins": 20,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "hidden_size": 64,
        "intermediate_size": 256,
    }
    package = tiny_package("glmasr", config={"audio_config": audio}, audio_frames=80, quant="float16")
    encoder = package.folder / f"{package.name}_encode.hmm"
    features = np.random.default_rng(6).standard_normal((1, 20, 80)).astype(np.float32)
    features.tofile(tmp_path / "features")
    program = porting_program(tmp_path, "transcribe")
    command = [str(part) for part in (program, "rows", encoder, tmp_path / "features", tmp_path / "rows")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    module = rt.load(encoder)
    assert module.get_input_info("input_features").dtype == np.float32
    for given in (features, features.astype(np.float16)):  # as its program in Python gives them
        module.set_input("input_features", given)
        module.run(True)
        rows = module.get_output("audio_embeds").numpy()
        assert rows.dtype == np.float16
        assert rows.std() > 0
        assert rows.tobytes() == (tmp_path / "rows").read_bytes()
