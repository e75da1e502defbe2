"""Speculative decoding with a model's own MTP layer, step by step as the vendor's Qwen3.5 example does.

tcim-lite compile HF_DIR -o OUT --mtp
python examples/qwen3_5_mtp.py OUT --question "What is 12 + 30?"
"""

import argparse
import re
from collections.abc import Collection, Iterator, Sequence

import numpy as np

import tcim_lite.runtime as tcim
from tcim_lite.console import run_program
from tcim_lite.llm import Package, cache_names, encode_chat, load_tokenizer

STATE = re.compile(r"past_(conv_cache|recurrent_state)_(\w+)$")


class Graph:
    """A loaded graph whose inputs and outputs are found by what their names contain."""

    def __init__(self, path, weights: tcim.WeightManager, dummies: Sequence[str] = ()):
        option = tcim.Option(weights)
        option.set_dummy_tensors(list(dummies))
        self.module = tcim.load(str(path), option=option)
        self.inputs = [self.module.get_input_name(i) for i in range(self.module.get_num_inputs())]
        self.outputs = [self.module.get_output_name(i) for i in range(self.module.get_num_outputs())]
        self.states = [name for name in self.inputs if STATE.match(name)]

    def set(self, part: str, value) -> None:
        """Sets the input whose name contains `part`, in its shape and dtype."""
        (name,) = (name for name in self.inputs if part in name)
        info = self.module.get_input_info(name)
        self.module.set_input(name, np.asarray(value, info.dtype).reshape(info.shape))

    def rows(self, part: str, values: np.ndarray) -> None:
        """Sets rows of tokens, with zeros behind them."""
        (name,) = (name for name in self.inputs if part in name)
        padded = np.zeros(self.module.get_input_info(name).shape, values.dtype)
        padded[0, : len(values)] = values
        self.module.set_input(name, padded)

    def run(self, hidden: str) -> tuple[np.ndarray, np.ndarray]:
        """Returns the logits and the output whose name contains `hidden`, both by row."""
        self.module.run()
        self.module.sync()
        (name,) = (name for name in self.outputs if hidden in name)
        return tuple(self.module.get_output(output).numpy()[0] for output in ("logits", name))

    def take_states(self, source: "Graph", end: str) -> None:
        """Binds each state to what the last run of `source` gave, to the output whose name ends in `end`.

        What `source` updates in place is no output of it, but its input.
        """
        for name in self.states:
            kind, layer = STATE.match(name).groups()
            output = f"{kind}_out_{layer}{end}"
            if output in source.outputs:
                self.module.set_input(name, source.module.get_dev_output(output))
            elif source is not self:
                self.module.set_input(name, source.module.get_dev_input(name))


class MtpModel:
    """Prefill and verify graphs of the model, and prefill and decode graphs of its MTP layer."""

    def __init__(self, package: Package):
        weights = tcim.WeightManager(0)
        self.prefill = Graph(package.prefill_path, weights)
        self.draft_prefill = Graph(package.graph("prefill_mtp.hmm"), weights)
        caches = cache_names(self.prefill.module)
        # Of a package with several slots, decode takes one token of each.
        verify = package.graph("verify.hmm") if package.has("verify.hmm") else package.decode_path
        self.verify = Graph(verify, weights, dummies=caches)
        self.draft = Graph(package.graph("decode_mtp.hmm"), weights)
        for name in caches:
            self.verify.module.set_input(name, self.prefill.module.get_dev_input(name))
        for name in ("past_key_cache", "past_value_cache"):
            self.draft.module.set_input(name, self.draft_prefill.module.get_dev_input(name))
        self.chunk, self.length = (
            graph.module.get_input_info(graph.inputs[0]).shape[1] for graph in (self.prefill, self.verify)
        )
        self.context = self.prefill.module.get_input_info(caches[0]).shape[2]
        self.embedding = package.embedding_for(self.prefill.module)
        self.cached = self.drafted = 0  # tokens in the caches of the model and of the layer

    def run_target(self, graph: Graph, tokens: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
        """Logits [n, V] and hidden states [n, H] of tokens that follow those in the caches."""
        graph.rows("input_1", self.embedding[list(tokens)])
        _, length, _ = graph.module.get_input_info("input_1").shape
        for name in graph.inputs:
            if name.endswith("_position_ids"):  # Qwen3-Next has none
                graph.set(name, np.arange(self.cached, self.cached + length))
        graph.set("valid_length", self.cached)
        graph.set("current_length", len(tokens))
        graph.set("linear_attn_mask", np.arange(length) < len(tokens))
        logits, hidden = graph.run("post_norm_hidden")
        return logits[: len(tokens)], hidden[: len(tokens)]

    def run_draft(self, graph: Graph, tokens: Sequence[int], hidden: np.ndarray, cached: int):
        """Logits behind the last of `tokens`, and hidden states. `hidden` are those of the token before each."""
        graph.rows("next_token_embedding", self.embedding[list(tokens)])
        graph.rows("post_norm_hidden", hidden)
        graph.set("past_seq", cached)
        graph.set("current_", len(tokens))
        return graph.run("post_norm_out")

    def start(self, prompt: Sequence[int]) -> tuple[int, np.ndarray]:
        """Runs a prompt; returns the token that follows, and the hidden state [1, H] that it comes from."""
        for name in self.prefill.states:
            self.prefill.set(name, np.zeros(self.prefill.module.get_input_info(name).shape))
        self.cached = self.drafted = 0
        hidden = np.zeros((0, self.embedding.shape[1]), self.embedding.dtype)
        for begin in range(0, len(prompt), self.chunk):
            tokens = prompt[begin : begin + self.chunk]
            logits, found = self.run_target(self.prefill, tokens)
            self.prefill.take_states(self.prefill, "")
            self.cached += len(tokens)
            # The layer takes each token with the hidden state of the one before, so the prompt's first has no place.
            before = np.concatenate([hidden, found[:-1]])
            if len(before):
                self.run_draft(self.draft_prefill, tokens[-len(before) :], before, self.drafted)
                self.drafted += len(before)
            hidden = found[-1:]
        self.verify.take_states(self.prefill, "")
        return int(logits[-1].argmax()), hidden

    def propose(self, token: int, hidden: np.ndarray, count: int) -> list[int]:
        """`count` tokens that may follow `token`, each guessed from the one before and the layer's hidden state."""
        proposed = [token]
        for step in range(count):
            logits, hidden = self.run_draft(self.draft, proposed[-1:], hidden, self.drafted + step)
            proposed.append(int(logits[-1].argmax()))
        return proposed[1:]

    def judge(self, token: int, proposed: Sequence[int]) -> tuple[int, int, np.ndarray]:
        """How many proposals are what the model says, its token behind them, and the hidden state it comes from."""
        logits, hidden = self.run_target(self.verify, [token, *proposed])
        choices = logits.argmax(-1)
        accepted = next((i for i, guess in enumerate(proposed) if guess != choices[i]), len(proposed))
        # Caches forget what was refused by the length, states by taking those after the last accepted token.
        self.verify.take_states(self.verify, f"_{accepted}")
        if proposed and accepted == len(proposed):  # nothing was guessed from the last, so the layer has no row of it
            self.run_draft(self.draft, proposed[-1:], hidden[accepted - 1 : accepted], self.drafted + accepted)
        self.cached += 1 + accepted
        self.drafted += 1 + accepted
        return accepted, int(choices[accepted]), hidden[accepted : accepted + 1]

    def generate(
        self, prompt: Sequence[int], stop_tokens: Collection[int], limit: int | None, stats: dict[str, int]
    ) -> Iterator[int]:
        """Yields the answer."""
        token, hidden = self.start(prompt)
        fresh, answered = [token], 0
        while True:
            for token in fresh:
                if token in stop_tokens:
                    return
                yield token
                answered += 1
                if answered == limit:
                    return
            room = min(self.length, self.context - self.cached)
            if room < 1:
                return
            proposed = self.propose(token, hidden, room - 1)
            accepted, following, hidden = self.judge(token, proposed)
            fresh = [*proposed[:accepted], following]
            stats["runs"] += 1
            stats["proposed"] += len(proposed)
            stats["accepted"] += accepted


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("package", help="folder written by `tcim-lite compile --mtp`")
    parser.add_argument("--name", help="package name, when the folder holds several")
    parser.add_argument("--question", default="What is 12 + 30?", help="what to ask (default: a sum)")
    parser.add_argument("--max-new-tokens", type=int, help="default: until eos or a full context")
    parser.add_argument("--show-tokens", action="store_true", help="print token ids instead of text")
    args = parser.parse_args()
    if args.max_new_tokens is not None and args.max_new_tokens < 1:
        parser.error(f"--max-new-tokens {args.max_new_tokens}: expected at least 1")
    package = Package.open(args.package, args.name)
    model = MtpModel(package)
    tokenizer = load_tokenizer(package.tokenizer_folder)
    prompt = encode_chat(tokenizer, [{"role": "user", "content": args.question}])
    stats = {"runs": 0, "proposed": 0, "accepted": 0}
    tokens = list(model.generate(prompt, package.stop_tokens(tokenizer), args.max_new_tokens, stats))
    print(tokens if args.show_tokens else tokenizer.decode(tokens, skip_special_tokens=True))
    print(
        f"{len(tokens)} tokens in {stats['runs']} runs of the model | {stats['accepted']} of {stats['proposed']} "
        "proposals accepted"
    )


if __name__ == "__main__":
    run_program(main)
