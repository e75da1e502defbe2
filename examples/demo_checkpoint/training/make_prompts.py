"""Writes the prompts that the project's tests use: held-out questions as chat messages, with the expected answer."""

import argparse
import json
from pathlib import Path

from evaluate import LOOKUP_BUCKETS, prompt_set
from transformers import AutoTokenizer

# Rows of the table and prompts per language: 240 in all, 24 longer ones, 10 of them past 1,024 tokens.
COUNTS = {
    "arithmetic": 20,
    "copy": 18,
    "reverse": 20,
    "memory": 20,
    "smalltalk": 8,
    "not in list": 6,
    "lookup <256": 16,
    "lookup 256-1024": 7,
    "lookup 1024-1900": 5,
}
# Seed 0 is the published table.
SEED = 77


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    here = Path(__file__).resolve().parent
    parser.add_argument("--checkpoint", type=Path, default=here.parent)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    tokenizer = AutoTokenizer.from_pretrained(args.checkpoint)
    prompts = []
    for (row, language), cases in prompt_set(tokenizer, max(COUNTS.values()), SEED).items():
        for ids, _, messages, answer in cases[: COUNTS.get(row, 0)]:
            task = "lookup" if row in LOOKUP_BUCKETS else row
            entry = {"task": task, "language": language, "prompt_tokens": len(ids)}
            prompts.append(entry | {"messages": messages, "answer": answer})
    # One prompt per line keeps the file readable and its diffs small.
    lines = ",\n".join(json.dumps(prompt, ensure_ascii=False) for prompt in prompts)
    args.out.write_text(f"[\n{lines}\n]\n", encoding="utf-8")
    print(f"{len(prompts)} prompts written to {args.out}")


if __name__ == "__main__":
    main()
