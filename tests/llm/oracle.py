"""transformers in float32 as the oracle of graphs: random models, their logits, and how close ours must be."""

import functools

import numpy as np
import pytest
from llm_packages import LoadedPackage, compile_package
from twins import TWINS, spelled_alike

torch = pytest.importorskip("torch", reason="the oracle needs torch: pip install 'tcim-lite[test]'")
transformers = pytest.importorskip("transformers", reason="the oracle needs transformers")


def logit_bound(config) -> float:
    """Of float32 graphs, relative to the largest logit of the position: the formula of docs/numerics.md section 9."""
    heads = getattr(config, "num_attention_heads", 1)  # none where all layers have states
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // heads
    sizes = (getattr(config, name, None) for name in ("intermediate_size", "moe_intermediate_size", "n_inner"))
    inner = next(filter(None, sizes), 4 * config.hidden_size)
    inner = max(inner) if isinstance(inner, list) else inner  # Gemma 3n has one for each layer
    reductions = (config.hidden_size, inner, heads * head_dim)
    return 64 * 2**-24 * (max(reductions) * config.num_hidden_layers) ** 0.5


def random_model(shape: dict, family: str = "qwen3"):
    torch.manual_seed(5)
    fixed = {"max_position_embeddings": 1024, "rms_norm_eps": 1e-6, "initializer_range": 0.05, "eos_token_id": None}
    fixed["pad_token_id"] = None  # the default of some is beyond the vocabulary
    twin = TWINS.get(family)
    if twin is not None:
        fixed |= spelled_alike(family, shape)
        config = transformers.AutoConfig.for_model(twin.family, **fixed | twin.keys(fixed))
    else:
        config = transformers.AutoConfig.for_model(family, **fixed | shape)
    eager = {"attn_implementation": "eager", "experts_implementation": "eager"}
    model = transformers.AutoModelForCausalLM.from_config(config, **eager).float().eval()
    random_weights(model)
    if twin is not None:
        model.save_pretrained = functools.partial(twin.save, model, family, fixed)
    return model


def random_weights(model) -> None:
    """What a new model has of ones and zeros is random too."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name:
                parameter.add_(torch.randn_like(parameter) * 0.2)
            elif name.endswith("dt_bias"):  # steps that leave something of the tokens before
                parameter.copy_(torch.randn_like(parameter) - 2)
            elif name.endswith(("A_log", ".D", "conv1d.weight")):
                parameter.add_(torch.randn_like(parameter) * 0.3)
            elif name.endswith("bias"):
                parameter.copy_(torch.randn_like(parameter) * 0.1)
            elif name.endswith(("sinks", "correct_output_scale")):
                parameter.copy_(torch.randn_like(parameter))
        for name, buffer in model.named_buffers():
            if name.endswith(("e_score_correction_bias", "expert_bias")):
                buffer.copy_(torch.randn_like(buffer) * 0.1)


def oracle_logits(model, tokens: list[int]) -> np.ndarray:
    """[len(tokens), V] float32."""
    with torch.no_grad():
        return model(torch.tensor([tokens])).logits[0].float().numpy()


def assert_close(got: np.ndarray, want: np.ndarray, bound: float, where: str) -> None:
    error = np.abs(got - want).max() / np.abs(want).max()
    assert error <= bound, f"{where}: relative error {error:.2e}, bound {bound:.2e}"


def assert_float32_graphs_agree(tmp_path, model):
    model.save_pretrained(tmp_path / "hf")
    package = compile_package(tmp_path / "hf", tmp_path / "out", quant="float32", prefill_length=32, context_length=320)
    loaded, config = LoadedPackage(package), model.config.get_text_config()
    tokens = np.random.default_rng(0).integers(0, config.vocab_size, 300).tolist()
    want = oracle_logits(model, tokens)
    bound = logit_bound(config)
    for length in (1, 31, 32, 33, 100, 257):
        assert_close(loaded.prefill(tokens[:length]), want[length - 1], bound, f"prefill of {length}")
    for position in range(257, 300):
        assert_close(loaded.decode(tokens[position], position), want[position], bound, f"decode at {position}")
