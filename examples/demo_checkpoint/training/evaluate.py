"""Exact-match accuracy of a checkpoint on held-out prompts, in float or under fake quantisation.

Greedy decoding gives the expected answer exactly when, with the answer fed in, the best token at every answer position
is the expected one. So one forward pass per prompt decides it.
"""

import argparse
import json
from pathlib import Path

import torch
from dialogues import LANGUAGES, TASKS, heldout
from quantize import PROFILES, quantize_activation, quantize_w4, quantize_w8
from transformers import AutoTokenizer, Qwen3ForCausalLM

# Prompt lengths in tokens, chat template included.
LOOKUP_BUCKETS = {"lookup <256": (0, 256), "lookup 256-1024": (256, 1024), "lookup 1024-1900": (1024, 1900)}


def prompt_set(tokenizer, count, seed=0):
    """{(row, language): [(prompt ids, answer ids, messages, answer)]}, `count` prompts each."""
    out = {}
    for language in LANGUAGES:
        for task in TASKS:
            if task == "letters" and language != "en":
                continue
            for row, (low, high) in LOOKUP_BUCKETS.items() if task == "lookup" else [(task, (0, 1900))]:
                cases, number = [], seed * 1_000_000
                while len(cases) < count:
                    number += 1
                    # An aim inside the bucket; what lands outside is dropped.
                    aim = low + 30 + (number * 7919) % (high - low) * 0.95 if task == "lookup" else None
                    messages, answer = heldout(task, language, number, aim)
                    ids = tokenizer.apply_chat_template(messages, add_generation_prompt=True)["input_ids"]
                    if low <= len(ids) < high:
                        target = [*tokenizer.encode(answer), tokenizer.eos_token_id]
                        cases.append((ids, target, messages, answer))
                out[row, language] = cases
    return out


def quantise_model(model, profile):
    """Replaces the Linear weights by their dequantised values and quantises every Linear's input."""
    if profile == "none":
        return
    model.lm_head.weight = torch.nn.Parameter(quantize_w8(model.lm_head.weight.data).to(model.dtype))
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Linear):
            if name != "lm_head":
                weight = module.weight.data
                weight = quantize_w4(weight, torch.float64) if profile.startswith("w4") else quantize_w8(weight)
                module.weight = torch.nn.Parameter(weight.to(model.dtype))
            module.register_forward_pre_hook(lambda _, inputs: (quantize_activation(inputs[0]),))


@torch.no_grad()
def right_answers(model, cases, device, tokens=16384):
    """One bool per case."""
    order = sorted(range(len(cases)), key=lambda i: len(cases[i][0]))
    right, batch = [False] * len(cases), []
    for position, index in enumerate(order):
        batch.append(index)
        width = len(cases[index][0]) + 64
        if position + 1 < len(order) and (len(batch) + 1) * width < tokens:
            continue
        rows = [[*cases[i][0], *cases[i][1]] for i in batch]
        ids = torch.zeros(len(rows), max(map(len, rows)), dtype=torch.long)
        for row, values in zip(ids, rows, strict=True):
            row[: len(values)] = torch.tensor(values)
        # Right padding is invisible to a causal model, so no mask is needed.
        best = model(ids.to(device), use_cache=False).logits.argmax(-1).cpu()
        for row, i in zip(best, batch, strict=True):
            prompt, target = cases[i][:2]
            right[i] = row[len(prompt) - 1 : len(prompt) - 1 + len(target)].tolist() == target
        batch = []
    return right


def watch_activations(model):
    """Returns a one-element list that follows the largest magnitude any module puts out."""
    largest = [0.0]

    def hook(_, __, output):
        if isinstance(output, torch.Tensor):
            largest[0] = max(largest[0], output.abs().max().item())

    for module in model.modules():
        module.register_forward_hook(hook)
    return largest


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--checkpoint", type=Path, default=Path(__file__).resolve().parent.parent)
    parser.add_argument("--quant", choices=PROFILES, nargs="+", default=list(PROFILES))
    parser.add_argument("--count", type=int, default=500, help="prompts per row and language")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--dtype", default="float32", choices=["float32", "float16", "bfloat16"])
    parser.add_argument("--show", type=int, default=0, help="print that many failures per row")
    parser.add_argument("--json", type=Path, help="also write the table here")
    args = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    tokenizer = AutoTokenizer.from_pretrained(args.checkpoint)
    cases = prompt_set(tokenizer, args.count, args.seed)
    table = {}
    for profile in args.quant:
        model = Qwen3ForCausalLM.from_pretrained(args.checkpoint, dtype=getattr(torch, args.dtype)).to(device).eval()
        quantise_model(model, profile)
        largest = watch_activations(model)
        for (row, language), group in cases.items():
            right = right_answers(model, group, device)
            table.setdefault(f"{row} {language}", {})[profile] = round(100 * sum(right) / len(right), 2)
            for case in [c for c, ok in zip(group, right, strict=True) if not ok][: args.show]:
                print(f"  wrong [{profile}] {row} {language}: {case[2][-1]['content'][-80:]!r} expects {case[3]!r}")
        print(f"{profile}: largest activation {largest[0]:.0f}")
    print(f"{'exact match %':24}" + "".join(f"{profile:>14}" for profile in args.quant))
    for row, values in table.items():
        print(f"{row:24}" + "".join(f"{values[profile]:14.1f}" for profile in args.quant), flush=True)
    if args.json:
        args.json.write_text(json.dumps(table, indent=1) + "\n")


if __name__ == "__main__":
    main()
