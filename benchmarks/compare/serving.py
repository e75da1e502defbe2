"""Two servers of one random checkpoint: how their files are made, how they are started, and the clients.

Prompts are token ids, so neither side tokenizes; each has a vocabulary of made-up words to write its answers with.
"""

import asyncio
import json
import os
import random
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path

from .checkpoint import write_checkpoint
from .shapes import config_of
from .timing import CONTEXT
from .vocabulary import write_tokenizer

HERE = Path(__file__).parent
QUANTS = {"tcim": "w4a8h0_ssfp", "llama": "Q4_0"}


class ServedFiles:
    """What the servers load, made where it is missing.

    Args:
        work: Folder for all of it; with 0.6B 3 GB.
        shape: Of compare/shapes.py.
        llama_bin: Folder of llama-server and llama-quantize.
    """

    def __init__(self, work: Path, shape: str, llama_bin: Path):
        self.folder, self._shape, self._llama_bin = work / f"served-{shape}", shape, llama_bin
        self._checkpoint = self.folder / "checkpoint"

    def package(self, slots: int) -> Path:
        """Of this project, compiled as `serve` does it for itself, with --batch `slots` and --argmax."""
        out = self.folder / f"tcim-argmax-{slots}"
        if not (out / "tokenizer" / "tokenizer.json").is_file():
            _run([sys.executable, HERE / "make_tcim.py", QUANTS["tcim"], self._made_checkpoint(), out, slots, "argmax"])
            write_tokenizer(out / "tokenizer", config_of(self._shape)["vocab_size"])
        return out

    def gguf(self) -> Path:
        """Of llama.cpp, quantised by llama-quantize."""
        out, whole = self.folder / "llama.gguf", self.folder / "llama-bf16.gguf"
        if not out.is_file():
            _run([sys.executable, HERE / "make_gguf.py", "bf16+words", self._made_checkpoint(), whole])
            partial = out.with_suffix(".partial")
            _run([self._llama_bin / "llama-quantize", whole, partial, QUANTS["llama"]])
            partial.rename(out)
            whole.unlink()
        return out

    def _made_checkpoint(self) -> Path:
        if not (self._checkpoint / "config.json").is_file():
            write_checkpoint(self._checkpoint, self._shape)
        return self._checkpoint

    def command(self, side: str, slots: int, port: int, threads: int) -> list[str]:
        """Starts a server with `slots` slots of CONTEXT rows."""
        if side == "tcim":
            package = str(self.package(slots))
            return [
                sys.executable,
                "-P",
                "-m",
                "tcim_lite",
                "serve",
                package,
                "--port",
                str(port),
                "--log-level",
                "error",
            ]
        options = {"-m": self.gguf(), "--host": "127.0.0.1", "--port": port, "-t": threads, "-tb": threads}
        options |= {"-np": slots, "-c": slots * CONTEXT, "-ub": 512, "--cache-ram": 0}
        words = [str(word) for pair in options.items() for word in pair]
        return [str(self._llama_bin / "llama-server"), *words, "--log-disable", "--no-webui"]


def _run(command: list[object]) -> None:
    print(f"running {' '.join(Path(str(word)).name for word in command)}", file=sys.stderr)
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"error: {' '.join(map(str, command))}:\n{(done.stdout + done.stderr)[-2000:]}")


class Server:
    """A running server, bound to `cpus`; a context manager.

    Attributes:
        port: On 127.0.0.1.
        ready_s: Seconds from the start of the process to the first 200 of /health.
    """

    def __init__(self, files: ServedFiles, side: str, slots: int, cpus: set[int]):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]
        command = files.command(side, slots, self.port, len(cpus))
        environment = os.environ | {"TCIM_LITE_THREADS": str(len(cpus)), "OMP_NUM_THREADS": str(len(cpus))}
        begin = time.perf_counter()
        self._process = subprocess.Popen(
            command,
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=lambda: os.sched_setaffinity(0, cpus),
        )
        while not self._is_ready():
            if self._process.poll() is not None or time.perf_counter() - begin > 300:
                self._process.kill()
                raise SystemExit(
                    f"error: {' '.join(command)} does not serve:\n{self._process.communicate()[1][-2000:]}"
                )
            time.sleep(0.01)
        self.ready_s = time.perf_counter() - begin

    def _is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=5) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            return False

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, *error: object) -> None:
        self._process.terminate()
        self._process.communicate()


@dataclass
class Load:
    """What one load gave.

    Attributes:
        seconds: from the first request to the last token.
        tokens: of all answers.
        first_s: seconds to the first token of each request.
        gaps_s: seconds between two pieces of an answer.
    """

    seconds: float = 0.0
    tokens: int = 0
    first_s: list[float] = field(default_factory=list)
    gaps_s: list[float] = field(default_factory=list)


def load(side: str, port: int, clients: int, requests: int, prompt_tokens: int, answer_tokens: int, seed: int) -> Load:
    """Every client sends `requests` requests one after the other; prompts that nobody has seen, greedy answers."""
    chance, result = random.Random(seed), Load()

    async def client(prompts: list[list[int]]) -> None:
        for prompt in prompts:
            await _ask(side, port, prompt, answer_tokens, result)

    async def all_clients() -> None:
        drawn = [
            [chance.choices(range(1000, 30_000), k=prompt_tokens) for _ in range(requests)] for _ in range(clients)
        ]
        begin = time.perf_counter()
        await asyncio.gather(*map(client, drawn))
        result.seconds = time.perf_counter() - begin

    asyncio.run(all_clients())
    return result


async def _ask(side: str, port: int, prompt: list[int], answer_tokens: int, result: Load) -> None:
    body = {"prompt": prompt, "max_tokens": answer_tokens, "stream": True, "ignore_eos": True, "temperature": 0}
    body["stream_options"] = {"include_usage": True}
    if side == "llama":  # the cheapest of its samplers that is greedy
        body |= {"samplers": ["top_k"], "top_k": 1, "cache_prompt": False}
    data = json.dumps(body).encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 20)
    lines = ["POST /v1/completions HTTP/1.1", "Host: 127.0.0.1", "Connection: close", "Content-Type: application/json"]
    head = "\r\n".join([*lines, f"Content-Length: {len(data)}", "", ""])
    begin = last = time.perf_counter()
    writer.write(head.encode() + data)
    if b" 200 " not in (status := await reader.readline()):
        raise SystemExit(f"error: {side}: {status.decode()}{(await reader.read())[-500:].decode(errors='replace')}")
    is_first, told = True, 0
    async for line in reader:
        if not line.startswith(b"data: {"):
            continue
        now, chunk = time.perf_counter(), json.loads(line[6:])
        if chunk.get("usage"):
            told = chunk["usage"]["completion_tokens"]
        if any(choice["text"] for choice in chunk["choices"]):
            (result.first_s if is_first else result.gaps_s).append(now - (begin if is_first else last))
            is_first, last = False, now
    writer.close()
    if told != answer_tokens:
        raise SystemExit(f"error: {side} gave {told} tokens, expected {answer_tokens}")
    result.tokens += told
