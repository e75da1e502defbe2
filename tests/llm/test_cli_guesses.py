"""`--draft` and `--speculate` of generate, chat and serve, over a checkpoint: what guesses is compiled with it."""

import io
import json
import re
import urllib.request

import pytest
import warm_python
from generate_command import QUESTION, in_process
from llm_packages import DEMO_CHECKPOINT

from tcim_lite.cli import main

ASK = [DEMO_CHECKPOINT, "--context-length", 128, "--prefill-length", 32]
COPY = "Repeat after me: one two three one two three one two three"


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory):
    """Of this file, so that each package is compiled once."""
    with pytest.MonkeyPatch.context() as patched:
        folder = tmp_path_factory.mktemp("cache")
        patched.setenv("XDG_CACHE_HOME", str(folder))
        yield folder / "tcim-lite" / "packages"


@pytest.mark.parametrize(
    "words",
    [["--draft", DEMO_CHECKPOINT], ["--speculate", "lookup"], ["--speculate", "auto"]],
    ids=["draft", "lookup", "auto"],
)
def test_answers_are_those_without_guesses(capfd, words):
    plain = in_process(capfd, *ASK, "--chat", "--prompt", COPY)
    made = in_process(capfd, *ASK, *words, "--chat", "--prompt", COPY)
    assert made["token_ids"] == plain["token_ids"]
    assert 0 < made["stats"]["accepted_tokens"] <= made["stats"]["drafted_tokens"]
    assert "drafted_tokens" not in plain["stats"]


def test_a_chat_guesses_too(capfd, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{QUESTION}\n/reset\n{QUESTION}\n"))
    assert main(["chat", *map(str, ASK), "--draft", str(DEMO_CHECKPOINT), "--show-stats"]) == 0
    printed, figures = capfd.readouterr()
    assert printed.count("12 + 30 = 42") == 2
    first, second = re.findall(r" drafted_tokens=(\d+) accepted_tokens=(\d+)", figures)
    assert first == second  # each is of its own answer
    assert 0 < int(first[1]) <= int(first[0])


def test_a_server_guesses_too():
    command = ["-m", "tcim_lite", "serve", *map(str, ASK), "--draft", str(DEMO_CHECKPOINT), "--port", "0"]
    with warm_python.Popen(*command) as process:
        try:
            url = re.search(r"http://\S+", process.stdout.readline())[0]
            body = json.dumps({"messages": [{"role": "user", "content": QUESTION}]}).encode()
            headers = {"Content-Type": "application/json"}
            with urllib.request.urlopen(urllib.request.Request(f"{url}/v1/chat/completions", body, headers)) as answer:
                assert json.load(answer)["choices"][0]["message"]["content"] == "12 + 30 = 42"
            with urllib.request.urlopen(f"{url}/metrics") as answer:
                found = re.search(
                    r"^tcim:spec_decode_num_accepted_tokens_total{.*} (\S+)$", answer.read().decode(), re.M
                )
            assert float(found[1]) > 0
        finally:
            process.terminate()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["--speculate", "draft"],
            "has no layer of multi-token prediction that .* with --draft MODEL",
        ),
        (["--speculate", "lookup", "--draft", "a"], "--speculate lookup with --draft a, which would guess nothing"),
        (["--speculate", "off", "--draft", "a"], "--speculate off with --draft a, which would guess nothing"),
        (["--draft", "nowhere"], "nowhere: there is no such file or folder; expected a checkpoint folder, a GGUF file"),
    ],
)
def test_what_cannot_guess_is_one_line(capfd, words, message):
    assert main(["generate", *map(str, ASK), *words, "--prompt", "a"]) == 2
    (line,) = capfd.readouterr().err.splitlines()
    assert re.search(message, line)


@pytest.mark.parametrize("speculate", ["draft", "lookup", "auto"])
def test_what_is_wrong_with_a_checkpoint_is_said_whatever_guesses(capfd, tmp_path, speculate):
    (tmp_path / "config.json").write_text("[")
    for words in ([tmp_path, "--speculate", speculate], [*ASK, "--draft", tmp_path]):
        assert main(["generate", *map(str, words), "--prompt", "a"]) == 2
        assert f"{tmp_path / 'config.json'}" in capfd.readouterr().err.splitlines()[-1]


def test_a_package_has_its_draft_already(capfd, cache):
    in_process(capfd, *ASK, "--chat", "--prompt", QUESTION)
    package = next(path for path in cache.iterdir() if path.is_dir())
    assert main(["generate", str(package), "--draft", str(DEMO_CHECKPOINT), "--prompt", "a"]) == 2
    assert "is compiled already (w4a8h0_ssfp), so --draft can change nothing" in capfd.readouterr().err
