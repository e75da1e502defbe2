"""Keep the KV caches of long prompts on the host, so that the next prompt that begins alike skips most of its prefill.

tcim-lite compile HF_DIR -o OUT
python examples/qwen3_prefix_cache.py OUT
python examples/qwen3_prefix_cache.py OUT --no-cache      # the same answers, the whole prefill
"""

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import tcim_lite.runtime as tcim
from tcim_lite.console import run_main
from tcim_lite.llm import (
    Generator,
    Package,
    Sampler,
    cache_names,
    common_prefix,
    encode_chat,
    load_pair,
    load_tokenizer,
)

NAMES = "Alice Bob Carol Dave Erin Frank Grace Heidi Ivan Judy Mallory Nina Oscar Peggy Rupert Sybil Trent Victor"
# Two phone books. Asked in turns, each question finds the other book's rows on the device.
DOCUMENTS = ["\n".join(f"{name}: {first + 7 * i}" for i, name in enumerate(NAMES.split())) for first in (5551, 2201)]
QUESTIONS = ["What is the number of Bob?", "What is the number of Victor?", "What is the number of Judy?"]


class PrefixCache:
    """Cache rows of finished conversations, on the host, the least recently used dropped first.

    Rows depend on the tokens before them and on nothing else, so any common beginning can be taken over.
    """

    def __init__(self, module: tcim.Module, capacity_bytes: int):
        self._module, self._capacity = module, capacity_bytes
        self._entries: dict[tuple[int, ...], dict[str, np.ndarray]] = {}  # name -> [1, Hkv, tokens, D]

    @property
    def used_bytes(self) -> int:
        return sum(rows.nbytes for entry in self._entries.values() for rows in entry.values())

    def restore(self, prompt: Sequence[int]) -> int:
        """Writes the longest stored beginning of `prompt` into the module's caches; returns its length.

        At least one token is left for prefill: it makes the logits.
        """
        entry = max(self._entries, key=lambda stored: common_prefix(stored, prompt), default=())
        matched = min(common_prefix(entry, prompt), len(prompt) - 1)
        if matched:
            self._entries[entry] = self._entries.pop(entry)  # most recently used last
            for name, rows in self._entries[entry].items():
                info = self._module.get_input_info(name)
                whole = np.zeros(info.shape, info.dtype)  # rows beyond the valid length are never read
                whole[:, :, :matched] = rows[:, :, :matched]
                self._module.set_input(name, whole)  # copied into the buffer that decode is bound to as well
        return matched

    def store(self, tokens: Sequence[int]) -> None:
        """Reads the rows of `tokens`, which the module's caches hold now, back to the host."""
        if any(common_prefix(entry, tokens) == len(tokens) for entry in self._entries):
            return  # a stored one begins with all of these
        self._entries[tuple(tokens)] = {
            name: self._module.get_dev_input(name).to_host(True).numpy()[:, :, : len(tokens)].copy()
            for name in cache_names(self._module)
        }
        while self.used_bytes > self._capacity:
            del self._entries[next(iter(self._entries))]


def read_document(path: Path) -> str:
    if (path.exists() and not path.is_file()) or path.stat().st_size > 16 << 20:
        raise ValueError(f"--document {path}: expected a text file of at most 16 MiB")
    return path.read_text(encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("package", help="folder written by `tcim-lite compile`")
    parser.add_argument("--name", help="package name, when the folder holds several")
    parser.add_argument(
        "--document", action="append", type=Path, help="text file that every question is asked about; repeatable"
    )
    parser.add_argument("--question", action="append", help="asked about each document; repeat it")
    parser.add_argument("--raw", action="store_true", help="give the question to the model without a chat template")
    parser.add_argument("--max-new-tokens", type=int, help="limit per answer; default: until eos or a full context")
    parser.add_argument("--capacity-mb", type=float, default=1024, help="host memory for cache rows (default: 1024)")
    parser.add_argument("--no-cache", action="store_true", help="prefill every prompt from its first token")
    args = parser.parse_args()
    if not 0 <= args.capacity_mb < float("inf"):
        parser.error(f"--capacity-mb {args.capacity_mb}: expected 0 or more")

    try:
        documents = [read_document(path) for path in args.document] if args.document else DOCUMENTS
        package = Package.open(args.package, args.name)
        prefill, decode = load_pair(package.prefill_path, package.decode_path, tcim.WeightManager(0))
        tokenizer = load_tokenizer(package.tokenizer_folder)
        stop_tokens = package.stop_tokens(tokenizer)
        generator = Generator(prefill, decode, package.embedding_for(prefill))
        cache = PrefixCache(prefill, 0 if args.no_cache else int(args.capacity_mb * 1e6))
        prompt_tokens = restored_tokens = 0
        restore_s = prefill_s = 0.0
        for question in args.question or QUESTIONS:
            for number, document in enumerate(documents, 1):
                prompt = encode_chat(
                    tokenizer, [{"role": "user", "content": f"{document}\n{question}"}], raw=args.raw or None
                )
                started = time.perf_counter()
                matched = cache.restore(prompt)
                restored_s = time.perf_counter() - started
                # What the device holds already: the rows just restored, and nothing else.
                generator.cached_tokens = prompt[:matched]
                tokens = list(generator.generate(prompt, Sampler(), args.max_new_tokens, stop_tokens))
                if not args.no_cache:
                    cache.store(generator.cached_tokens)  # prompt and answer: a next turn begins with both
                stats = generator.stats
                print(f"[document {number}] {question}\n  {tokenizer.decode(tokens, skip_special_tokens=True)}")
                print(
                    f"  [{stats.prompt_tokens} prompt tokens, {matched} restored in {restored_s * 1e3:.1f} ms, "
                    f"{stats.prompt_tokens - matched} prefilled in {stats.prefill_s * 1e3:.1f} ms]",
                    flush=True,
                )
                prompt_tokens, restored_tokens = prompt_tokens + len(prompt), restored_tokens + matched
                restore_s, prefill_s = restore_s + restored_s, prefill_s + stats.prefill_s
        prefilled = prompt_tokens - restored_tokens
        print(
            f"{prompt_tokens} prompt tokens: {restored_tokens} restored in {restore_s * 1e3:.1f} ms, {prefilled} "
            f"prefilled in {prefill_s * 1e3:.1f} ms | host cache {cache.used_bytes / 1e6:.1f} MB"
        )
        if not restored_tokens:
            return
        # Attention makes late tokens dearer than early ones, hence "about"; --no-cache measures it.
        saved_s = restored_tokens * prefill_s / prefilled - restore_s
        print(f"saved {restored_tokens / prompt_tokens:.0%} of the prefill, about {saved_s * 1e3:.0f} ms")
    except (OSError, ValueError, ImportError, RuntimeError) as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    run_main(main)
