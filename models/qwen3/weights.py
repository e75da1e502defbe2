"""The weights of a Qwen3 graph: their names, shapes, and the checkpoint tensors they are merged from."""

from __future__ import annotations

from ..common.errors import CompileError
from ..common.packing import BLOCK, is_quantized
from ..common.profiles import Profile
from ..common.quantize import GROUP
from ..common.weight_spec import LinearSpec, VectorSpec
from .config import Qwen3Config

EMBEDDING = "model.embed_tokens.weight"
ROPE_COS, ROPE_SIN = "rope.cos", "rope.sin"


def padded_intermediate(config: Qwen3Config) -> int:
    """Returns intermediate_size rounded up to 16, the block in which gate and up alternate. Padding rows are zero."""
    return -(-config.intermediate_size // BLOCK) * BLOCK


def weight_specs(config: Qwen3Config, profile: Profile) -> list[LinearSpec | VectorSpec]:
    """Returns all weights in the order of use, RoPE tables and embedding aside.

    Raises:
        CompileError: A quantised weight whose inputs are not a multiple of 64.
    """
    specs = [spec for layer in range(config.num_layers) for spec in _layer(config, profile, layer)]
    hidden, vocab = config.hidden_size, config.vocab_size
    head = EMBEDDING if config.tie_word_embeddings else "lm_head.weight"
    specs.append(VectorSpec(name="norm.weight", tensors=("model.norm.weight",), lengths=(hidden,)))
    specs.append(
        LinearSpec(
            name="lm_head.weight",
            format=profile.head_format,
            shape=(vocab, hidden),
            tensors=(head,),
            tensor_shapes=((vocab, hidden),),
        )
    )
    for spec in specs:
        if isinstance(spec, LinearSpec) and is_quantized(spec.format) and spec.shape[1] % GROUP:
            raise CompileError(
                f"tensor {spec.tensors[0]!r} has {spec.shape[1]} inputs, not a multiple of the quantisation group "
                f"of {GROUP}; compile with --quant float16"
            )
    return specs


def _layer(config: Qwen3Config, profile: Profile, layer: int) -> list[LinearSpec | VectorSpec]:
    hidden, head_dim, inner = config.hidden_size, config.head_dim, config.intermediate_size
    q_rows, kv_rows = config.num_heads * head_dim, config.num_kv_heads * head_dim
    prefix, source = f"layers.{layer}", f"model.layers.{layer}"
    qkv = tuple(f"{source}.self_attn.{name}_proj" for name in "qkv")
    qkv_rows = (q_rows, kv_rows, kv_rows)

    def norm(name: str, length: int) -> VectorSpec:
        return VectorSpec(name=f"{prefix}.{name}", tensors=(f"{source}.{name}",), lengths=(length,))

    def linear(name: str, shape: tuple[int, int], tensors: tuple[str, ...], rows: tuple[int, ...]) -> LinearSpec:
        return LinearSpec(
            name=f"{prefix}.{name}",
            format=profile.body_format,
            shape=shape,
            tensors=tensors,
            tensor_shapes=tuple((count, shape[1]) for count in rows),
        )

    specs: list[LinearSpec | VectorSpec] = [
        norm("input_layernorm.weight", hidden),
        linear("self_attn.qkv.weight", (sum(qkv_rows), hidden), tuple(f"{t}.weight" for t in qkv), qkv_rows),
        norm("self_attn.q_norm.weight", head_dim),
        norm("self_attn.k_norm.weight", head_dim),
        linear("self_attn.o_proj.weight", (hidden, q_rows), (f"{source}.self_attn.o_proj.weight",), (hidden,)),
        norm("post_attention_layernorm.weight", hidden),
        LinearSpec(
            name=f"{prefix}.mlp.gate_up.weight",
            format=profile.body_format,
            shape=(2 * padded_intermediate(config), hidden),
            tensors=(f"{source}.mlp.gate_proj.weight", f"{source}.mlp.up_proj.weight"),
            tensor_shapes=((inner, hidden), (inner, hidden)),
            merge="alternate",
        ),
        LinearSpec(
            name=f"{prefix}.mlp.down_proj.weight",
            format=profile.body_format,
            shape=(hidden, inner if is_quantized(profile.body_format) else padded_intermediate(config)),
            tensors=(f"{source}.mlp.down_proj.weight",),
            tensor_shapes=((hidden, inner),),
        ),
    ]
    if config.attention_bias:
        specs.append(
            VectorSpec(name=f"{prefix}.self_attn.qkv.bias", tensors=tuple(f"{t}.bias" for t in qkv), lengths=qkv_rows)
        )
        specs.append(norm("self_attn.o_proj.bias", hidden))
    return specs
