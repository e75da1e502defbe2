"""Speculative decoding: a small draft model proposes tokens, one run of the target's verify graph judges all of them.

tcim-lite compile HF_DIR -o OUT --draft SMALLER_HF_DIR
python examples/qwen3_speculative.py OUT --question "What is 12 + 30?"
python examples/qwen3_speculative.py OUT --accept classic --temperature 0.8 --seed 1
"""

import argparse
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

import tcim_lite.runtime as tcim
from tcim_lite.console import run_program
from tcim_lite.llm import (
    Generator,
    Package,
    Sampler,
    context_length,
    encode_chat,
    load_pair,
    load_tokenizer,
    prefill,
    run_graph,
)

QUESTIONS = ["What is 12 + 30?", "Repeat after me: the quick brown fox", "Hello, who are you?"]


@dataclass
class Stats:
    proposed: int = 0
    accepted: int = 0
    verify_runs: int = 0
    tokens: int = 0
    seconds: float = 0.0

    def __str__(self) -> str:
        rate = f"{self.accepted / self.proposed:.1%}" if self.proposed else "no proposals"
        return (
            f"{self.tokens} tokens in {self.verify_runs} runs of the target | {self.accepted} of {self.proposed} "
            f"proposals accepted ({rate}) | {self.tokens / self.seconds if self.seconds else 0:.0f} tok/s"
        )


class Draft:
    """The small model. `cached` says how many tokens of the text its caches hold."""

    def __init__(self, package: Package, sampler: Sampler, margin: float, rng: np.random.Generator):
        modules = load_pair(package.prefill_path, package.decode_path, tcim.WeightManager(0))
        self.model = Generator(*modules, package.embedding_for(modules[0]))
        self.sampler, self.margin, self.rng = sampler, margin, rng
        self.cached = 0

    def start(self, prompt: Sequence[int]) -> None:
        self.model.prefill(prompt)
        self.cached = len(prompt)

    def propose(self, text: Sequence[int], count: int) -> tuple[list[int], list[np.ndarray]]:
        """Up to `count` tokens that may follow `text`, each with the probabilities [V] it was drawn from."""
        tokens, probabilities = [], []
        while len(tokens) < count:
            for token in [*text, *tokens][self.cached :]:  # what was accepted since, then its own last proposal
                logits = self.model.decode(token, self.cached)
                self.cached += 1
            probabilities.append(self.sampler.probabilities(logits))
            tokens.append(int(self.rng.choice(logits.size, p=probabilities[-1])))
            first, second = np.partition(logits, (-2, -1))[[-1, -2]]
            if first - second < self.margin:
                break  # unsure: the target would probably reject whatever comes after this
        return tokens, probabilities


def accept_fast(proposed: Sequence[int], logits: np.ndarray) -> tuple[int, int]:
    """Accepts proposals while they are what the target would have said; returns how many, and the target's next token.

    Args:
        proposed: Up to T - 1 tokens.
        logits: Of the target, [len(proposed) + 1, V]; row i is what it says after i proposals.
    """
    choices = logits.argmax(-1)
    accepted = next((i for i, token in enumerate(proposed) if token != choices[i]), len(proposed))
    return accepted, int(choices[accepted])


def accept_classic(
    proposed: Sequence[int], drafted: Sequence[np.ndarray], wanted: Sequence[np.ndarray], rng: np.random.Generator
) -> tuple[int, int]:
    """Accepts a proposal with probability wanted / drafted, so that the answer is distributed as the target's own.

    Args:
        proposed: Up to T - 1 tokens.
        drafted: Probabilities [V] that each proposal was drawn from.
        wanted: Probabilities [V] of the target, one more than proposals.
        rng: The source of chance.

    Returns:
        As `accept_fast`.
    """
    for i, (token, q, p) in enumerate(zip(proposed, drafted, wanted, strict=False)):
        if rng.random() * q[token] >= p[token]:
            rest = np.maximum(p - q, 0)  # what the draft had too little of
            return i, int(rng.choice(rest.size, p=rest / rest.sum()))
    return len(proposed), int(rng.choice(wanted[-1].size, p=wanted[-1]))


class Speculator:
    """Draft and target. The target's prefill graph owns the caches, its verify graph is bound to them."""

    def __init__(self, package: Package, args: argparse.Namespace):
        draft_package, verify_path = package.draft, package.graph("verify.hmm")  # --draft makes both
        self.prefill, self.verify = load_pair(package.prefill_path, verify_path, tcim.WeightManager(0))
        self.embedding = package.embedding_for(self.prefill)
        self.length = self.verify.get_input_info(self.verify.get_input_name(0)).shape[1]  # T
        self.context = context_length(self.verify)
        self.rng = np.random.default_rng(args.seed)
        # "fast" is greedy on both sides; "classic" samples on both.
        self.sampler = Sampler(args.temperature, args.top_k, args.top_p) if args.accept == "classic" else Sampler()
        self.draft = Draft(draft_package, self.sampler, args.margin if args.accept == "fast" else 0.0, self.rng)
        if len(self.draft.model._embedding) != len(self.embedding):
            raise ValueError(
                "draft and target have different vocabularies; compile a draft with the target's tokenizer"
            )
        self.fast = args.accept == "fast"

    def generate(
        self, prompt: Sequence[int], stop_tokens: Collection[int], limit: int | None, stats: Stats
    ) -> Iterator[int]:
        """Yields the answer. Rejected rows stay in the caches; lengths alone say what is valid."""
        started = time.perf_counter()
        logits = prefill(self.prefill, self.embedding, prompt)
        self.draft.start(prompt)
        text = list(prompt)
        fresh = [int(self.rng.choice(logits.size, p=self.sampler.probabilities(logits)))]
        while True:
            for token in fresh:
                stats.seconds += time.perf_counter() - started
                if token in stop_tokens:
                    return
                stats.tokens += 1
                text.append(token)
                yield token
                started = time.perf_counter()
            answered = len(text) - len(prompt)
            if answered == limit or len(text) > self.context:
                return
            # The last token of the text is not in the caches yet; it runs with the proposals.
            room = min(self.length - 1, self.context - len(text), self.draft.model.context_length - len(text))
            room = room if limit is None else min(room, limit - answered - 1)
            proposed, drafted = self.draft.propose(text, room)
            rows = np.zeros((1, self.length, self.embedding.shape[1]), self.embedding.dtype)
            current = 1 + len(proposed)
            rows[0, :current] = self.embedding[[text[-1], *proposed]]
            logits = run_graph(self.verify, rows, len(text) - 1, current)[0, :current]
            if self.fast:
                accepted, token = accept_fast(proposed, logits)
            else:
                wanted = [self.sampler.probabilities(row) for row in logits]
                accepted, token = accept_classic(proposed, drafted, wanted, self.rng)
            self.draft.cached = min(self.draft.cached, len(text) + accepted)
            fresh = [*proposed[:accepted], token]
            stats.verify_runs += 1
            stats.proposed += len(proposed)
            stats.accepted += accepted


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("package", help="folder written by `tcim-lite compile --draft HF_DIR`")
    parser.add_argument("--name", help="package name, when the folder holds several")
    parser.add_argument("--question", action="append", help="repeatable. Default: three for the demo model")
    parser.add_argument("--raw", action="store_true", help="give the question to the model without a chat template")
    parser.add_argument("--max-new-tokens", type=int, help="limit per answer; default: until eos or a full context")
    parser.add_argument(
        "--accept",
        choices=("fast", "classic"),
        default="fast",
        help="fast (default): greedy, exactly the target's tokens; classic: sampling, the target's distribution",
    )
    parser.add_argument("--margin", type=float, default=1.0, help="fast: stop proposing below this top-2 logit margin")
    parser.add_argument("--temperature", type=float, default=1.0, help="classic: of draft and target (default: 1)")
    parser.add_argument("--top-k", type=int, default=0, help="classic: the k likeliest tokens; 0 (default): all")
    parser.add_argument(
        "--top-p", type=float, default=1.0, help="classic: the likeliest that reach p; 1 (default): all"
    )
    parser.add_argument("--seed", type=int, help="classic: equal seeds give equal answers")
    parser.add_argument("--show-tokens", action="store_true", help="print token ids instead of text")
    args = parser.parse_args()
    if args.max_new_tokens is not None and args.max_new_tokens < 1:
        parser.error(f"--max-new-tokens {args.max_new_tokens}: expected at least 1")

    package = Package.open(args.package, args.name)
    speculator = Speculator(package, args)
    tokenizer = load_tokenizer(package.tokenizer_folder)
    total = Stats()
    for question in args.question or QUESTIONS:
        prompt = encode_chat(tokenizer, [{"role": "user", "content": question}], raw=args.raw or None)
        tokens = list(speculator.generate(prompt, package.stop_tokens(tokenizer), args.max_new_tokens, total))
        print(f"> {question}")
        print(f"  {tokens if args.show_tokens else tokenizer.decode(tokens, skip_special_tokens=True)}", flush=True)
    print(total)


if __name__ == "__main__":
    run_program(main)
