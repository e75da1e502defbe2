"""GGUF files of a random checkpoint, in llama.cpp's environment.

    python make_gguf.py bf16 CHECKPOINT OUT.gguf
    python make_gguf.py Q4_0|Q8_0 BF16.gguf OUT.gguf

Quantised with llama.cpp's own defaults: the head, which is also the embedding below 8B, stays in 6 bits in Q4_0.
Prints the bytes that one token reads.
"""

import json
import os
import sys
from pathlib import Path

import gguf

sys.path.insert(0, str(Path(__file__).parent.parent))
from compare.checkpoint import read_tensors
from compare.shapes import head_dim_of

ARCHITECTURES = {"qwen3": "qwen3", "qwen2": "qwen2", "llama": "llama", "mistral": "llama"}  # by model_type
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
    return f"blk.{layer}.{NAMES['.'.join(middle)]}.{kind}"


def write_bf16(checkpoint: Path, out: Path) -> None:
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
    writer.add_vocab_size(config["vocab_size"])
    writer.add_tokenizer_model("no_vocab")
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_BF16)
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    stored = []
    for name, tensor in read_tensors(checkpoint):
        if tensor.ndim == 1:  # llama.cpp wants norms in fp32
            data = (tensor.astype("uint32") << 16).view("float32")
            writer.add_tensor_info(gguf_name(name), data.shape, data.dtype, data.nbytes)
        else:
            data = tensor.view("uint8")
            kind = gguf.GGMLQuantizationType.BF16
            writer.add_tensor_info(gguf_name(name), data.shape, data.dtype, data.nbytes, raw_dtype=kind)
        stored.append(data)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for data in stored:
        writer.write_tensor_data(data)
    writer.close()


def quantize(source: Path, out: Path, kind: str) -> None:
    import llama_cpp as llama

    options = llama.llama_model_quantize_default_params()
    options.ftype = getattr(llama, f"LLAMA_FTYPE_MOSTLY_{kind}")
    options.nthread = len(os.sched_getaffinity(0))
    if llama.llama_model_quantize(str(source).encode(), str(out).encode(), options) != 0:
        sys.exit(f"llama.cpp could not quantise {source} to {kind}")


def token_bytes(path: Path) -> int:
    """Every tensor once; of an embedding that is not the head as well, one row, which is nothing."""
    tensors = gguf.GGUFReader(path).tensors
    untied = any(tensor.name == "output.weight" for tensor in tensors)
    return sum(int(tensor.n_bytes) for tensor in tensors if not (untied and tensor.name == "token_embd.weight"))


kind, source, out = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
partial = out.with_suffix(".partial")
if kind == "bf16":
    write_bf16(source, partial)
else:
    quantize(source, partial, kind)
partial.rename(out)
print(json.dumps({"token_bytes": token_bytes(out)}))
