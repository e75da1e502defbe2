"""Pipeline parallelism: one process per stage and device; hidden states travel from stage to stage through queues.

tcim-lite compile HF_DIR -o OUT --pipeline 2
TCIM_LITE_DEVICE_NUM=2 python examples/qwen3_pipeline.py OUT --question "What is 12 + 30?"
"""

import argparse
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Sequence
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import numpy as np

import tcim_lite.runtime as tcim
from tcim_lite.console import run_program
from tcim_lite.llm import (
    LanguageModel,
    Package,
    Sampler,
    cache_names,
    clear_carried,
    context_length,
    encode_chat,
    lanes_of,
    last_logits,
    load_tokenizer,
    print_answer,
    prompt_chunks,
    run_graph,
    share_carried,
)

# ---- in the process of a stage


def run_stage(prefill_path: Path, decode_path: Path, device: int, inbox: Any, outbox: Any, report: Connection) -> None:
    """Serves one stage until its inbox says None. The last stage has no outbox: it reports logits."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which stops the stages
    threading.Thread(target=_die_with_parent, daemon=True).start()
    try:
        weights = tcim.WeightManager(device)
        prefill = tcim.load(str(prefill_path), option=tcim.Option(weights))
        caches = cache_names(prefill)
        decode = tcim.load(str(decode_path), option=tcim.Option(weights).set_dummy_tensors(caches))
        states = [name for lane in lanes_of(prefill) for name in lane.carried]  # of linear attention
        for graph in (prefill, decode):
            share_carried(graph, [])  # each run goes on where the one before ended
        shapes = [prefill.get_input_info(prefill.get_input_name(0)).shape]
        shapes += [prefill.get_output_info(prefill.get_output_name(0)).shape]
        report.send(("ready", (*shapes, context_length(prefill))))
        while (message := inbox.get()) is not None:
            command, *work = message
            if command == "move caches":
                # Through the host, as the vendor's demo does: prefill and decode may then run on different chips.
                # Set on a dummy input, the first array makes decode's own buffer.
                for name in (*caches, *states):
                    decode.set_input(name, prefill.get_dev_input(name).to_host(True).numpy())
            else:
                rows, valid, current = work
                if valid == 0:
                    clear_carried(prefill)
                output = run_graph(prefill if command == "prefill" else decode, rows, valid, current)
                message = (command, output, valid, current)
                if outbox is None:
                    report.send(("logits", output))
            if outbox is not None:
                outbox.put(message)
        if outbox is not None:
            outbox.put(None)
    except Exception as error:
        report.send(("failed", f"{type(error).__name__}: {error}"))
        sys.exit(1)


def _die_with_parent() -> None:
    """A stage that waits for a parent that was killed would wait for ever."""
    wait([multiprocessing.parent_process().sentinel])
    os._exit(1)


# ---- in the process that asks


class Pipeline(LanguageModel):
    """The stages, seen as one model. Use it in a `with` statement: leaving that ends the processes.

    Raises:
        RuntimeError: From any method, when a stage failed or died; the text says which and why.
    """

    def __init__(self, package: Package, devices: Sequence[int] | None):
        graphs = list(zip(package.parts("prefill"), package.parts("decode"), strict=True))
        self.package = package
        self.devices = list(range(len(graphs))) if devices is None else list(devices)
        if len(self.devices) != len(graphs):
            raise ValueError(
                f"the package has {len(graphs)} stages, --devices names {len(self.devices)}; name one for each"
            )
        # spawn, not fork: a stage starts clean, whatever threads or devices this process uses.
        context = multiprocessing.get_context("spawn")
        self._queues = [context.Queue() for _ in graphs]
        self._reports: list[Connection] = []
        self.processes = []
        for stage, (prefill, decode) in enumerate(graphs):
            report, send_end = context.Pipe(duplex=False)
            outbox = self._queues[stage + 1] if stage + 1 < len(graphs) else None
            arguments = (prefill, decode, self.devices[stage], self._queues[stage], outbox, send_end)
            process = context.Process(target=run_stage, args=arguments, name=f"stage {stage}", daemon=True)
            process.start()
            send_end.close()  # now only the stage holds it: its death reads as the end of the file here
            self.processes.append(process)
            self._reports.append(report)

    def __enter__(self) -> "Pipeline":
        try:
            shapes = dict(self._receive("ready") for _ in self.processes)
            (_, self.length, hidden_size), _, context = shapes[0]
            _, (*_, vocab_size), _ = shapes[len(shapes) - 1]
            super().__init__(context, vocab_size)
            self.embedding = self.package.embedding(hidden_size, vocab_size)
        except BaseException:
            self.close(abort=True)
            raise
        return self

    def __exit__(self, kind, error, trace) -> None:
        self.close(abort=kind is not None)

    def close(self, abort: bool = False) -> None:
        """Ends the processes: when they have done the work they have, or at once."""
        if not abort:
            self._queues[0].put(None)  # handed on from stage to stage
        for process in self.processes:
            process.join(timeout=0 if abort else 30)
            if process.exitcode != 0:  # late or dead: those after it would wait for ever
                for each in self.processes:
                    each.kill()
                process.join()
        for queue in self._queues:
            queue.cancel_join_thread()  # nobody will read what is left
            queue.close()

    def prefill(self, tokens: Sequence[int], start: int = 0) -> np.ndarray:
        """Fills the caches of all stages, prefill's and decode's; returns the logits [V] after the last token."""
        chunks = list(prompt_chunks(self.embedding, tokens, self.length, start))
        for rows, valid, current in chunks:  # all at once: while stage 1 has the first chunk, stage 0 has the second
            self._queues[0].put(("prefill", rows, valid, current))
        self._queues[0].put(("move caches",))
        for _ in chunks:
            _, logits = self._receive("logits")
        return last_logits(logits, chunks[-1][2])

    def decode(self, token: int, position: int) -> np.ndarray:
        """Appends one token at `position`; returns the logits [V] after it."""
        self._queues[0].put(("decode", self.embedding[token].reshape(1, 1, -1), position, 1))
        return self._receive("logits")[1].reshape(-1)

    def _receive(self, expected: str) -> tuple[int, Any]:
        """The next report: the stage's number and what it sent."""
        report = wait(self._reports)[0]
        stage = self._reports.index(report)
        where = f"stage {stage} (device {self.devices[stage]}, pid {self.processes[stage].pid})"
        try:
            kind, value = report.recv()
        except (EOFError, ConnectionError):
            self.processes[stage].join()
            code = self.processes[stage].exitcode
            cause = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"
            raise RuntimeError(f"{where} died: {cause}; the other stages were stopped, start again") from None
        if kind != expected:
            raise RuntimeError(f"{where} {kind}: {value}")
        return stage, value


def device_list(text: str) -> list[int]:
    return [int(device) for device in text.split(",")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("package", help="folder written by `tcim-lite compile --pipeline S`")
    parser.add_argument("--name", help="package name, when the folder holds several")
    parser.add_argument("--devices", type=device_list, help="device of each stage, as in 2,3; default: 0,1,...")
    parser.add_argument("--question", action="append", help="repeatable. Default: the lines of standard input")
    parser.add_argument("--raw", action="store_true", help="give the question to the model without a chat template")
    parser.add_argument("--max-new-tokens", type=int, help="limit per answer; default: until eos or a full context")
    parser.add_argument("--show-tokens", action="store_true", help="print token ids instead of text")
    args = parser.parse_args()

    package = Package.open(args.package, args.name)
    with Pipeline(package, args.devices) as pipeline:
        tokenizer = load_tokenizer(package.tokenizer_folder)
        for stage, process in enumerate(pipeline.processes):
            print(f"stage {stage}: device {pipeline.devices[stage]}, pid {process.pid}", flush=True)
        for question in args.question or map(str.strip, sys.stdin):
            prompt = encode_chat(tokenizer, [{"role": "user", "content": question}], raw=args.raw or None)
            print(f"> {question}")
            pipeline.cached_tokens = []  # prefill's caches lack what decode wrote: nothing to build on
            tokens = pipeline.generate(prompt, Sampler(), args.max_new_tokens, package.stop_tokens(tokenizer))
            print_answer(tokens, tokenizer, as_ids=args.show_tokens)
            print(f"  [{pipeline.stats}]", flush=True)


if __name__ == "__main__":
    run_program(main)
