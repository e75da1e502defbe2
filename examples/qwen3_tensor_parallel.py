"""Tensor parallelism: one logical model over N devices, loaded and used like one on a single device.

tcim-lite compile HF_DIR -o OUT --ndevice 2
TCIM_LITE_DEVICE_NUM=2 python examples/qwen3_tensor_parallel.py OUT --question "What is 12 + 30?"

tcim-lite compile HF_DIR -o OUT --ndevice 2 --pipeline 2      # prefill in stages, decode on all devices
TCIM_LITE_DEVICE_NUM=2 python examples/qwen3_tensor_parallel.py OUT --prefill pipeline --question "What is 12 + 30?"
"""

import argparse
import sys
import time
from collections.abc import Sequence

import numpy as np

import tcim_lite.runtime as tcim
from tcim_lite.console import run_program
from tcim_lite.llm import (
    Generator,
    LanguageModel,
    Package,
    Sampler,
    cache_names,
    context_length,
    encode_chat,
    last_logits,
    load_pair,
    load_tokenizer,
    print_answer,
    prompt_chunks,
    run_graph,
)


def load_tensor_parallel(package: Package, devices: list[int]) -> Generator:
    """Both graphs over all devices. Names, shapes and calls are those of one device; only the manager is not."""
    manager = tcim.DevManager(devices, "Xh2HalBackend")
    weights = tcim.WeightManager(manager)
    # Both use every device's share of the caches, and of the states of linear attention, by reference.
    prefill, decode = load_pair(package.graph("prefill.hmms"), package.graph("decode.hmms"), weights)
    return Generator(prefill, decode, package.embedding_for(prefill))


class PipelinePrefill(LanguageModel):
    """Prefill by stages, one on each device, then decode over all devices.

    The stages run one after the other here; qwen3_pipeline.py shows how they overlap in processes of their own.
    """

    def __init__(self, package: Package, devices: list[int]):
        paths = package.parts("prefill")
        if len(paths) > len(devices):
            raise ValueError(f"the package has {len(paths)} stages, --devices names {len(devices)}; name one for each")
        self.stages = [
            tcim.load(str(path), option=tcim.Option(tcim.WeightManager(device)))
            for path, device in zip(paths, devices, strict=False)
        ]
        weights = tcim.WeightManager(tcim.DevManager(devices, "Xh2HalBackend"))
        self.decoder = tcim.load(str(package.graph("decode.hmms")), option=tcim.Option(weights))
        first, last = self.stages[0], self.stages[-1]
        _, self.length, hidden_size = first.get_input_info(first.get_input_name(0)).shape
        vocab_size = last.get_output_info(last.get_output_name(0)).shape[-1]
        self.embedding = package.embedding(hidden_size, vocab_size)
        super().__init__(context_length(first), vocab_size)

    def prefill(self, tokens: Sequence[int], start: int = 0) -> np.ndarray:
        """Runs the stages, then moves their caches, layer by layer and by name, to where decode wants them."""
        for rows, valid, current in prompt_chunks(self.embedding, tokens, self.length, start):
            for stage in self.stages:
                rows = run_graph(stage, rows, valid, current)
        for stage in self.stages:
            for name in cache_names(stage):
                # The host copy is the whole cache; setting it gives every device its share.
                self.decoder.set_input(name, stage.get_dev_input(name).to_host(True).numpy())
        return last_logits(rows, current)

    def decode(self, token: int, position: int) -> np.ndarray:
        """Appends one token at `position`; returns the logits [V] after it."""
        return run_graph(self.decoder, self.embedding[token].reshape(1, 1, -1), position, 1).reshape(-1)


def device_list(text: str) -> list[int]:
    return [int(device) for device in text.split(",")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("package", help="folder written by `tcim-lite compile --ndevice N`")
    parser.add_argument("--name", help="package name, when the folder holds several")
    parser.add_argument("--devices", type=device_list, default="0,1", help="the devices, rank 0 first (default: 0,1)")
    parser.add_argument(
        "--prefill", choices=("tensor", "pipeline"), default="tensor", help="how prompts run (default: tensor)"
    )
    parser.add_argument("--question", action="append", help="repeatable. Default: the lines of standard input")
    parser.add_argument("--raw", action="store_true", help="give the question to the model without a chat template")
    parser.add_argument("--max-new-tokens", type=int, help="limit per answer; default: until eos or a full context")
    parser.add_argument("--show-tokens", action="store_true", help="print token ids instead of text")
    args = parser.parse_args()

    package = Package.open(args.package, args.name)
    started = time.perf_counter()
    model = (load_tensor_parallel if args.prefill == "tensor" else PipelinePrefill)(package, args.devices)
    loaded_s = time.perf_counter() - started
    print(f"{package.name}: devices {','.join(map(str, args.devices))}, loaded in {loaded_s * 1e3:.0f} ms")
    tokenizer = load_tokenizer(package.tokenizer_folder)
    for question in args.question or map(str.strip, sys.stdin):
        prompt = encode_chat(tokenizer, [{"role": "user", "content": question}], raw=args.raw or None)
        print(f"> {question}")
        model.cached_tokens = []  # each question stands alone; after `pipeline`, prefill lacks what decode wrote
        tokens = model.generate(prompt, Sampler(), args.max_new_tokens, package.stop_tokens(tokenizer))
        print_answer(tokens, tokenizer, as_ids=args.show_tokens)
        print(f"  [{model.stats}]", flush=True)


if __name__ == "__main__":
    run_program(main)
