"""GGUF files of a random checkpoint, in llama.cpp's environment.

    python make_gguf.py bf16|bf16+words CHECKPOINT OUT.gguf       # with a vocabulary of words, for a server
    python make_gguf.py Q4_0|Q8_0 BF16.gguf OUT.gguf

Quantised with llama.cpp's own defaults: the head, which is also the embedding below 8B, stays in 6 bits in Q4_0.
Prints the bytes that one token reads.
"""

import itertools
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import gguf
import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent))
from compare.checkpoint import read_tensors
from compare.shapes import head_dim_of
from compare.vocabulary import words

# By model_type.
ARCHITECTURES = {"qwen3": "qwen3", "qwen3_moe": "qwen3moe", "qwen2": "qwen2", "llama": "llama", "mistral": "llama"}
NAMES = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "mlp.gate": "ffn_gate_inp",
    "mlp.experts.gate_proj": "ffn_gate_exps",
    "mlp.experts.up_proj": "ffn_up_exps",
    "mlp.experts.down_proj": "ffn_down_exps",
}
OUTER = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}


def gguf_name(name: str) -> str:
    if name in OUTER:
        return OUTER[name]
    _, _, layer, *middle, kind = name.split(".")
    return f"blk.{layer}.{NAMES['.'.join(part for part in middle if not part.isdigit())]}.{kind}"


def merged(checkpoint: Path) -> Iterator[tuple[str, list[np.ndarray]]]:
    """llama.cpp's names, and the parts of each tensor: of experts one for each, otherwise one."""
    for name, group in itertools.groupby(read_tensors(checkpoint), key=lambda pair: gguf_name(pair[0])):
        yield name, [tensor for _, tensor in group]


def write_bf16(checkpoint: Path, out: Path, *, with_words: bool) -> None:
    """Tensor by tensor: memory holds one of them.

    Rows of q and k keep their order, and Llama 3's RoPE is left out: of random weights neither changes a time.
    """
    config = json.loads((checkpoint / "config.json").read_text())
    writer = gguf.GGUFWriter(out, ARCHITECTURES[config["model_type"]])
    head_dim = head_dim_of(config)
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)
    writer.add_rope_dimension_count(head_dim)
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    if "num_experts" in config:
        writer.add_expert_count(config["num_experts"])
        writer.add_expert_used_count(config["num_experts_per_tok"])
        writer.add_expert_feed_forward_length(config["moe_intermediate_size"])
    writer.add_vocab_size(config["vocab_size"])
    if with_words:
        tokens = words(config["vocab_size"])
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre("qwen2")
        writer.add_token_list(tokens)
        writer.add_token_types([gguf.TokenType.NORMAL] * len(tokens))
        writer.add_token_merges([" ".join(tokens[97:99])])  # llama.cpp wants one at least
        writer.add_eos_token_id(0)
    else:
        writer.add_tokenizer_model("no_vocab")
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_BF16)
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    stored = []
    for name, parts in merged(checkpoint):
        if parts[0].ndim == 1 or "ffn_gate_inp" in name:  # llama.cpp wants norms and routers in fp32
            parts = [(part.astype("uint32") << 16).view("float32") for part in parts]
            raw = None
        else:
            parts = [part.view("uint8") for part in parts]
            raw = gguf.GGMLQuantizationType.BF16
        shape = parts[0].shape if len(parts) == 1 else (len(parts), *parts[0].shape)
        writer.add_tensor_info(name, shape, parts[0].dtype, sum(part.nbytes for part in parts), raw_dtype=raw)
        stored.append(parts)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for parts in stored:
        writer.write_tensor_data(parts[0] if len(parts) == 1 else np.stack(parts))
    writer.close()


def quantize(source: Path, out: Path, kind: str) -> None:
    import llama_cpp as llama

    options = llama.llama_model_quantize_default_params()
    options.ftype = getattr(llama, f"LLAMA_FTYPE_MOSTLY_{kind}")
    options.nthread = len(os.sched_getaffinity(0))
    if llama.llama_model_quantize(str(source).encode(), str(out).encode(), options) != 0:
        sys.exit(f"llama.cpp could not quantise {source} to {kind}")


def token_bytes(path: Path) -> int:
    """Every tensor once, of experts the chosen ones; of an embedding that is not the head as well, one row, which is
    nothing."""
    reader = gguf.GGUFReader(path)
    architecture = reader.get_field("general.architecture").contents()
    used = reader.get_field(f"{architecture}.expert_used_count")
    untied = any(tensor.name == "output.weight" for tensor in reader.tensors)

    def read(tensor: gguf.ReaderTensor) -> int:
        if untied and tensor.name == "token_embd.weight":
            return 0
        if "_exps." not in tensor.name:
            return int(tensor.n_bytes)
        return int(tensor.n_bytes) // int(tensor.shape[-1]) * used.contents()

    return sum(map(read, reader.tensors))


kind, source, out = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
partial = out.with_suffix(".partial")
if kind in ("bf16", "bf16+words"):
    write_bf16(source, partial, with_words=kind == "bf16+words")
else:
    quantize(source, partial, kind)
partial.rename(out)
print(json.dumps({"token_bytes": token_bytes(out)}))
