"""What the live tests share: `make test-vllm` loads this as a plugin of pytest, beside one live_*.py at a time."""

import os

os.environ.update(VLLM_PLUGINS="tcim_lite", VLLM_ENABLE_V1_MULTIPROCESSING="0", HF_HUB_OFFLINE="1")

import contextlib
import json
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import psutil
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


def case_folder(folder: Path, package: Path, devices: int) -> Path:
    """A folder as engines of compiled cases describe it, before a package whose graphs are for that many devices."""
    folder.mkdir()
    for file in package.glob("*.json*"):
        shutil.copy(file, folder)
    (folder / "parts").symlink_to(package)
    keys = {"case_dir": "parts", "param_dir": "parts", "tensor_parallel": {"use_tp": True, "parallel_size": devices}}
    config = folder / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | keys))
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


def check_joins_and_aborts(llm: LLM, prompts: list[list[int]], alone: list[list[int]], steps: int) -> None:
    """Requests that join every second step, of which two are aborted at work, change nothing for the others."""
    engine, aborted, found = llm.llm_engine, {1, 3}, {}
    for step in range(steps):
        if step % 2 == 0 and step // 2 < len(prompts):
            number = step // 2
            engine.add_request(str(number), {"prompt_token_ids": prompts[number]}, GREEDY)
        if step == 9:
            engine.abort_request([str(number) for number in aborted], internal=False)
        for out in engine.step():
            if out.finished:
                found[int(out.request_id)] = list(out.outputs[0].token_ids)
        if step > 2 * len(prompts) and not engine.has_unfinished_requests():
            break
    kept = set(range(len(prompts))) - aborted
    assert {number: found.get(number) for number in kept} == {number: alone[number] for number in kept}


def devices_below(process: psutil.Process) -> list[set[int]]:
    """Devices of each process below this one that uses any, as `tcim-lite smi` shows them."""
    command = [sys.executable, "-P", "-m", "tcim_lite", "smi", "--json"]
    shown = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    below, found = {each.pid for each in process.children(recursive=True)}, {}
    for one in shown["processes"]:
        if one["pid"] in below:
            found.setdefault(one["pid"], set()).add(one["device_id"])
    return sorted(found.values(), key=min)


def served(*arguments: str, **env: str) -> contextlib.AbstractContextManager[str]:
    """`vllm serve ARGUMENTS` in processes of its own; gives the address, once it is healthy."""
    vllm = str(Path(sys.executable).with_name("vllm"))
    return listening([vllm, "serve", *arguments], VLLM_ENABLE_V1_MULTIPROCESSING="1", **env)


@contextlib.contextmanager
def listening(command: list[str], **env: str) -> Iterator[str]:
    """A server whose command takes `--port`; gives the address, once it is healthy."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = subprocess.Popen([*command, "--port", str(port)], env={**os.environ, **env})
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
