"""Packages of speech, vision and language models that the checks beside this one leave out, on the GPU against the CPU.

    python tests/cuda/check_packages.py FOLDER

Weights are random and models have few layers; widths of heads are those of released models. Every graph of a package
runs twice with the same inputs on both: behind some rows of caches, then behind those of the first run. Limits are
those of check_networks.py.
"""

import argparse
import json
import os
import sys
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))  # python -P leaves it out
import check_networks

import tcim_lite.runtime as tcim
from tcim_lite.llm.masks import Masks
from tcim_lite.llm.ports import Lane, is_cache, lanes_of
from tcim_lite.models.compiler import CompileOptions, compile_checkpoint
from tcim_lite.models.families import FAMILIES
from tcim_lite.models.onnx import onnx_bytes
from tcim_lite.models.speech.codec_config import read_codec
from tcim_lite.models.speech.qwen3_tts_codec import streamed_codec, whole_codec

HIDDEN, PATCHES = -65504.0, 256
ALL, FLOATS = tuple(check_networks.LIMITS), ("float32", "float16")
TEXT = {
    "hidden_size": 512, "intermediate_size": 768, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 128, "vocab_size": 331, "max_position_embeddings": 512,
}  # fmt: skip
LLAMA = {**{key: value for key, value in TEXT.items() if key != "head_dim"}, "model_type": "llama"}
QWEN_AUDIO = {
    "encoder_layers": 2, "encoder_attention_heads": 4, "encoder_ffn_dim": 768, "d_model": 256, "output_dim": 512,
}  # fmt: skip
GLM_AUDIO = {"num_hidden_layers": 2, "num_attention_heads": 4, "hidden_size": 256, "intermediate_size": 1024}
TALKER = {
    **TEXT, "rope_theta": 1e6, "rope_scaling": {"rope_type": "default", "mrope_section": [24, 20, 20]},
    "num_code_groups": 16, "text_hidden_size": 768, "text_vocab_size": 97,
    "code_predictor_config": {**TEXT, "hidden_size": 256, "vocab_size": 67, "num_code_groups": 16},
}  # fmt: skip
CODEC = {
    "codebook_size": 61, "codebook_dim": 128, "hidden_size": 256, "latent_dim": 256, "intermediate_size": 512,
    "decoder_dim": 128, "num_attention_heads": 4, "num_key_value_heads": 4, "num_hidden_layers": 2,
    "num_quantizers": 16, "sliding_window": 24,
}  # fmt: skip
SIGLIP = {
    "hidden_size": 1152, "num_attention_heads": 16, "intermediate_size": 2152, "patch_size": 14, "image_size": 112,
}  # fmt: skip
GEMMA4 = {
    **{key: value for key, value in FAMILIES["gemma4"].tiny_config.items() if key != "sliding_window_pattern"},
    "layer_types": ["sliding_attention", "full_attention"], "num_attention_heads": 4, "head_dim": 256,
    "global_head_dim": 512, "sliding_window": 24,
}  # fmt: skip
GEMMA4_E = {
    "num_hidden_layers": 4, "layer_types": ["sliding_attention", "full_attention"] * 2, "num_kv_shared_layers": 2,
    "use_double_wide_mlp": True, "hidden_size_per_layer_input": 64,
    "vision_config": FAMILIES["gemma4"].vision.tiny,
}  # fmt: skip
GEMMA4_MOE = {
    "attention_k_eq_v": True, "num_global_key_value_heads": 1, "enable_moe_block": True, "num_experts": 8,
    "top_k_experts": 2, "moe_intermediate_size": 128,
}  # fmt: skip
GEMMA4_HALF = {**GEMMA4, **GEMMA4_E, "head_dim": 64, "global_head_dim": 128}


@dataclass(frozen=True)
class Case:
    """A package: what is in config.json, how it is compiled, and what limits are multiplied by. Those of Gemma 4 are
    wider: its scores have no scale, so with random weights its softmaxes are sharp, and differences grow. Where float16
    may choose other experts, or moves states, a model is compiled in float32 alone."""

    name: str
    config: dict[str, Any]
    options: dict[str, Any] = field(default_factory=dict)
    quants: tuple[str, ...] = ALL
    factor: float = 1


def thinker(**keys: Any) -> dict[str, Any]:
    return {"model_type": "qwen3_asr", "thinker_config": {"audio_config": QWEN_AUDIO, "text_config": TEXT, **keys}}


def minicpm(family: str) -> dict[str, Any]:
    record = FAMILIES[family]
    return {**record.tiny_config, "vision_config": {**record.vision.tiny, **SIGLIP}}


CASES = [
    Case("glmasr", {"model_type": "glmasr", "audio_config": GLM_AUDIO, "text_config": LLAMA}, {"audio_frames": 400}),
    Case("qwen3_asr", thinker(), {"audio_frames": 1500}),
    Case("aligner", thinker(model_type="qwen3_forced_aligner", classify_num=47), {"audio_frames": 400}),
    Case("qwen3_tts", {"model_type": "qwen3_tts", "talker_config": TALKER}),
    Case("minicpmv4_6", minicpm("minicpmv4_6"), {"vision": str(PATCHES)}, ("float32",)),
    Case("minicpmv", minicpm("minicpmv"), {"vision": str(PATCHES)}),
    Case("gemma4_e", {**GEMMA4, **GEMMA4_E}, {"vision": "12"}, ("float32",), 5),
    Case("gemma4_half", GEMMA4_HALF, {"vision": "12"}, ("float16",), 10),
    Case("gemma4_moe", {**GEMMA4, **GEMMA4_MOE}, {}, ("float32",), 5),
    Case("gemma4_masks", GEMMA4, {"masks": True}, ("float32",), 5),
    Case("hidden_states", {**FAMILIES["qwen3"].tiny_config, **TEXT}, {"hidden_states": -1, "batch": 2}),
]


def compiled(case: Case, folder: Path, quant: str) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(case.config))
    options = {"prefill_length": 32, "context_length": 128, "random_weights": True, **case.options}
    if "vision" in options:
        options["vision_quant"] = quant
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compile_checkpoint(CompileOptions(checkpoint=folder, output=folder, quant=quant, **options))
    return sorted(folder.glob("*.hmm"))


class Drawn:
    """A checkpoint whose tensors are drawn as they are read."""

    def __init__(self) -> None:
        self._shapes: dict[str, tuple[int, ...]] = {}

    def check(self, name: str, shape: tuple[int, ...]) -> None:
        """Notes the shape that is expected."""
        self._shapes[name] = shape

    def read(self, name: str) -> np.ndarray:
        shape, rng = self._shapes[name], np.random.default_rng(list(name.encode()))
        if name.endswith("cluster_usage"):
            return rng.integers(1, 9, shape).astype(np.float32)
        if "norm" in name and name.endswith("weight"):
            return rng.uniform(0.5, 1.5, shape).astype(np.float32)
        scale = 0.8 * np.prod(shape[1:]) ** -0.5 if len(shape) > 1 else 0.05  # larger ones fill the sound's range
        return (rng.standard_normal(shape) * scale).astype(np.float32)


def compiled_codec(folder: Path, quant: str) -> list[Path]:
    """The codec of Qwen3-TTS, which is compiled as a network: whole, and in chunks with states."""
    folder.mkdir(parents=True, exist_ok=True)
    config = read_codec({"decoder_config": CODEC}, Drawn())
    for name, model in (("whole", whole_codec(config, 20)), ("streamed", streamed_codec(config, 12))):
        (folder / f"{name}.hmm").write_bytes(onnx_bytes(model, quant))
    return sorted(folder.glob("*.hmm"))


class Runs:
    """A graph on one device, which runs with inputs that follow from their names and from the number of the run."""

    def __init__(self, path: Path, kind: str, device: int) -> None:
        os.environ["TCIM_LITE_DEVICE"] = kind
        self.module = tcim.load(str(path), tcim.Option(tcim.WeightManager(tcim.DevManager([device], "Xh2HalBackend"))))
        self.inputs = [self.module.get_input_name(index) for index in range(self.module.get_num_inputs())]
        self.lanes = lanes_of(self.module) if any(name.startswith("valid_length") for name in self.inputs) else []
        self.rng = np.random.default_rng(3)

    def run(self, number: int) -> dict[str, np.ndarray]:
        """Outputs, and caches as the run leaves them."""
        for name in self.inputs:
            if number == 0 or not is_cache(name):
                info = self.module.get_input_info(name)
                self.module.set_input(name, self.value(name, tuple(info.shape), number).astype(info.dtype))
        for slot, lane in enumerate(self.lanes):
            self.set_lane(lane, slot, number)
        self.module.run(True)
        outputs = [self.module.get_output_name(index) for index in range(self.module.get_num_outputs())]
        found = {name: self.module.get_output(name).numpy() for name in outputs}
        if "feature_lens" in self.inputs:  # rows behind a sound mean nothing
            length = self.sound(number)
            found["hidden_state"] = found["hidden_state"][:, : 13 * (length // 100) - -(length % 100) // 8]
        return found | {name: self.module.get_dev_input(name).numpy() for name in self.inputs if is_cache(name)}

    def sound(self, number: int) -> int:
        frames = self.module.get_input_info("input_features").shape[2]
        return (frames - 66, frames // 2 + 7)[number]

    def set_lane(self, lane: Lane, slot: int, number: int) -> None:
        """Lengths of a slot, and what goes by them: rows behind the tokens are padding."""
        tokens = self.module.get_input_info(self.inputs[0]).shape[1]
        first, second = max(tokens - 3 - slot, 1), max(tokens // 2, 1)
        before = self.module.get_input_info(lane.caches[0]).shape[2] // 4
        valid, current = ((before, first), (before + first, second))[number]
        self.module.set_input(lane.valid, np.array([valid], np.int32))
        self.module.set_input(lane.current, np.array([current], np.int32))
        lane.set_text_positions(self.module, valid)
        lane.set_linear_mask(self.module, current)
        Masks(self.module).set(valid, current, slot)

    def value(self, name: str, shape: tuple[int, ...], number: int) -> np.ndarray:
        if name == "feature_lens":
            return np.array([self.sound(number)])
        if name == "generate_steps":
            return np.array([(14, 5)[number]])
        if name in ("kv_valid_len", "valid_frames", "is_last"):  # of the codec: a whole chunk, then the last one
            return np.array([{"kv_valid_len": (0, 12), "valid_frames": (12, 5), "is_last": (0, 1)}[name][number]])
        if "codes" in name:
            return self.rng.integers(0, CODEC["codebook_size"], shape)
        if "position_ids" in name:
            return self.rng.integers(0, 48, shape)
        if name.endswith(("bias", "attention_mask")):
            mask = np.zeros(shape)  # in the second run some patches are hidden, of six frames one as a whole as well
            mask.reshape(-1)[mask.size - (0, 48 if mask.size <= PATCHES else PATCHES + 48)[number] :] = HIDDEN
            return mask
        return self.rng.normal(0, 1 if name in ("input_features", "pixel_values") else 0.1, shape)


Results = dict[str, np.ndarray]


def agree(what: str, quant: str, cpu: Results, gpu: Results, factor: float) -> bool:
    """As check_networks.agree of what is not all zeros; what is has to be that on both."""
    zeros = [name for name, wanted in cpu.items() if not wanted.any()]
    if any(gpu[name].any() for name in zeros):
        print(f"{what} {quant}: not zeros on the GPU: {', '.join(name for name in zeros if gpu[name].any())}")
        return False
    pairs = ([found[name] for name in cpu if name not in zeros] for found in (cpu, gpu))
    return check_networks.agree(what, quant, *pairs, factor)


def check(path: Path, name: str, quant: str, factor: float = 1) -> bool:
    cpu, gpu = Runs(path, "cpu", 1), Runs(path, "cuda", 0)
    found = [(f"{name} {path.stem}, run {number}", cpu.run(number), gpu.run(number)) for number in (0, 1)]
    return all([agree(what, quant, *results, factor) for what, *results in found])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    args = parser.parse_args()
    good = True
    for case in CASES:
        for quant in case.quants:
            paths = compiled(case, args.folder / f"package-{case.name}-{quant}", quant)
            good &= all([check(path, case.name, quant, case.factor) for path in paths])
    for quant in FLOATS:
        good &= all([check(path, "codec", quant) for path in compiled_codec(args.folder / f"codec-{quant}", quant)])
    sys.exit(not good)


if __name__ == "__main__":
    main()
