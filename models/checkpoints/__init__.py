"""Checkpoints, as tensors by name: of Hugging Face, packed by GPTQ, AWQ or MXFP4, in GGUF files, or from the hub."""
