"""Taps on the GPU against those on the CPU: every intermediate value of a prefill and of a decode step.

    python tests/cuda/check_taps.py FOLDER

Logits with taps are held to those without, as a tapped decode is launched step by step. Limits are those of
check_model.py, relative to the largest element of each value. Where two experts' scores are nearly equal the devices may
choose differently: experts are compared in the rows whose ids are equal, and at least half of all must be.
"""

import argparse
import os
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))  # python -P leaves it out
from check_model import CONFIG, LIMITS, package_of

import tcim_lite.runtime as tcim
from tcim_lite.llm import Generator, Package, load_pair

Values = dict[str, np.ndarray]


def run(package: Package, device: int, kind: str, taps: str) -> tuple[Values, Values]:
    """Logits, and the taps of prefill and decode."""
    os.environ |= {"TCIM_LITE_DEVICE": kind, "TCIM_LITE_TAPS": taps}
    manager = tcim.WeightManager(tcim.DevManager([device], "Xh2HalBackend"))
    prefill, decode = load_pair(package.prefill_path, package.decode_path, manager)
    model = Generator(prefill, decode, package.embedding_for(prefill))
    tokens = np.random.default_rng(1).integers(0, CONFIG["vocab_size"], 101).tolist()
    logits = {"prefill": np.array(model.prefill(tokens[:100])), "decode": np.array(model.decode(tokens[100], 100))}
    values = {
        f"{graph} {name}": module.get_output(name).numpy()
        for graph, module in (("prefill", prefill), ("decode", decode))
        for name in module.taps()
    }
    return logits, values


def same_route(name: str, ours: Values, theirs: Values) -> np.ndarray | None:
    """Which [B, T] tokens of a value between routing and MoECombine go to the same experts; None: not such a value."""
    layer, _, _ = name.rpartition(".")
    ids = next((key for key in ours if key.rpartition(".")[0] == layer and ours[key].dtype.kind == "i"), None)
    return None if ids is None else (ours[ids] == theirs[ids]).all(-1)


def worst(ours: Values, theirs: Values) -> tuple[float, str]:
    """The largest difference over the largest element, and of which value."""
    assert ours.keys() == theirs.keys()
    found = [(0.0, "none")]
    for name, value in ours.items():
        if value.dtype.kind == "f":
            mine, other = value.astype(np.float64), theirs[name].astype(np.float64)
            scale = max(np.abs(mine).max(), 1e-6)
            same = same_route(name, ours, theirs)
            if same is not None and same.shape == mine.shape[: same.ndim]:
                assert same.mean() >= 0.5, f"{name}: the same experts for {same.mean():.0%} of the tokens"
                mine, other = mine[same], other[same]
            found.append((float(np.abs(mine - other).max() / scale), name))
    return max(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    args = parser.parse_args()
    good = True
    for family, quant in (("qwen3", "w4a8h0_ssfp"), ("qwen3", "float16"), ("qwen3_moe", "w4a8h0_ssfp")):
        package = package_of(args.folder, quant, family)
        cpu, cpu_taps = run(package, 1, "cpu", "*")
        plain, none = run(package, 0, "cuda", "")
        tapped, gpu_taps = run(package, 0, "cuda", "*")
        some, _ = run(package, 0, "cuda", "layers.2.*")
        assert not none
        assert gpu_taps
        for what, (difference, name) in {
            "taps, GPU against CPU": worst(cpu_taps, gpu_taps),
            "logits, all taps against none": worst(plain, tapped),
            "logits, taps of a layer against none": worst(plain, some),
            "logits, GPU against CPU": worst(cpu, tapped),
        }.items():
            good &= difference <= LIMITS[quant]
            print(f"{family} {quant}: {what}: within {difference:.2e} at {name} (limit {LIMITS[quant]})")
    sys.exit(not good)


if __name__ == "__main__":
    main()
