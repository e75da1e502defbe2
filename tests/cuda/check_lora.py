"""A model whose graphs take a LoRA as inputs, on the GPU against the CPU: with the adapter, and with zeros.

    python tests/cuda/check_lora.py FOLDER

An adapter of five Linears of each layer, with random matrices that move the logits by more than themselves. Limits are
those of check_model.py.
"""

import argparse
import json
import os
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))  # python -P leaves it out
from check_model import CONFIG, LIMITS, package_of
from safetensors.numpy import save_file

import tcim_lite.runtime as tcim
from tcim_lite.llm import Generator, Package, load_pair
from tcim_lite.llm.lora import lora_names

PROMPT, STEPS, RANK = 200, 30, 8
_HIDDEN, _INNER = CONFIG["hidden_size"], CONFIG["intermediate_size"]
_Q, _KV = (CONFIG[key] * CONFIG["head_dim"] for key in ("num_attention_heads", "num_key_value_heads"))
LINEARS = {  # outputs, inputs
    "self_attn.q_proj": (_Q, _HIDDEN),
    "self_attn.v_proj": (_KV, _HIDDEN),
    "self_attn.o_proj": (_HIDDEN, _Q),
    "mlp.gate_proj": (_INNER, _HIDDEN),
    "mlp.down_proj": (_HIDDEN, _INNER),
}


def write_adapter(folder: Path) -> Path:
    """Returns the folder, as PEFT writes it."""
    folder.mkdir(parents=True, exist_ok=True)
    random, tensors = np.random.default_rng(1), {}
    for layer in range(CONFIG["num_hidden_layers"]):
        for name, (outputs, inputs) in LINEARS.items():
            stem = f"base_model.model.model.layers.{layer}.{name}"
            down = random.standard_normal((RANK, inputs)) / inputs**0.5
            tensors[f"{stem}.lora_A.weight"] = down.astype(np.float32)
            tensors[f"{stem}.lora_B.weight"] = (random.standard_normal((outputs, RANK)) * 0.1).astype(np.float32)
    save_file(tensors, folder / "adapter_model.safetensors")
    targets = [name.split(".")[1] for name in LINEARS]
    config = {"peft_type": "LORA", "r": RANK, "lora_alpha": RANK, "bias": "none", "target_modules": targets}
    (folder / "adapter_config.json").write_text(json.dumps(config))
    return folder


class Side:
    """The model on one device."""

    def __init__(self, package: Package, device: int, kind: str):
        os.environ["TCIM_LITE_DEVICE"] = kind
        manager = tcim.WeightManager(tcim.DevManager([device], "Xh2HalBackend"))
        self._prefill, decode = load_pair(package.prefill_path, package.decode_path, manager)
        self._generator = Generator(self._prefill, decode, package.embedding_for(self._prefill))

    def logits(self, tokens: list[int], folder: Path | None) -> list[np.ndarray]:
        """Of a prefill and of each decode behind it, with the adapter in `folder`, or with zeros."""
        for name in lora_names(self._prefill):
            info = self._prefill.get_input_info(name)
            value = np.zeros(info.shape, info.dtype) if folder is None else np.load(folder / f"{name}.npy")
            self._prefill.set_input(name, value)
        found = [self._generator.prefill(tokens[:PROMPT])]
        found += [self._generator.decode(tokens[at], at) for at in range(PROMPT, PROMPT + STEPS)]
        return [np.float32(logits) for logits in found]


def compare(package: Package, quant: str, cpu: Side, gpu: Side, folder: Path | None) -> bool:
    """Whether logits agree within the limit."""
    tokens = np.random.default_rng(1).integers(0, CONFIG["vocab_size"], PROMPT + STEPS).tolist()
    both = zip(cpu.logits(tokens, folder), gpu.logits(tokens, folder), strict=True)
    worst = np.max([np.abs(ours - theirs).max() / np.abs(ours).max() for ours, theirs in both])
    adapter = "zeros" if folder is None else "the adapter"
    print(f"{package.name} {quant}, {adapter}: logits within {worst:.2e} (limit {LIMITS[quant]})")
    return bool(worst <= LIMITS[quant])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder / "lora"
    adapter, good = write_adapter(folder / "adapter"), True
    for quant in LIMITS:
        package = package_of(folder, quant, lora=adapter)
        files = package.folder / f"{package.name}_{adapter.name}_prefill_lora_input"
        cpu, gpu = Side(package, 1, "cpu"), Side(package, 0, "cuda")
        for values in (None, files):
            good &= compare(package, quant, cpu, gpu, values)
    sys.exit(not good)


if __name__ == "__main__":
    main()
