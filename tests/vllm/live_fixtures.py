"""What the live tests share: `make test-vllm` loads this as a plugin of pytest, beside one live_*.py at a time."""

import os

os.environ.update(VLLM_PLUGINS="tcim_lite", VLLM_ENABLE_V1_MULTIPROCESSING="0", HF_HUB_OFFLINE="1")

import contextlib
import json
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from vllm import LLM, SamplingParams

from tcim_lite.llm import LanguageModel, load_tokenizer
from tcim_lite.llm.engine.slots import Slots

QUESTIONS = ["Hello, who are you?", "What is 12 + 30?", "Reverse: 1 2 3 4 5", "My name is Anna.", "7加5等于多少？"]
CHECKPOINT = Path(__file__).parents[2] / "examples" / "demo_checkpoint"


def compile_demo(folder: Path, *options: str) -> Path:
    """The demo checkpoint as a package of four slots."""
    command = [sys.executable, "-P", "-m", "tcim_lite", "compile", str(CHECKPOINT), "-o", str(folder)]
    subprocess.run([*command, "--batch", "4", "--prefill-length", "32", "-q", *options], check=True)
    return folder


@pytest.fixture(scope="session")
def package(tmp_path_factory) -> Path:
    return compile_demo(tmp_path_factory.mktemp("served"))


@pytest.fixture(scope="session")
def prompts(package) -> list[list[int]]:
    tokenizer = load_tokenizer(package)
    texts = [f"{question} ({number})" for number, question in enumerate(QUESTIONS * 2)]
    texts.append("Count: " + " ".join(str(number) for number in range(60)))
    return [tokenizer(text)["input_ids"] for text in texts]


class Alone(LanguageModel):
    """`LanguageModel.generate` on one slot of the package."""

    def __init__(self, folder: Path):
        self._slots = Slots.open(folder)
        super().__init__(self._slots.context_length, self._slots.vocab_size)

    def prefill(self, tokens, start=0):
        del self._slots.tokens[0][start:]
        chunk = self._slots.chunk_length
        for begin in range(0, len(tokens), chunk):
            logits = self._slots.prefill(0, tokens[begin : begin + chunk])
        return logits

    def decode(self, token, position):
        return self._slots.decode({0: token})[0]


@pytest.fixture(scope="session")
def alone(package, prompts) -> list[list[int]]:
    model = Alone(package)
    return [list(model.generate(prompt, max_new_tokens=16, stop_tokens=())) for prompt in prompts]


@pytest.fixture(scope="session")
def llm(package):
    return LLM(model=str(package), seed=0, max_num_batched_tokens=48, structured_outputs_config=COMPACT)


COMPACT = {"backend": "xgrammar", "disable_any_whitespace": True}  # the demo model goes on with spaces for ever
GREEDY = SamplingParams(temperature=0, max_tokens=16, ignore_eos=True)


@contextlib.contextmanager
def served(*arguments: str, **env: str) -> Iterator[str]:
    """`vllm serve ARGUMENTS` in processes of its own; gives the address, once it is healthy."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [str(Path(sys.executable).with_name("vllm")), "serve", *arguments, "--port", str(port)]
    server = subprocess.Popen(command, env={**os.environ, "VLLM_ENABLE_V1_MULTIPROCESSING": "1", **env})
    base = f"http://127.0.0.1:{port}"
    try:
        for _ in range(180):
            try:
                urllib.request.urlopen(f"{base}/health", timeout=5)
                break
            except OSError:
                assert server.poll() is None, "the server ended before it was healthy"
                time.sleep(1)
        yield base
    finally:
        server.terminate()
        server.wait(60)


def post(address: str, body: object) -> object:
    """What a server answers to a JSON body."""
    asked = urllib.request.Request(address, json.dumps(body).encode(), {"Content-Type": "application/json"})
    return json.load(urllib.request.urlopen(asked, timeout=120))
