"""`tcim-lite generate`: the answer of LanguageModel.generate, from a package."""

import json
import os
import re
import subprocess
import sys

import pytest
from generate_command import QUESTION, in_process, run
from llm_packages import DEMO_CHECKPOINT, LoadedPackage, compile_package
from warm_python import ISOLATED

from tcim_lite.cli import main
from tcim_lite.llm import Sampler, encode_chat, load_tokenizer


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    sizes = {"prefill_length": 32, "context_length": 256}
    return compile_package(DEMO_CHECKPOINT, tmp_path_factory.mktemp("generate") / "demo", quant="w8a8h1_sefp", **sizes)


@pytest.fixture(scope="module")
def tokenizer(package):
    return load_tokenizer(package.tokenizer_folder)


def alone(package, tokenizer, prompt, limit=None, sampler=None):
    return list(LoadedPackage(package).generate(prompt, sampler or Sampler(), limit, package.stop_tokens(tokenizer)))


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_closed_stream_is_no_failure(package, closed):
    words = [package.folder, "--prompt", "a", "--max-new-tokens", "2", "--no-show-stats"]
    command = ["sh", "-c", f'"$@" {closed}', "sh", sys.executable, ISOLATED, "-m", "tcim_lite", "generate", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_chat_answer_and_what_it_cost(package):
    done = run(package.folder, "--chat", "--prompt", QUESTION)
    assert (done.returncode, done.stdout) == (0, "12 + 30 = 42\n")
    assert re.fullmatch(
        r"prompt_tokens=19 cached_tokens=0 generated_tokens=13 elapsed_seconds=[\d.]+ tokens_per_second=[\d.]+ "
        r"ttft_ms=[\d.]+ device=cpu:0 dtype=w8a8h1_sefp\n",
        done.stderr,
    )


@pytest.mark.slow  # four programs
def test_standard_input_files_and_arguments_are_the_same_prompt(package, tokenizer, tmp_path, capfd):
    path = tmp_path / "prompt"
    path.write_text("7加5等于多少？\n", encoding="utf-8")
    tokens = alone(package, tokenizer, encode_chat(tokenizer, [{"content": "7加5等于多少？"}], raw=True), 20)
    expected = tokenizer.decode(tokens, skip_special_tokens=True)
    named = ["--model", package.folder]
    lines = ([package.folder, "-"], [*named, "-"], [package.folder, "--seed", 1, "-"], [*named, "--prompt-file", "-"])
    for words in lines:
        done = run(*words, "--max-new-tokens", 20, "--no-show-stats", stdin=path.read_text(encoding="utf-8"))
        assert (done.returncode, done.stdout, done.stderr) == (0, f"{expected}\n", "")
    for words in (["--prompt-file", path], ["--prompt", "7加5等于多少？"]):
        found = in_process(capfd, package.folder, *words, "--max-new-tokens", 20, "--dtype", "w8a8h1_sefp")
        assert (found["token_ids"], found["text"]) == (tokens, expected)


def test_json_tells_when_each_token_came(package, capfd):
    found = in_process(capfd, package.folder, "--chat", "--prompt", QUESTION)
    times = found["token_seconds"]
    assert 0 < times[0] <= times[-1] <= found["stats"]["elapsed_seconds"] + 0.001
    assert (len(times), sorted(times)) == (len(found["token_ids"]), times)


def test_the_system_prompt_is_a_message(package, tokenizer, capfd):
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}]
    found = in_process(capfd, package.folder, "--chat", "--system", "Be brief.", "--prompt", "Hello")
    prompt = encode_chat(tokenizer, messages)
    assert found["stats"]["prompt_tokens"] == len(prompt)
    assert found["token_ids"] == alone(package, tokenizer, prompt)


def test_sampling_options_reach_the_sampler(package, tokenizer, capfd):
    options = {"temperature": 4.0, "top_k": 40, "top_p": 0.99, "min_p": 0.001, "repetition_penalty": 1.1, "seed": 5}
    options |= {"presence_penalty": 0.3, "frequency_penalty": 0.2, "logit_bias": {5: -3.5, 9: 2.0}}
    prompt = encode_chat(tokenizer, [{"role": "user", "content": "Hello"}])
    words = ["--logit-bias", "5=-3.5", "--logit-bias", "9=2"]
    words += [str(w) for name, v in options.items() if name != "logit_bias" for w in (f"--{name.replace('_', '-')}", v)]
    found = in_process(capfd, package.folder, "--chat", "--prompt", "Hello", "--max_tokens", 24, *words)
    from tcim_lite.llm.engine import Engine, SamplingParams

    engine = Engine.open(package, tokenizer=tokenizer)
    engine.add(prompt, SamplingParams(max_tokens=24, **options))
    tokens = []
    while engine.has_work:
        tokens += [token for event in engine.step() for token in event.token_ids]
    assert found["token_ids"] == tokens
    assert tokens != alone(package, tokenizer, prompt, 24)


def test_what_ends_an_answer(package, capfd):
    ask = [package.folder, "--chat", "--prompt", QUESTION]
    found = in_process(capfd, *ask, "--stop", " = ")
    assert (found["text"], found["finish_reason"], found["stop_reason"]) == ("12 + 30", "stop", " = ")
    whole = in_process(capfd, *ask)
    assert whole["finish_reason"] == "stop"
    assert in_process(capfd, *ask, "--max-new-tokens", 3)["finish_reason"] == "length"
    last = whole["token_ids"][-1]
    cut = in_process(capfd, *ask, "--stop-token-id", last)
    assert (cut["token_ids"], cut["stop_reason"]) == (whole["token_ids"][: whole["token_ids"].index(last)], last)
    longer = in_process(capfd, *ask, "--ignore-eos", "--max-new-tokens", 40)
    assert longer["stats"]["generated_tokens"] == 40
    nothing = in_process(capfd, *ask, "--stop-token-id", whole["token_ids"][0])
    assert (nothing["token_ids"], nothing["stats"]["ttft_ms"] > 0) == ([], True)


def test_the_form_of_an_answer(package, tmp_path, capfd):
    pytest.importorskip("llguidance")
    ask = [package.folder, "--chat", "--prompt", QUESTION, "--temperature", 0]
    assert in_process(capfd, *ask, "--choice", "yes", "--choice", "no")["text"] in ("yes", "no")
    assert re.fullmatch("[a-c]{5}", in_process(capfd, *ask, "--regex", "[a-c]{5}")["text"])
    schema = tmp_path / "schema.json"
    schema.write_text(
        '{"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"], "additionalProperties": false}'
    )
    answer = json.loads(in_process(capfd, *ask, "--json-schema", schema)["text"])
    assert isinstance(answer["a"], bool)


def test_logprobs_are_told_with_json(package, capfd):
    found = in_process(capfd, package.folder, "--chat", "--prompt", QUESTION, "--logprobs", 2)
    assert [item["token"] for item in found["logprobs"]] == found["token_ids"]
    assert all(item["top"][0] == [item["token"], item["logprob"]] for item in found["logprobs"])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "give the prompt once: --prompt TEXT, --prompt-file FILE, or - for standard input"),
        (["-", "--prompt", "a"], "give the prompt once"),
        (["--prompt", ""], "the prompt is empty"),
        (["--prompt", "\udcff"], "the prompt is not UTF-8 text"),
        (["--prompt", "a " * 500], "tokens, the context holds 256; shorten it"),
        (["--prompt", "a", "--system", "b"], "--system, --no-thinking, --image and --audio need --chat"),
        (["--prompt", "a", "--logprobs", "1"], "--logprobs needs --json"),
        (["--prompt", "a", "--temperature", "-1"], "temperature=-1.0: expected 0 (greedy) or more"),
        (["--prompt", "a", "--logit-bias", "x"], "--logit-bias 'x': expected a token id and a number"),
        (["--prompt", "a", "--max-new-tokens", "0"], "--max-new-tokens 0: expected at least 1"),
        (["--prompt", "a", "--stop", ""], "stop: a string is empty"),
        (["--prompt", "a", "--devices", "x"], "--devices 'x': expected ids such as 0 or 0,1"),
        (["--prompt", "a", "--devices", "0,1"], "or compile with --ndevice N"),
        (["--prompt", "a", "--quant", "float16"], "is compiled already (w8a8h1_sefp), so --quant can change nothing"),
        (["--prompt", "a", "--model", "other"], "PACKAGE is given twice"),
        (["--prompt-file", "none.txt"], "error: none.txt: No such file or directory"),
        (["--prompt-file", "/dev/zero"], "error: /dev/zero: is not a regular file; give the path of a file"),
        (["--prompt-file", "/dev"], "error: /dev: is a folder; give the path of a file"),
        (["--prompt", "a", "--json-schema", "/dev/zero"], "error: /dev/zero: is not a regular file"),
        (["--prompt", "a", "--regex", "["], "structured output: at 1(8): invalid regex"),
        (["--prompt", "a", "--name", "other"], "no compiled package other in"),
    ],
)
def test_bad_input_is_one_line(package, capfd, words, message):
    assert main(["generate", str(package.folder), *words]) == 2
    printed, errors = capfd.readouterr()
    assert (printed, errors.count("\n")) == ("", 1)
    assert errors.startswith("error: ")
    assert message in errors


def test_a_file_of_a_package_is_not_compiled(package, capfd, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert main(["generate", str(package.decode_path), "--prompt", "a"]) == 2
    errors = capfd.readouterr().err
    assert errors == f"error: {package.decode_path} is one file of a package; give its folder, {package.folder}\n"
    assert not any(tmp_path.iterdir())


def test_a_command_without_a_package_says_what_is_missing(capfd):
    assert main(["generate", "--prompt", "a"]) == 2
    assert "PACKAGE is missing" in capfd.readouterr().err
    with pytest.raises(SystemExit):
        main(["generate", "here", "-", "--prompt", "a", "-"])
    errors = capfd.readouterr().err
    assert "tcim-lite generate: error: unrecognized arguments: -" in errors
    assert "--prompt-file FILE" in errors  # the usage of this command


def test_a_prompt_that_is_no_text_is_refused(package, tmp_path, capfd):
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    assert main(["generate", str(package.folder), "--prompt-file", str(tmp_path / "bytes")]) == 2
    assert f"{tmp_path / 'bytes'} is not UTF-8 text" in capfd.readouterr().err
    os.mkfifo(tmp_path / "fifo")  # nobody writes into it: opening it would wait
    assert main(["generate", str(package.folder), "--prompt-file", str(tmp_path / "fifo")]) == 2
    assert f"{tmp_path / 'fifo'}: is not a regular file" in capfd.readouterr().err
    with (tmp_path / "large").open("wb") as file:
        file.truncate((64 << 20) + 1)
    assert main(["generate", str(package.folder), "--prompt-file", str(tmp_path / "large")]) == 2
    assert f"{tmp_path / 'large'}: has more than 67108864 characters" in capfd.readouterr().err
    done = run(package.folder, "-", stdin=b"\xff")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "standard input is not UTF-8 text" in done.stderr


@pytest.mark.parametrize("name", ["none", "./none/here", "a/b/c"])
def test_what_is_neither_a_folder_nor_a_name_is_not_asked_for(name, capfd):
    assert main(["generate", name, "--prompt", "a"]) == 2
    assert f"{name}: there is no such file or folder; expected a package" in capfd.readouterr().err


def test_the_log_begins_with_the_arguments_but_not_the_prompt(package, tmp_path):
    log = tmp_path / "log"
    done = run(package.folder, "--prompt", "tell nobody", "--max-new-tokens", 1, "--log-file", log)
    assert done.returncode == 0
    first = log.read_text().splitlines()[0]
    assert " INFO tcim_lite: generate: " in first
    for word in ("devices=0", "max_new_tokens=1", f"model={package.folder}", "HOUMO_VISIBLE_DEVICES=unset"):
        assert word in first
    assert "nobody" not in log.read_text()


def test_an_error_of_the_runtime_is_one_line(package, monkeypatch, capfd):
    from tcim_lite.llm.engine import Slots

    def fail(*_):
        raise RuntimeError("the device is gone")

    monkeypatch.setattr(Slots, "decode", fail)
    assert main(["generate", str(package.folder), "--prompt", "a"]) == 2
    assert capfd.readouterr().err == "error: RuntimeError: the device is gone\n"
