"""Qwen3 in the few lines that training needs; names and arithmetic are those of transformers' Qwen3ForCausalLM."""

import torch
import torch.nn.functional as F  # noqa: N812
from quantize import quantize_activation

CONFIG = dict(
    vocab_size=1536,
    hidden_size=256,
    num_hidden_layers=4,
    intermediate_size=768,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=64,
    max_position_embeddings=2048,
    rms_norm_eps=1e-6,
    rope_theta=1e6,
)
EMBEDDING = "model.embed_tokens.weight"


def parameter_shapes(c=CONFIG):
    shapes = {EMBEDDING: (c["vocab_size"], c["hidden_size"])}
    h, d, q, kv, f = (
        c["hidden_size"],
        c["head_dim"],
        c["num_attention_heads"],
        c["num_key_value_heads"],
        c["intermediate_size"],
    )
    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}."
        shapes |= {
            p + "input_layernorm.weight": (h,),
            p + "self_attn.q_proj.weight": (q * d, h),
            p + "self_attn.k_proj.weight": (kv * d, h),
            p + "self_attn.v_proj.weight": (kv * d, h),
            p + "self_attn.o_proj.weight": (h, q * d),
            p + "self_attn.q_norm.weight": (d,),
            p + "self_attn.k_norm.weight": (d,),
            p + "post_attention_layernorm.weight": (h,),
            p + "mlp.gate_proj.weight": (f, h),
            p + "mlp.up_proj.weight": (f, h),
            p + "mlp.down_proj.weight": (h, f),
        }
    return shapes | {"model.norm.weight": (h,)}


def initial_parameters(device, seed):
    generator = torch.Generator().manual_seed(seed)
    out = {}
    for name, shape in parameter_shapes().items():
        if len(shape) == 1:
            value = torch.ones(shape)
        else:
            std = 0.02 if name == EMBEDDING else 0.5 / shape[1] ** 0.5
            value = torch.randn(shape, generator=generator) * std
            if name.endswith(("o_proj.weight", "down_proj.weight")):
                value = value * 0.1
        out[name] = value.to(device)
    return out


def rope_table(length, device, c=CONFIG):
    """cos and sin, [length, head_dim], for the rotate-half form."""
    inverse = 1.0 / c["rope_theta"] ** (torch.arange(0, c["head_dim"], 2, device=device).float() / c["head_dim"])
    angle = torch.arange(length, device=device).float()[:, None] * inverse
    angle = torch.cat([angle, angle], dim=-1)
    return angle.cos(), angle.sin()


def _norm(x, weight):
    y = x.float()
    y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + CONFIG["rms_norm_eps"])
    return (y * weight.float()).to(x.dtype)


def _rotate(x, cos, sin):
    half = x.shape[-1] // 2
    turned = torch.cat([-x[..., half:], x[..., :half]], dim=-1)
    return (x.float() * cos[:, None] + turned.float() * sin[:, None]).to(x.dtype)


def _linear(x, weight, quantize):
    return F.linear(quantize_activation(x) if quantize else x, weight.to(x.dtype))


def before_attention(x, cos, sin, quantize, norm, q, k, v, q_norm, k_norm):
    """x [tokens, hidden] -> q [tokens, heads, d], k, v [tokens, kv heads, d]. cos and sin [tokens, d]: positions."""
    d = CONFIG["head_dim"]
    h = _norm(x, norm)
    if quantize:
        h = quantize_activation(h)
    parts = [F.linear(h, w.to(h.dtype)).unflatten(-1, (-1, d)) for w in (q, k, v)]
    return _rotate(_norm(parts[0], q_norm), cos, sin), _rotate(_norm(parts[1], k_norm), cos, sin), parts[2]


def after_attention(x, mixed, quantize, o, norm, gate, up, down):
    """Output projection, residual and feed-forward. x and mixed are [tokens, hidden]."""
    x = x + _linear(mixed, o, quantize)
    h = _norm(x, norm)
    if quantize:
        h = quantize_activation(h)
    h = F.silu(F.linear(h, gate.to(h.dtype))) * F.linear(h, up.to(h.dtype))
    return x + _linear(h, down, quantize)


def answer_loss(x, norm, head, quantize, targets, weight):
    """Mean cross entropy over the answer tokens, and hits. x [tokens, hidden]; weight is 1 on answer tokens."""
    logits = _linear(_norm(x, norm), head, quantize).float()
    loss = F.cross_entropy(logits, targets, reduction="none")
    hits = ((logits.argmax(-1) == targets).float() * weight).sum()
    return (loss * weight).sum() / weight.sum().clamp(min=1), hits


class Model:
    """Functional model over a dict of parameters; `compile` only touches the parts whose shapes never change."""

    def __init__(self, device, compile=False):
        wrap = (lambda f: torch.compile(f, dynamic=False)) if compile else (lambda f: f)
        self.before, self.after, self.loss_of = wrap(before_attention), wrap(after_attention), wrap(answer_loss)
        self.cos, self.sin = rope_table(CONFIG["max_position_embeddings"], device)

    def hidden(self, p, ids, quantize, dtype):
        """ids [batch, length] -> hidden states before the last norm, [batch * length, hidden]."""
        batch, length = ids.shape
        cos, sin = self.cos[:length].repeat(batch, 1), self.sin[:length].repeat(batch, 1)
        x = F.embedding(ids.flatten(), p[EMBEDDING]).to(dtype)
        for i in range(CONFIG["num_hidden_layers"]):
            w = {n: p[f"model.layers.{i}.{n}.weight"] for n in _LAYER}
            q, k, v = self.before(x, cos, sin, quantize, *(w[n] for n in _LAYER[:6]))
            q, k, v = (t.view(batch, length, -1, t.shape[-1]).transpose(1, 2) for t in (q, k, v))
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
            x = self.after(x, mixed.transpose(1, 2).reshape(batch * length, -1), quantize, *(w[n] for n in _LAYER[6:]))
        return x

    def loss(self, p, head, ids, targets, weight, quantize, dtype=torch.bfloat16):
        x = self.hidden(p, ids, quantize, dtype)
        return self.loss_of(x, p["model.norm.weight"], head, quantize, targets.flatten(), weight.flatten())


_LAYER = [
    "input_layernorm",
    "self_attn.q_proj",
    "self_attn.k_proj",
    "self_attn.v_proj",
    "self_attn.q_norm",
    "self_attn.k_norm",
    "self_attn.o_proj",
    "post_attention_layernorm",
    "mlp.gate_proj",
    "mlp.up_proj",
    "mlp.down_proj",
]
