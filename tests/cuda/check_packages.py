"""Packages of speech, vision and language models that the checks beside this one leave out, on the GPU against the CPU.

    python tests/cuda/check_packages.py FOLDER

Weights are random. Every graph of a package (package_cases.py) runs twice with the same inputs on both: behind some
rows of caches, then behind those of the first run. Limits are those of check_networks.py.
"""

import argparse
import json
import os
import sys
import warnings
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))  # python -P leaves it out
import check_networks
from package_cases import CASES, CODEC, PATCHES, Case

import tcim_lite.runtime as tcim
from tcim_lite.llm.masks import Masks
from tcim_lite.llm.ports import Lane, is_cache, lanes_of
from tcim_lite.models.compiler import CompileOptions, compile_checkpoint
from tcim_lite.models.onnx import onnx_bytes
from tcim_lite.models.speech.codec_config import read_code2wav, read_codec
from tcim_lite.models.speech.qwen3_tts_codec import streamed_codec, whole_codec

HIDDEN = -65504.0
FLOATS = ("float32", "float16")
ROWS_OF_A_CHUNK = (13, 6)  # of Qwen3-Omni's sounds, in each run
# Of graphs whose inputs are not those of a slot.
OWN_INPUTS = {"attention_mask", "head_mask", "role_mask", "local_attention_mask"}
VALID, CURRENT = ("valid_length", "past_seq_length"), ("current_length", "current_input_length")


def compiled(case: Case, folder: Path, quant: str) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(case.config))
    if case.write is not None:
        case.write(folder)
    drawn = {"prefill_length": 32, "context_length": 128, "random_weights": True} if case.write is None else {}
    options = {**drawn, **case.options}
    if case.draft is not None:
        options["draft"] = folder / "draft"
        options["draft"].mkdir(exist_ok=True)
        (options["draft"] / "config.json").write_text(json.dumps(case.draft))
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
    """Codecs, which are compiled as networks: of Qwen3-TTS whole, and in chunks with states; of Qwen3-Omni whole."""
    folder.mkdir(parents=True, exist_ok=True)
    config, omni = read_codec({"decoder_config": CODEC}, Drawn()), read_code2wav({"code2wav_config": CODEC}, Drawn())
    networks = {"whole": whole_codec(config, 20), "streamed": streamed_codec(config, 12), "omni": whole_codec(omni, 20)}
    for name, model in networks.items():
        (folder / f"{name}.hmm").write_bytes(onnx_bytes(model, quant))
    return sorted(folder.glob("*.hmm"))


class Runs:
    """A graph on one device, which runs with inputs that follow from their names and from the number of the run."""

    def __init__(self, path: Path, kind: str, device: int) -> None:
        os.environ["TCIM_LITE_DEVICE"] = kind
        self.module = tcim.load(str(path), tcim.Option(tcim.WeightManager(tcim.DevManager([device], "Xh2HalBackend"))))
        self.inputs = [self.module.get_input_name(index) for index in range(self.module.get_num_inputs())]
        has_lanes = any(name.startswith("valid_length") for name in self.inputs)
        self.lanes = lanes_of(self.module) if has_lanes and not OWN_INPUTS & set(self.inputs) else []
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
        if "cu_seqlens" in self.inputs:
            found["audio_embeds"] = found["audio_embeds"][: ROWS_OF_A_CHUNK[number]]
        return found | {name: self.module.get_dev_input(name).numpy() for name in self.inputs if is_cache(name)}

    def sound(self, number: int) -> int:
        frames = self.module.get_input_info("input_features").shape[2]
        return (frames - 66, frames // 2 + 7)[number]

    def lengths(self, slot: int, number: int) -> tuple[int, int]:
        """Tokens in the caches, and tokens of the run."""
        tokens = self.module.get_input_info(self.inputs[0]).shape[1]
        caches = next(name for name in self.inputs if is_cache(name))
        rows = self.module.get_input_info(caches).shape[2]
        before, second = rows // 4, max(tokens // 2, 1)
        first = max(min(tokens - 3 - slot, rows - before - second), 1)
        return ((before, first), (before + first, second))[number]

    def set_lane(self, lane: Lane, slot: int, number: int) -> None:
        """Lengths of a slot, and what goes by them: rows behind the tokens are padding."""
        valid, current = self.lengths(slot, number)
        self.module.set_input(lane.valid, np.array([valid], np.int32))
        self.module.set_input(lane.current, np.array([current], np.int32))
        if len(lane.positions) == 1 and not lane.joined:
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
        if name in VALID + CURRENT and not self.lanes:
            return np.array([self.lengths(0, number)[name in CURRENT]])
        if name == "cu_seqlens":
            return np.array([0, ROWS_OF_A_CHUNK[number]])
        if "codes" in name or name == "speech_ids":
            return self.rng.integers(0, CODEC["codebook_size"], shape)
        if "position_ids" in name:
            return self.rng.integers(0, 48, shape)
        if name == "input_features_mask":
            return np.arange(shape[1])[None] < shape[1] - (0, 30)[number]
        if name.endswith(("valid_mask", "padded_mask", "role_mask", "bypass_mask", "head_mask")):
            return self.rng.integers(0, 2, shape)
        if name.endswith("attention_mask") and shape[-1] > 1 and len(shape) == 4:
            return self.mask(name, shape, number)
        if name.endswith(("bias", "attention_mask")):
            mask = np.zeros(shape)  # in the second run some patches are hidden, of six frames one as a whole as well
            mask.reshape(-1)[mask.size - (0, 48 if mask.size <= PATCHES else PATCHES + 48)[number] :] = HIDDEN
            return mask
        return self.rng.normal(0, 1 if "features" in name or name in ("padded_feature", "pixel_values") else 0.1, shape)

    def mask(self, name: str, shape: tuple[int, ...], number: int) -> np.ndarray:
        """Hides what is behind the tokens, or in the second run the last patches or rows; some others as well."""
        mask = np.zeros(shape)
        last = sum(self.lengths(0, number)) if "valid_length" in self.inputs else shape[-1] - (0, 48)[number]
        mask[..., last:] = mask[..., 3 : 3 + 4 * number] = -np.inf if name.startswith("audio") else HIDDEN
        return mask


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
