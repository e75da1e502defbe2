"""What makes a network an encoder of texts, and which files it needs; for the compiler and for programs."""

from __future__ import annotations

# The input for ids of tokens, as every exporter calls it.
TOKENS = "input_ids"
# Files of a checkpoint that an encoder cannot do without.
NEEDED_FILES = ("tokenizer.json", "config.json")
# How a vector is made of hidden states, as sentence-transformers calls it, in the order in which several are joined.
POOLINGS = ("cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken")
