"""Qwen3 dense, 0.6B to 32B."""
