"""The host side of an LLM: what a program around the runtime does between text and tensors.

Everything here uses the public `tcim_lite.runtime` API and would run on the real one. numpy is enough, except for
`load_tokenizer`, which needs the extra `[chat]`.
"""

from .carried import clear_carried, share_carried
from .generate import GenerationStats, Generator, LanguageModel
from .generation_defaults import GenerationDefaults
from .kv_cache import cache_names, load_pair, share_kv_cache
from .masks import Masks, attention_mask, mask_names, takes_masks
from .package import Package
from .ports import Lane, lanes_of
from .prompt import (
    common_prefix,
    context_length,
    last_logits,
    prefill,
    prompt_chunks,
    run_graph,
    set_positions,
    takes_positions,
)
from .sampling import Sampler
from .text_stream import TextStream, print_answer
from .tokenizer import encode_chat, load_tokenizer

__all__ = [
    "GenerationDefaults",
    "GenerationStats",
    "Generator",
    "Lane",
    "LanguageModel",
    "Masks",
    "Package",
    "Sampler",
    "TextStream",
    "attention_mask",
    "cache_names",
    "clear_carried",
    "common_prefix",
    "context_length",
    "encode_chat",
    "lanes_of",
    "last_logits",
    "load_pair",
    "load_tokenizer",
    "mask_names",
    "prefill",
    "print_answer",
    "prompt_chunks",
    "run_graph",
    "set_positions",
    "share_carried",
    "share_kv_cache",
    "takes_masks",
    "takes_positions",
]
