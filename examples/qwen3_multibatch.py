"""Answer a queue of questions several at a time: a decode graph with B slots, each refilled as soon as its answer ends.

tcim-lite compile HF_DIR -o OUT --batch 4
python examples/qwen3_multibatch.py OUT --question "What is 12 + 30?" --question "Reverse: 1 2 3" ...
"""

import argparse
import sys
import time
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, field

import numpy as np

import tcim_lite.runtime as tcim
from tcim_lite.console import run_main
from tcim_lite.llm import Package, Sampler, context_length, encode_chat, load_tokenizer, prefill, takes_positions

QUESTIONS = [
    "What is 12 + 30?",
    "Repeat after me: the quick brown fox jumps over the lazy dog",
    "Reverse: 1 2 3 4 5",
    "Hello, who are you?",
    "7加5等于多少？",
    "Reverse the list apple, banana, cherry",
    "What is 345 plus 678?",
    "Repeat after me: one",
]


@dataclass
class Request:
    question: str
    prompt: list[int]
    tokens: list[int] = field(default_factory=list)  # of the answer


@dataclass
class Slot:
    """One lane of the decode graph: the names of its inputs, and what it works on."""

    valid: str
    current: str
    caches: list[str]
    request: Request | None = None
    cached: int = 0  # tokens in its caches


class BatchDecoder:
    """A prefill graph for one prompt and a decode graph for B answers. The caches belong to decode."""

    def __init__(self, package: Package, sampler: Sampler):
        weights = tcim.WeightManager(0)
        self.decode = tcim.load(str(package.decode_path), option=tcim.Option(weights))
        self.slots = self._slots()
        # Slot 0 has the plain names, those of prefill. Declared as dummies, they cost prefill no memory.
        option = tcim.Option(weights).set_dummy_tensors(self.slots[0].caches)
        self.prefill = tcim.load(str(package.prefill_path), option=option)
        self.embedding = package.embedding_for(self.prefill)
        self.context = context_length(self.prefill)
        self.sampler = sampler
        for slot in self.slots:  # set once: inputs keep their value
            self.decode.set_input(slot.current, np.array([1], np.int32))

    def _slots(self) -> list[Slot]:
        """After input 0, the rows [B, 1, H], every slot has valid length, current length and its caches."""
        if takes_positions(self.decode):
            raise ValueError("this package was compiled with --position-ids, which no graph of several slots has")
        batch = self.decode.get_input_info(self.decode.get_input_name(0)).shape[0]
        names = [self.decode.get_input_name(i) for i in range(1, self.decode.get_num_inputs())]
        each = len(names) // batch
        lanes = [names[begin : begin + each] for begin in range(0, len(names), each)]
        return [Slot(valid, current, caches) for valid, current, *caches in lanes]

    def start(self, slot: Slot, request: Request) -> int:
        """Prefills the request's prompt straight into the slot's caches; returns the first token of the answer."""
        for ours, theirs in zip(self.slots[0].caches, slot.caches, strict=True):
            self.prefill.set_dev_input(ours, self.decode.get_dev_input(theirs))
        logits = prefill(self.prefill, self.embedding, request.prompt)
        slot.request, slot.cached = request, len(request.prompt)
        return self.sampler(logits)

    def step(self) -> dict[int, int]:
        """Runs one token of every busy slot; returns the next token by slot number."""
        # An idle slot runs too: a zero row at position 0 of its caches, which the next prompt overwrites.
        rows = np.zeros((len(self.slots), 1, self.embedding.shape[1]), self.embedding.dtype)
        for slot, row in zip(self.slots, rows, strict=True):
            if slot.request:
                row[0] = self.embedding[slot.request.tokens[-1]]
            self.decode.set_input(slot.valid, np.array([slot.cached if slot.request else 0], np.int32))
        self.decode.set_input(self.decode.get_input_name(0), rows)
        self.decode.run()
        self.decode.sync()
        logits = self.decode.get_output(self.decode.get_output_name(0)).numpy()  # [B, 1, V]
        busy = [number for number, slot in enumerate(self.slots) if slot.request]
        for number in busy:
            self.slots[number].cached += 1
        return {number: self.sampler(logits[number]) for number in busy}


def serve(
    decoder: BatchDecoder, requests: list[Request], stop_tokens: Collection[int], limit: int | None, done
) -> dict[str, float]:
    """Answers all requests, calls done(slot number, request) as each ends, and returns what it cost."""
    for request in requests:
        if not 0 < len(request.prompt) <= decoder.context:
            raise ValueError(
                f"{request.question!r:.60} has {len(request.prompt)} tokens, the context holds {decoder.context}; "
                "shorten it or compile with a larger --context-length"
            )
    queue = deque(requests)
    steps = busy_slots = 0
    decode_s, started = 0.0, time.perf_counter()

    def take(number: int, token: int) -> None:
        """Adds a token to the slot's answer, or ends the answer and frees the slot."""
        slot = decoder.slots[number]
        request = slot.request
        if token not in stop_tokens:
            request.tokens.append(token)
            if len(request.tokens) != limit and slot.cached < decoder.context:
                return
        slot.request = None
        done(number, request)

    while True:
        for number, slot in enumerate(decoder.slots):
            while queue and slot.request is None:  # an answer may end with its first token
                take(number, decoder.start(slot, queue.popleft()))
        if all(slot.request is None for slot in decoder.slots):
            break
        begin = time.perf_counter()
        tokens = decoder.step()
        decode_s += time.perf_counter() - begin
        steps, busy_slots = steps + 1, busy_slots + len(tokens)
        for number, token in tokens.items():
            take(number, token)
    total_s = time.perf_counter() - started
    return {
        "steps": steps,
        "occupancy": busy_slots / (steps * len(decoder.slots)) if steps else 0.0,
        "decode_rate": busy_slots / decode_s if steps else 0.0,
        "total_rate": sum(len(request.tokens) for request in requests) / total_s,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("package", help="folder written by `tcim-lite compile --batch B`")
    parser.add_argument("--name", help="package name, when the folder holds several")
    parser.add_argument("--question", action="append", help="one request; repeat it. Default: eight for the demo model")
    parser.add_argument("--raw", action="store_true", help="give the question to the model without a chat template")
    parser.add_argument("--max-new-tokens", type=int, help="limit per answer; default: until eos or a full context")
    parser.add_argument("--temperature", type=float, default=0.0, help="0 (default) is greedy")
    parser.add_argument("--seed", type=int, help="for a temperature above 0")
    parser.add_argument("--show-tokens", action="store_true", help="print token ids instead of text")
    args = parser.parse_args()
    if args.max_new_tokens is not None and args.max_new_tokens < 1:
        parser.error(f"--max-new-tokens {args.max_new_tokens}: expected at least 1")

    try:
        package = Package.open(args.package, args.name)
        decoder = BatchDecoder(package, Sampler(args.temperature, seed=args.seed))
        tokenizer = load_tokenizer(package.tokenizer_folder)
        requests = [
            Request(question, encode_chat(tokenizer, [{"role": "user", "content": question}], raw=args.raw or None))
            for question in args.question or QUESTIONS
        ]
        print(f"{package.name}: {len(decoder.slots)} slots, {len(requests)} requests, context {decoder.context} tokens")
        if len(decoder.slots) == 1:
            print("  the decode graph has one slot; compile with --batch 4 to answer four questions at a time")

        def show(slot: int, request: Request) -> None:
            answer = request.tokens if args.show_tokens else tokenizer.decode(request.tokens, skip_special_tokens=True)
            print(f"[slot {slot}] {request.question}\n  {answer}", flush=True)

        cost = serve(decoder, requests, package.stop_tokens(tokenizer), args.max_new_tokens, show)
        print(
            f"{cost['steps']} decode steps, slots busy {cost['occupancy']:.0%} | "
            f"decode {cost['decode_rate']:.0f} tok/s | with prefill {cost['total_rate']:.0f} tok/s"
        )
    except (OSError, ValueError, ImportError, RuntimeError) as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    run_main(main)
