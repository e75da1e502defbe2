"""GGUF files, as llama.cpp takes them: their tensors, config and tokenizer in the terms of Hugging Face."""

from .checkpoint import GgufCheckpoint, is_gguf

__all__ = ["GgufCheckpoint", "is_gguf"]
