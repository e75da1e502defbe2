"""A live `tcim-lite serve` over the demo model, in strict mode, and the same model alone."""

import functools
import os
import re
import signal
import threading
from dataclasses import dataclass

import httpx2
import openai
import pytest
import warm_python
from llm_packages import DEMO_CHECKPOINT, LoadedPackage, compile_package

from tcim_lite.llm import Sampler, encode_chat, load_tokenizer

CONTEXT = 2048
QUESTIONS = ["What is 12 + 30?", "Reverse: 1 2 3 4 5", "Hello, who are you?", "Repeat after me: one", "7加5等于多少？"]
# After each of these the model goes on until the context is full.
ENDLESS = {"ignore_eos": True, "max_tokens": 10_000}


@dataclass
class Server:
    """A running server.

    Attributes:
        url: without a path.
        process: the command.
        log: lines of stderr, growing.
        reader: thread that reads them.
    """

    url: str
    process: warm_python.Popen
    log: list[str]
    reader: threading.Thread

    # Certificates, which no server here has, take a client forty milliseconds to read: verify=False.
    def client(self, **options) -> openai.OpenAI:
        options = {"api_key": "none", "max_retries": 0, "timeout": 60, **options}
        return openai.OpenAI(base_url=f"{self.url}/v1", http_client=openai.DefaultHttpxClient(verify=False), **options)

    def get(self, path: str, **options) -> httpx2.Response:
        return httpx2.get(self.url + path, timeout=60, verify=False, **options)

    def post(self, path: str, **options) -> httpx2.Response:
        return httpx2.post(self.url + path, timeout=60, verify=False, **options)

    def metric(self, name: str) -> float:
        text = self.get("/metrics").text
        return sum(float(value) for value in re.findall(rf"^{name}(?:{{.*}})? (\S+)$", text, re.MULTILINE))

    def stop(self) -> int:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        status = self.process.wait(60)
        self.reader.join(10)
        self.process.close()
        return status


@pytest.fixture(scope="session")
def packages(tmp_path_factory):
    """Compiles the demo checkpoint with `batch` slots and a context of CONTEXT."""

    @functools.cache
    def make(batch: int, **options):
        folder = tmp_path_factory.mktemp("served") / "demo"
        sizes = {"prefill_length": 32, "context_length": CONTEXT, **options}
        return compile_package(DEMO_CHECKPOINT, folder, quant="w8a8h1_sefp", batch=batch, **sizes)

    return make


@pytest.fixture(scope="session")
def start(packages):
    """Starts servers; they end with the session, and strict mode must have found nothing in any."""
    made = []

    def make(*arguments, batch=4, env=None, folder=None, **options) -> Server:
        folder = str(folder or packages(batch, **options).folder)
        environment = {**os.environ, "TCIM_LITE_STRICT": "error", **(env or {})}
        command = ["-m", "tcim_lite", "serve", folder, "--port", "0", *arguments]
        process = warm_python.Popen(*command, env=environment)
        log: list[str] = []
        reader = threading.Thread(target=lambda: log.extend(process.stderr), daemon=True)
        reader.start()
        line = process.stdout.readline()
        found = re.search(r"http://\S+", line)
        assert found, "".join(log) or process.wait(10)
        made.append(Server(found[0], process, log, reader))
        return made[-1]

    yield make
    for server in made:
        assert server.stop() == 0, server.log
        assert not any("StrictError" in line or "Traceback" in line for line in server.log), "".join(server.log)


@pytest.fixture(scope="session")
def server(start) -> Server:
    return start()


@pytest.fixture
def client(server):
    with server.client() as made:
        yield made


@pytest.fixture(scope="session")
def one_slot(packages) -> LoadedPackage:
    return LoadedPackage(packages(1))


@pytest.fixture(scope="session")
def alone(one_slot, packages):
    """The reply to a question by `LanguageModel.generate`: token ids and text."""
    tokenizer = load_tokenizer(packages(1).tokenizer_folder)
    stop = packages(1).stop_tokens(tokenizer)

    def reply(text: str, limit: int | None = None, sampler: Sampler | None = None) -> tuple[list[int], str]:
        one_slot.cached_tokens = []
        prompt = encode_chat(tokenizer, [{"role": "user", "content": text}])
        tokens = list(one_slot.generate(prompt, sampler or Sampler(), limit, stop))
        return tokens, tokenizer.decode(tokens, skip_special_tokens=True)

    return reply


@pytest.fixture(scope="session")
def raw_alone(one_slot, packages):
    """As `alone`, without the chat template."""
    tokenizer = load_tokenizer(packages(1).tokenizer_folder)
    stop = packages(1).stop_tokens(tokenizer)

    def reply(text: str, limit: int | None = None) -> tuple[list[int], str]:
        one_slot.cached_tokens = []
        tokens = list(one_slot.generate(tokenizer(text)["input_ids"], Sampler(), limit, stop))
        return tokens, tokenizer.decode(tokens, skip_special_tokens=True)

    return reply


def allowed(mode: str, *names: str) -> dict:
    """A `tool_choice` that lists tools."""
    tools = [{"type": "function", "function": {"name": name}} for name in names]
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": tools}}


def user(text: str) -> list[dict]:
    return [{"role": "user", "content": text}]
