"""vLLM's server, `tcim-lite serve` and `LanguageModel.generate` give the same greedy tokens."""

import contextlib
import json
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from live_fixtures import listening, post, served

from tcim_lite.llm import load_tokenizer

LEFT_ALONE = 3  # of so many answers one is abandoned by its client


@pytest.fixture(scope="module")
def servers(package) -> Iterator[tuple[str, str]]:
    """Addresses of vLLM's server and of `tcim-lite serve`, with the same package and name of the model."""
    with contextlib.ExitStack() as both:
        own = [sys.executable, "-P", "-m", "tcim_lite", "serve", str(package), "--served-model-name", str(package)]
        yield both.enter_context(served(str(package))), both.enter_context(listening(own))


def leave(address: str, body: dict) -> None:
    """Asks for a long answer, and hangs up when its first token is there."""
    body = json.dumps(body | {"stream": True, "max_tokens": 400}).encode()
    asked = urllib.request.Request(f"{address}/v1/completions", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(asked, timeout=120) as answer:
        assert answer.readline().startswith(b"data: ")


def ask(address: str, package: Path, prompts: list[list[int]], lanes: int, extra: dict) -> list[dict]:
    """A choice for each prompt, of `lanes` clients that take them in turn, some after an answer that they left."""

    def one(number: int) -> dict:
        body = {"model": str(package), "prompt": prompts[number], "max_tokens": 16, "temperature": 0}
        body |= {"ignore_eos": True}
        if number % LEFT_ALONE == 0:
            leave(address, body)
        return post(f"{address}/v1/completions", body | extra)["choices"][0]

    with ThreadPoolExecutor(lanes) as pool:
        return list(pool.map(one, range(len(prompts))))


@pytest.mark.parametrize("lanes", range(1, 9))
def test_both_servers_give_the_tokens_of_one_request_alone(servers, package, prompts, alone, lanes):
    theirs, ours = servers
    assert [one["token_ids"] for one in ask(theirs, package, prompts, lanes, {"return_token_ids": True})] == alone
    decode = load_tokenizer(package).decode
    found = ask(ours, package, prompts, lanes, {"logprobs": 0})
    assert [one["logprobs"]["tokens"] for one in found] == [[decode([token]) for token in each] for each in alone]
    plain = ask(ours, package, prompts, lanes, {})
    assert [one["text"] for one in plain] == [one["text"] for one in found]


def test_logprobs_of_a_prompt_are_refused_as_the_requests_fault(servers, package):
    body = {"model": str(package), "prompt": "1", "max_tokens": 1, "prompt_logprobs": 1}
    with pytest.raises(urllib.error.HTTPError) as refused:
        post(f"{servers[0]}/v1/completions", body)
    assert refused.value.code == 400
    assert "--all-logits" in json.load(refused.value)["error"]["message"]
