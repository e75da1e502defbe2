"""The C++ examples that chat, run on the demo package and compared with Python."""

from __future__ import annotations

import functools
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from cpp_programs import facade_programs, run
from llm_packages import DEMO_CHECKPOINT, ROOT, LoadedPackage, compile_package

from tcim_lite.llm import encode_chat, load_tokenizer
from tcim_lite.models.families import FAMILIES
from tcim_lite.replay import replay

pytestmark = pytest.mark.build

STRICT = {"TCIM_LITE_STRICT": "error"}  # which must find nothing


@pytest.fixture(scope="session")
def package(demo_package):
    package = demo_package("w4a8h0_ssfp")
    run(sys.executable, ROOT / "examples/cpp/export_tokenizer.py", package.folder)
    return package


@pytest.fixture(scope="session")
def tokenize(sdk) -> Path:
    return facade_programs(sdk, "tokenize") / "tokenize"


def replies(printed: str) -> list[str]:
    """The answers in what a chat printed: what stands between a question and its statistics."""
    return re.findall(r"^> [^\n]*\n(.*?)\n  \[", printed, re.MULTILINE | re.DOTALL)


QUESTIONS = [
    "Hello, who are you?",
    "My name is Anna and I live in Oslo.",
    "What is 12 + 30?",
    "7加5等于多少？",
    "What is my name?",
]


def test_the_cpp_chat_answers_as_the_python_chat_does(cpp_examples, package):
    arguments = [part for question in QUESTIONS for part in ("--question", question)]
    expected = run(sys.executable, ROOT / "examples/qwen3_chat.py", package.folder, *arguments)
    printed = run(cpp_examples / "qwen3_chat", package.folder, *arguments, env=STRICT)
    assert replies(printed) == replies(expected)
    assert "42" in replies(printed)[2]
    assert "Anna" in replies(printed)[4]
    # The cache is kept between turns.
    assert re.search(r"\((\d+) cached\)", printed.splitlines()[-1]).group(1) != "0"


@pytest.fixture(scope="session")
def gpt_oss(tmp_path_factory):
    """gpt_oss(prefill_length, masks) -> the folder of a random gpt-oss with the demo's tokenizer."""

    @functools.cache
    def make(prefill_length, masks):
        folder = tmp_path_factory.mktemp("gpt_oss")
        for file in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
            shutil.copyfile(DEMO_CHECKPOINT / file, folder / file)
        vocab_size = json.loads((DEMO_CHECKPOINT / "config.json").read_text())["vocab_size"]
        (folder / "config.json").write_text(json.dumps(FAMILIES["gpt_oss"].tiny_config | {"vocab_size": vocab_size}))
        sizes = {"prefill_length": prefill_length, "context_length": 128}
        made = compile_package(folder, folder / "out", random_weights=True, seed=3, masks=masks, **sizes)
        run(sys.executable, ROOT / "examples/cpp/export_tokenizer.py", made.folder)
        return made.folder

    return make


def test_the_cpp_examples_feed_masks(cpp_examples, gpt_oss):
    """As masks say what the lengths say, the answers are those of the package without; the window is 10 tokens."""

    def printed(program, *arguments):  # random weights need not write UTF-8
        return subprocess.run(
            [cpp_examples / program, *arguments],
            env={**os.environ, **STRICT},
            capture_output=True,
            check=True,
            timeout=60,
        ).stdout.splitlines()

    for text in QUESTIONS[:3]:
        asked = ("--ids", "--max-new-tokens", "20", "--question", text)
        plain, masked = (printed("qwen3_chat", gpt_oss(8, masks), *asked)[-2] for masks in (False, True))
        assert len(plain.split()) > 10
        assert masked == plain
    plain, masked = (printed("buffers_and_streams", gpt_oss(64, masks), "3", "12") for masks in (False, True))
    assert plain
    assert masked == plain


def test_the_cpp_chat_feeds_position_ids(cpp_examples, package, tmp_path):
    given = compile_package(DEMO_CHECKPOINT, tmp_path / "package", position_ids=True)
    run(sys.executable, ROOT / "examples/cpp/export_tokenizer.py", given.folder)
    arguments = ("--question", QUESTIONS[0], "--question", QUESTIONS[2])
    printed = run(cpp_examples / "qwen3_chat", given.folder, *arguments, env=STRICT)
    assert replies(printed) == replies(run(cpp_examples / "qwen3_chat", package.folder, *arguments))


def test_the_cpp_examples_refuse_states_that_they_do_not_hand_on(cpp_examples, tmp_path):
    for file in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copyfile(DEMO_CHECKPOINT / file, tmp_path / file)
    (tmp_path / "config.json").write_text(json.dumps(FAMILIES["lfm2"].tiny_config))
    made = compile_package(tmp_path, tmp_path / "out", random_weights=True, prefill_length=8, context_length=32)
    run(sys.executable, ROOT / "examples/cpp/export_tokenizer.py", made.folder)
    done = subprocess.run([cpp_examples / "buffers_and_streams", made.folder], capture_output=True, text=True)
    assert done.returncode == 1
    assert "lfm2_decode.hmm takes past_conv_cache_0, a state that every run hands to the next" in done.stderr


def test_the_cpp_chat_takes_the_package_of_a_folder_whatever_its_name(cpp_examples, package, tmp_path):
    other = compile_package(DEMO_CHECKPOINT, tmp_path / "package", name="mine")
    run(sys.executable, ROOT / "examples/cpp/export_tokenizer.py", other.folder)
    arguments = ("--question", QUESTIONS[2])
    answer = run(cpp_examples / "qwen3_chat", package.folder, *arguments)
    assert replies(run(cpp_examples / "qwen3_chat", other.folder, *arguments)) == replies(answer)
    for path in other.folder.glob("mine_*.hmm"):
        shutil.copyfile(path, path.with_name(path.name.replace("mine", "second")))
    assert replies(run(cpp_examples / "qwen3_chat", other.folder, "--name", "second", *arguments)) == replies(answer)
    done = subprocess.run([cpp_examples / "qwen3_chat", other.folder, *arguments], capture_output=True, text=True)
    assert done.returncode != 0
    assert "holds 2 packages, expected one" in done.stderr


def test_a_raw_prompt_is_raw_in_both_languages(cpp_examples, package):
    arguments = ("--raw", "--max-new-tokens", "6", "--question", "What is", "--question", " 12 + 30?")
    printed = run(cpp_examples / "qwen3_chat", package.folder, *arguments, env=STRICT)
    expected = run(sys.executable, ROOT / "examples/qwen3_chat.py", package.folder, *arguments)
    assert replies(printed) == replies(expected)
    assert f"[{len(load_tokenizer(package.tokenizer_folder)('What is')['input_ids'])} prompt tokens" in printed


def test_the_cpp_chats_greedy_tokens_are_pythons(cpp_examples, package, demo_prompts):
    tokenizer, loaded = load_tokenizer(package.tokenizer_folder), LoadedPackage(package)
    texts = [entry["messages"][0]["content"] for entry in demo_prompts if len(entry["messages"]) == 1]
    chosen = [*texts[::12], max(texts, key=len)]  # the longest takes several prefill chunks
    assert len(chosen) > 10
    for text in chosen:
        prompt = encode_chat(tokenizer, [{"role": "user", "content": text}])
        expected = list(loaded.generate(prompt, max_new_tokens=48, stop_tokens={tokenizer.eos_token_id}))
        printed = run(
            cpp_examples / "qwen3_chat", package.folder, "--ids", "--max-new-tokens", "48", "--question", text
        )
        ids, statistics = printed.splitlines()[-2:]
        assert [int(token) for token in ids.split()] == expected
        assert f"[{len(prompt)} prompt tokens" in statistics


def test_branches_on_several_streams_decode_as_one_would_alone(cpp_examples, package):
    answers = run(cpp_examples / "buffers_and_streams", package.folder, "4", "24", env=STRICT).splitlines()
    assert answers[0] == "12 + 30 = 42"
    assert len(set(answers)) == 4
    alone = run(cpp_examples / "buffers_and_streams", package.folder, "1", "24").splitlines()
    assert alone == answers[:1]


@pytest.mark.parametrize("program", ["qwen3_chat", "buffers_and_streams"])
def test_a_recorded_cpp_example_replays_bit_for_bit(cpp_examples, package, tmp_path, program):
    arguments = ("3", "12") if program == "buffers_and_streams" else ("--question", QUESTIONS[0])
    file = tmp_path / "example.tcimrec"
    run(cpp_examples / program, package.folder, *arguments, env={"TCIM_LITE_LAYERS": f"record:{file}"})
    done = replay(file)
    assert done.mismatches == []
    assert done.compared > 100


def test_the_examples_explain_what_is_missing(cpp_examples, tmp_path):
    for program in ("qwen3_chat", "buffers_and_streams"):
        result = subprocess.run([cpp_examples / program, tmp_path], capture_output=True, text=True)
        assert result.returncode == 1
        assert "export_tokenizer.py" in result.stderr


def test_a_damaged_tokenizer_is_named(tmp_path):
    file = tmp_path / "tokenizer" / "tokenizer.json"
    file.parent.mkdir()
    damaged = "no tokenizer of byte-level BPE that is complete"
    for content, message in ((None, "No such file"), ('{"model": ', damaged), ("{}", damaged), ("[]", damaged)):
        if content is not None:
            file.write_text(content)
        command = [sys.executable, ROOT / "examples/cpp/export_tokenizer.py", tmp_path]
        result = subprocess.run(command, capture_output=True, text=True)
        assert (result.returncode, result.stderr.count("\n")) == (1, 1)
        assert result.stderr.startswith(f"error: {file}: {message}")


TEXTS = [
    "", " ", "  a  b\n\n c\t\r\n", "!!!\n\n???\r\n.x", "ab\u200bcd", "tabs\t\tand  spaces   \n   end   ",
    "It's we'LL they'Re I'D 'x' ''s",
    "3.14159 x2y ½ ² ٣ 1000000", "naïve café — “quoted”…", "Ελληνικά русский العربية हिन्दी",
    "你好，世界！小明有5个苹果。", "emoji 🙂👩‍👩‍👧 done",
    "<|im_start|>user\nhi<|im_end|><|im_end", "a\u00a0b\u2003c\u0085d\u001ce",
]  # fmt: skip


def test_the_examples_tokenizer_equals_hugging_faces(tokenize, package, demo_prompts):
    tokenizer = load_tokenizer(package.tokenizer_folder)
    texts = TEXTS + [message["content"] for entry in demo_prompts for message in entry["messages"]]
    stream = "".join(f"{text}\0" for text in texts)
    printed = run(tokenize, package.tokenizer_folder / "cpp_tokenizer.txt", text=stream)
    for text, line in zip(texts, printed.splitlines(), strict=True):
        assert [int(token) for token in line.split()] == tokenizer.encode(text), repr(text)
