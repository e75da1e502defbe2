"""Random adapters of PEFT for checkpoint folders."""

import json

import numpy as np

from tcim_lite.models.checkpoints.checkpoint import Checkpoint

RANK, ALPHA = 3, 7.0
ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")
MLP = ("gate_proj", "up_proj", "down_proj")


def linears_of(checkpoint, targets=ATTENTION + MLP):
    """Shapes of the Linears whose names end so, by name."""
    stored = Checkpoint(checkpoint)
    modules = (name.removesuffix(".weight") for name in stored.names())
    return {module: stored.shape(f"{module}.weight") for module in modules if module.endswith(targets)}


def mlps_of(config):
    """The same of a dense model's MLPs, by its config."""
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    shapes = {"up_proj": (inner, hidden), "down_proj": (hidden, inner)}
    layers = [f"model.layers.{layer}.mlp" for layer in range(config["num_hidden_layers"])]
    return {f"{layer}.{name}": shape for layer in layers for name, shape in shapes.items()}


def write_random_adapter(folder, linears, seed=1, rank=RANK):
    """A LoRA of Linears of these shapes."""
    from safetensors.numpy import save_file

    rng, tensors = np.random.default_rng(seed), {}
    for module, (outputs, inputs) in linears.items():
        for side, shape in (("A", (rank, inputs)), ("B", (outputs, rank))):
            values = (rng.standard_normal(shape) * 0.2).astype(np.float32)
            tensors[f"base_model.model.{module}.lora_{side}.weight"] = values
    folder.mkdir(parents=True)
    save_file(tensors, folder / "adapter_model.safetensors")
    written = {"peft_type": "LORA", "r": rank, "lora_alpha": ALPHA, "bias": "none"}
    (folder / "adapter_config.json").write_text(json.dumps(written))
