"""Writes the tokenizer: byte-level BPE with Qwen's pre-tokenizer, merges learnt from the words of the demo tasks.

Chinese is fed one character at a time: reversing and copying see characters, and no name is glued to its neighbour.
"""

import argparse
import collections
import random
import re
from pathlib import Path

import words
from dialogues import conversation
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import Qwen2TokenizerFast

VOCABULARY = 1536
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
QWEN_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
CHAT_TEMPLATE = (
    "{%- for message in messages -%}"
    "{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' -}}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}"
)


def corpus():
    """Pieces with counts: the square root of their frequency, so that rare names still become one token."""
    rng = random.Random(20)
    counts = collections.Counter()
    for _ in range(12000):
        system, turns = conversation(rng, 256)
        text = "\n".join([system or ""] + [part for turn in turns for part in turn])
        counts.update(re.findall(r" ?[A-Za-z]+|[^\x00-\x7f]", text))
    for word in words.FIRST_NAMES + words.LAST_NAMES + words.WORDS + words.CITIES:
        counts[word] += 200
        counts[" " + word] += 200
    for word in ["user", "assistant", "system"]:
        counts[word] += 100000
    for piece, count in sorted(counts.items()):
        if count >= 30:
            yield from [piece] * int(count**0.5)


def build():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(QWEN_SPLIT), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[AddedToken(token, special=True, normalized=False) for token in SPECIAL],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(corpus(), trainer)
    return tokenizer


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path(__file__).resolve().parent.parent)
    out = parser.parse_args().out
    tokenizer = Qwen2TokenizerFast(
        tokenizer_object=build(),
        unk_token=None,
        bos_token=None,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        model_max_length=2048,
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    tokenizer.save_pretrained(out)
    print(f"{len(tokenizer)} tokens written to {out}")


if __name__ == "__main__":
    main()
