"""Random models of hybrid families, the bounds of their packages, and the states that those carry."""

from __future__ import annotations

import json

import numpy as np
import pytest

save_file = pytest.importorskip("safetensors.torch", reason="writes checkpoints").save_file
torch = pytest.importorskip("torch", reason="the oracle")
transformers = pytest.importorskip("transformers", reason="the oracle")
from oracle import logit_bound

from tcim_lite.llm import lanes_of
from tcim_lite.models.families import FAMILIES

FAMILY = FAMILIES["qwen3_5"]
MODELS = {"qwen3_5": "Qwen3_5", "qwen3_5_moe": "Qwen3_5Moe"}
EAGER = {"attn_implementation": "eager", "experts_implementation": "eager"}
FRESH = {"initializer_range": 0.05, "eos_token_id": None, "bos_token_id": None}


def random_next(folder, changes):
    """Qwen3-Next, which has no other config around its own."""
    torch.manual_seed(5)
    config = transformers.Qwen3NextConfig(**{**FAMILIES["qwen3_next"].tiny, **FRESH, **changes}, **EAGER)
    return saved(folder, transformers.Qwen3NextForCausalLM(config))


def saved(folder, model):
    """With numbers of their own where a new model has the same in each."""
    model = model.float().eval()
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            if "norm" in key or key.endswith(("dt_bias", "A_log", "conv1d.weight", "mlp.gate.weight")):
                parameter.add_(torch.randn_like(parameter) * 0.3)
    model.save_pretrained(folder)
    return model


def random_model(folder, changes, name="qwen3_5", packed=False, alone=False):
    """A checkpoint as the vendor's tools get it: the language model's config inside of another, or alone."""
    torch.manual_seed(5)
    family, kind = FAMILIES[name], MODELS[name]
    text = {**family.tiny, **FRESH, **changes}
    config = getattr(transformers, f"{kind}TextConfig")(**text, **EAGER)
    model = saved(folder, getattr(transformers, f"{kind}ForCausalLM")(config))
    if alone:
        return model
    written = json.loads((folder / "config.json").read_text())
    outer = {"architectures": [family.architecture], "model_type": name, "text_config": written}
    outer["tie_word_embeddings"] = text["tie_word_embeddings"]
    (folder / "config.json").write_text(json.dumps(outer))
    if packed:  # as the tensors are in memory, not as transformers writes them
        tensors = {key: tensor.contiguous() for key, tensor in model.state_dict().items()}
        save_file(tensors, folder / "model.safetensors")
    return model


def bound_of(config):
    """A config of experts alone has no intermediate size."""
    config.intermediate_size = getattr(config, "intermediate_size", config.hidden_size)
    return logit_bound(config)


def tokens_of(count, seed=1):
    return np.random.default_rng(seed).integers(0, 331, count).tolist()


def states_of(loaded):
    (lane,) = lanes_of(loaded.prefill_module)
    return [loaded.prefill_module.get_dev_input(name).numpy() for name in (*lane.caches, *lane.carried)]
