"""The host side of an LLM: what a program around the runtime does between text and tensors.

Everything here uses the public `tcim_lite.runtime` API and would run on the real one. numpy is enough, except for
`load_tokenizer`, which needs the extra `[chat]`.
"""

from .generate import GenerationStats, Generator
from .kv_cache import cache_names, share_kv_cache
from .package import Package, encode_chat, load_tokenizer
from .sampling import Sampler
from .text_stream import TextStream

__all__ = [
    "GenerationStats",
    "Generator",
    "Package",
    "Sampler",
    "TextStream",
    "cache_names",
    "encode_chat",
    "load_tokenizer",
    "share_kv_cache",
]
