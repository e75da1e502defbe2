"""The demo checkpoint, compiled once per set of options, and the examples run as a user runs them."""

from __future__ import annotations

import functools
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import warm_python

sys.path.insert(0, str(Path(__file__).parent.parent / "llm"))

from llm_packages import DEMO_CHECKPOINT, ROOT, LoadedPackage

from tcim_lite.cli import main
from tcim_lite.llm import Package, encode_chat, load_tokenizer


@pytest.fixture(scope="session")
def compile_demo(tmp_path_factory) -> Callable[..., Package]:
    """compile_demo("--batch", "3") -> the package that this command line makes of the demo checkpoint."""

    @functools.cache
    def make(*options: str) -> Package:
        folder = tmp_path_factory.mktemp("demo")
        assert main(["compile", str(DEMO_CHECKPOINT), "-o", str(folder), "-q", *options]) == 0
        return Package.open(folder)

    return make


@pytest.fixture(scope="session")
def run_example() -> Callable[..., subprocess.CompletedProcess]:
    """run_example("qwen3_chat.py", "OUT", ...); keywords go into the environment. Strict mode must find nothing."""

    def run(example: str, *arguments: object, text: str | None = None, **env: str) -> subprocess.CompletedProcess:
        environment = os.environ | {"TCIM_LITE_STRICT": "error"} | env
        return warm_python.run(ROOT / "examples" / example, *arguments, input=text, env=environment)

    return run


@pytest.fixture(scope="session")
def plain_tokens(compile_demo) -> Callable[..., list[int]]:
    """plain_tokens(question, limit) -> the greedy answer of one device, one slot, one token at a time."""
    package = compile_demo()
    tokenizer, loaded, known = load_tokenizer(package.tokenizer_folder), LoadedPackage(package), {}

    def answer(question: str, limit: int | None = None) -> list[int]:
        if (question, limit) not in known:
            prompt = encode_chat(tokenizer, [{"role": "user", "content": question}])
            known[question, limit] = list(loaded.generate(prompt, None, limit, {tokenizer.eos_token_id}))
        return known[question, limit]

    return answer


@pytest.fixture(scope="session")
def shown_tokens() -> Callable[[str], list[list[int]]]:
    """The answers in what an example prints with --show-tokens, in the order printed."""

    def parse(output: str) -> list[list[int]]:
        return [json.loads(line) for line in re.findall(r"^ *(\[[\d, ]*\])$", output, re.MULTILINE)]

    return parse
