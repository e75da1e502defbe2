"""Whisper and the encoder of Qwen3-ASR on the GPU against the CPU.

    python tests/cuda/check_speech.py FOLDER

Sizes are those of Whisper base and of Qwen3-ASR 0.6B but for the number of layers and of words; weights are random.
Whisper decodes the same tokens on both. Limits are those of check_networks.py.
"""

import argparse
import json
import os
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))  # python -P leaves it out
sys.path.append(str(Path(__file__).parents[2] / "examples"))
import check_networks
from speech_recognition import SpeechModel

import tcim_lite.runtime as tcim
from tcim_lite.llm import Package
from tcim_lite.models.compiler import CompileOptions, compile_checkpoint

TEXT = {
    "model_type": "qwen3",
    "hidden_size": 1024,
    "intermediate_size": 3072,
    "num_hidden_layers": 1,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 331,
}
AUDIO = {
    "encoder_layers": 2,
    "encoder_attention_heads": 14,
    "encoder_ffn_dim": 3584,
    "d_model": 896,
    "output_dim": 1024,
}
CONFIGS = {
    "whisper": {
        "model_type": "whisper",
        "d_model": 512,
        "encoder_layers": 2,
        "decoder_layers": 2,
        "encoder_attention_heads": 8,
        "decoder_attention_heads": 8,
        "encoder_ffn_dim": 2048,
        "decoder_ffn_dim": 2048,
        "vocab_size": 9001,
    },
    "qwen3_asr": {"model_type": "qwen3_asr", "thinker_config": {"audio_config": AUDIO, "text_config": TEXT}},
}


def package_of(folder: Path, kind: str, quant: str) -> Package:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(CONFIGS[kind]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compile_checkpoint(CompileOptions(checkpoint=folder, output=folder, quant=quant, random_weights=True))
    return Package.open(folder)


def whisper(package: Package, device: int) -> list[np.ndarray]:
    """Logits of a prefill of four tokens and of 20 more, and what the encoder gives."""
    model = SpeechModel(package, device)
    rng = np.random.default_rng(5)
    name = model.encoder.get_input_name(0)
    model.hear(rng.standard_normal(model.encoder.get_input_info(name).shape).astype(np.float16))
    tokens = rng.integers(0, 9001, 24).tolist()
    logits = [model.run(model.prefill, tokens[:4], 0)]
    logits += [model.run(model.decode, [tokens[at]], at) for at in range(4, 24)]
    encoder = model.encoder
    return logits + [encoder.get_output(encoder.get_output_name(i)).numpy() for i in range(encoder.get_num_outputs())]


def qwen3_asr(package: Package, device: int) -> list[np.ndarray]:
    """Rows of a sound of 12.34 s in a graph of 30 s."""
    path = package.folder / f"{package.name}_encode.hmm"
    encoder = tcim.load(str(path), option=tcim.Option(tcim.WeightManager(device)))
    sound, length = encoder.get_input_name(0), encoder.get_input_name(1)
    features = np.random.default_rng(5).standard_normal(encoder.get_input_info(sound).shape)
    encoder.set_input(sound, features.astype(np.float16))
    encoder.set_input(length, np.array([1234], np.int32))
    encoder.run(True)
    return [encoder.get_output(encoder.get_output_name(0)).numpy()[:, :161]]


def check(folder: Path, kind: str, outputs: Callable[[Package, int], list[np.ndarray]], quant: str) -> bool:
    package = package_of(folder, kind, quant)
    found = []
    for backend, device in (("cpu", 1), ("cuda", 0)):
        os.environ["TCIM_LITE_DEVICE"] = backend
        found.append(outputs(package, device))
    return check_networks.agree(kind, quant, *found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    args = parser.parse_args()
    good = [
        check(args.folder / f"speech-{outputs.__name__}-{quant}", outputs.__name__, outputs, quant)
        for outputs in (whisper, qwen3_asr)
        for quant in check_networks.LIMITS
    ]
    sys.exit(not all(good))


if __name__ == "__main__":
    main()
