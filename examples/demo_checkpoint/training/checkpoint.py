"""Writes the trained parameters as a checkpoint folder that transformers loads."""

import shutil

import torch
from model import CONFIG
from rows import END, PAD
from transformers import GenerationConfig, Qwen3Config, Qwen3ForCausalLM


def save_checkpoint(parameters, tokenizer_folder, out):
    """`parameters` by their transformers names, any float type; saved in bf16 beside the tokenizer's files."""
    settings = {k: v for k, v in CONFIG.items() if k != "rope_theta"}
    config = Qwen3Config(
        **settings,
        rope_parameters={"rope_type": "default", "rope_theta": CONFIG["rope_theta"]},
        tie_word_embeddings=True,
        attention_bias=False,
        bos_token_id=None,
        eos_token_id=END,
        pad_token_id=PAD,
        dtype="bfloat16",
    )
    model = Qwen3ForCausalLM(config)
    state = {name: value.detach().cpu().to(torch.bfloat16) for name, value in parameters.items()}
    missing = model.load_state_dict(state, strict=False)
    if missing.unexpected_keys or set(missing.missing_keys) - {"lm_head.weight"}:
        raise ValueError(f"parameters do not fit the model: {missing}")
    model = model.to(torch.bfloat16)
    model.tie_weights()
    model.generation_config = GenerationConfig(eos_token_id=END, pad_token_id=PAD, do_sample=False, max_new_tokens=128)
    out.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(out)
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        if (tokenizer_folder / name).resolve() != (out / name).resolve():
            shutil.copy(tokenizer_folder / name, out / name)
