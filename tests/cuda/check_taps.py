"""Taps on the GPU against those on the CPU: every intermediate value of a prefill and of a decode step.

    python tests/cuda/check_taps.py FOLDER

Logits with taps are held to those without, as a tapped decode is launched step by step. Limits are those of
check_model.py, relative to the largest element of each value. Where two experts' scores are nearly equal the devices
may choose differently, and that token differs from there on: values are compared for the tokens that went to the same
experts so far, which at least half of all must do.
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
PROMPT = 100  # tokens


def run(package: Package, device: int, kind: str, taps: str) -> tuple[Values, Values]:
    """Logits, and the taps of prefill and decode."""
    os.environ |= {"TCIM_LITE_DEVICE": kind, "TCIM_LITE_TAPS": taps}
    manager = tcim.WeightManager(tcim.DevManager([device], "Xh2HalBackend"))
    prefill, decode = load_pair(package.prefill_path, package.decode_path, manager)
    model = Generator(prefill, decode, package.embedding_for(prefill))
    tokens = np.random.default_rng(1).integers(0, CONFIG["vocab_size"], PROMPT + 1).tolist()
    logits = {
        "prefill": np.array(model.prefill(tokens[:PROMPT])),
        "decode": np.array(model.decode(tokens[PROMPT], PROMPT)),
    }
    values = {
        f"{graph} {name}": module.get_output(name).numpy()
        for graph, module in (("prefill", prefill), ("decode", decode))
        for name in module.taps()
    }
    return logits, values


def same_routes(name: str, ours: Values, theirs: Values) -> np.ndarray | None:
    """Which [B, T] tokens of a value went to the same experts in the MoE layers before it, and in its own.

    None: no value of a layer, or none before it has experts.
    """
    step, _, path = name.partition(" ")  # "prefill tap:layers.3.moe.out"
    if ".layers." not in f".{path.replace(':', '.')}":
        return None
    in_moe = ".moe." in path
    routes = [
        (ours[key] == theirs[key]).all(-1)
        for key in ours
        if key.startswith(f"{step} ") and key.endswith(".moe.route_ids")
        and layer_number(key) < layer_number(path) + in_moe
    ]  # fmt: skip
    if not routes:
        return None
    # The last layer of prefill has the last live row alone.
    tokens = ours[name].shape[1]
    return np.all([row if row.shape[1] == tokens else row[:, PROMPT - 1 : PROMPT] for row in routes], 0)


def layer_number(path: str) -> int:
    """3 of "layers.3.moe"."""
    return int(path.partition("layers.")[2].partition(".")[0])


def worst(ours: Values, theirs: Values) -> tuple[float, str]:
    """The largest difference over the largest element, and of which value."""
    assert ours.keys() == theirs.keys()
    found = [(0.0, "none")]
    for name, value in ours.items():
        if value.dtype.kind == "f":
            mine, other = value.astype(np.float64), theirs[name].astype(np.float64)
            scale = max(np.abs(mine).max(), 1e-6)
            same = same_routes(name, ours, theirs)
            if same is not None and same.shape == mine.shape[: same.ndim]:
                assert same.mean() >= 0.5, f"{name}: the same experts for {same.mean():.0%} of the tokens"
                mine, other = mine[same], other[same]
            difference = np.nan_to_num(np.abs(mine - other).max() / scale, nan=np.inf)  # max passes over a NaN
            found.append((float(difference), name))
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
