"""Models for several GPUs against the same model on one: tensor parallel, and a pipeline of two stages.

    python tests/cuda/check_devices.py FOLDER

Logical devices 0 and 1, which are two GPUs where there are two. Logits of a prefill in two chunks and of a decode are
held to the limits of check_model.py: one GPU decodes by other kernels than several do.
"""

import argparse
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))  # python -P leaves it out
from check_model import CONFIG, LIMITS, package_of

import tcim_lite.runtime as tcim
from tcim_lite.llm import Generator, Package, last_logits, load_pair, prompt_chunks, run_graph

PROMPT, STEPS = 200, 20


def generator(package: Package, suffix: str, devices: list[int]) -> Generator:
    weights = tcim.WeightManager(tcim.DevManager(devices, "Xh2HalBackend"))
    prefill, decode = load_pair(package.graph("prefill" + suffix), package.graph("decode" + suffix), weights)
    return Generator(prefill, decode, package.embedding_for(prefill))


class Stages:
    """Stage d of prefill and decode on device d."""

    def __init__(self, package: Package):
        self.embedding = package.embedding(CONFIG["hidden_size"], CONFIG["vocab_size"])
        self.prefills, self.decodes = [], []
        for device, paths in enumerate(zip(package.parts("prefill"), package.parts("decode"), strict=True)):
            prefill, decode = load_pair(*paths, tcim.WeightManager(device))
            self.prefills.append(prefill)
            self.decodes.append(decode)

    def prefill(self, tokens: list[int]) -> np.ndarray:
        length = self.prefills[0].get_input_info(self.prefills[0].get_input_name(0)).shape[1]
        for rows, valid, current in prompt_chunks(self.embedding, tokens, length, 0):
            for stage in self.prefills:
                rows = run_graph(stage, rows, valid, current)
        return last_logits(rows, current)

    def decode(self, token: int, position: int) -> np.ndarray:
        rows = self.embedding[token].reshape(1, 1, -1)
        for stage in self.decodes:
            rows = run_graph(stage, rows, position, 1)
        return rows.reshape(-1)


def logits(model: Generator | Stages) -> np.ndarray:
    tokens = np.random.default_rng(1).integers(0, CONFIG["vocab_size"], PROMPT + STEPS).tolist()
    rows = [model.prefill(tokens[:PROMPT])]
    rows += [model.decode(tokens[at], at) for at in range(PROMPT, PROMPT + STEPS)]
    return np.float32(np.stack([np.reshape(row, -1) for row in rows]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    args = parser.parse_args()
    good = True
    # Linear attention is chaotic in quantised formats (check_model.py), and experts are chosen by the last bit.
    others = (("qwen3_5", "float32"), ("qwen3_omni_moe", "float32"))
    for family, quant in (*(("qwen3", quant) for quant in LIMITS), *others):
        package = package_of(args.folder / "one", quant, family)
        expected = logits(generator(package, ".hmm", [0]))
        shards = package_of(args.folder / "shards", quant, family, ndevice=2)
        models: list[tuple[str, Generator | Stages]] = [("2 devices", generator(shards, ".hmms", [0, 1]))]
        if family == "qwen3":
            models.append(("2 stages", Stages(package_of(args.folder / "stages", quant, pipeline=2))))
        for name, model in models:
            off = np.abs(logits(model) - expected).max(axis=1) / np.abs(expected).max(axis=1)
            same = np.array_equal(logits(model), logits(model))
            print(f"{family} {quant}, {name}: within {off.max():.2e} of one (limit {LIMITS[quant]}), repeats: {same}")
            good &= bool(off.max() <= LIMITS[quant]) and same
    sys.exit(not good)


if __name__ == "__main__":
    main()
