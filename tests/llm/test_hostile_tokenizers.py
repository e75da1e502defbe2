"""Chat templates and tokenizers that are broken or hostile: one line names the file, within limits."""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path

import pytest

from tcim_lite.llm import encode_chat, limited, load_tokenizer, prompt_chunks
from tcim_lite.serve.vocabulary import Vocabulary

DEMO = Path(__file__).parents[2] / "examples" / "demo_checkpoint"
MESSAGES = [{"role": "user", "content": "Hello"}]


@pytest.fixture
def folder(tmp_path):
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copyfile(DEMO / name, tmp_path / name)
    return tmp_path


def refusal(folder, monkeypatch, template, seconds=2.0):
    """What is said about a template, and within the limit of time."""
    monkeypatch.setattr(limited, "SECONDS", seconds)
    (folder / "chat_template.jinja").write_text(template)
    tokenizer = load_tokenizer(folder)
    start = time.monotonic()
    with pytest.raises(ValueError, match=r"chat_template\.jinja: the chat template fails: ") as caught:
        encode_chat(tokenizer, MESSAGES)
    assert time.monotonic() - start < seconds + 20
    message = str(caught.value)
    assert message.startswith(str(folder))
    assert message.isprintable()  # one line
    assert len(message) < 600
    return message.split(" fails: ")[1]


def test_the_limits_change_no_token(folder):
    tokenizer = load_tokenizer(folder)
    messages = [*MESSAGES, {"role": "assistant", "content": "好的"}, {"role": "user", "content": "7加5等于多少？"}]
    encoded = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=True, return_dict=True)
    assert encode_chat(tokenizer, messages) == list(encoded["input_ids"])


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("{% for message in messages %}", "TemplateSyntaxError: Unexpected end of template"),
        ("{{ ''.__class__.__mro__ }}", "SecurityError"),
        ("{{ messages.nothing.at.all }}", "UndefinedError"),
        ("{{ raise_exception('roles\n must \x1b[31malternate') }}", "TemplateError: roles must ?[31malternate"),
        ("{% for i in range(10**9) %}x{% endfor %}", "OverflowError: Range too big"),
        ("{{ 'x' * 10**10 }}", "needs more than 512 MiB"),
        ("{% for i in range(90000) %}{{ 'x' * 100000 }}{% endfor %}", "needs more than 512 MiB"),
        ("{% macro again() %}{{ again() }}{% endmacro %}{{ again() }}", "RecursionError"),
        ("{{ raise_exception('x' * 10000) }}", "xxx..."),
    ],
)
def test_a_template_that_cannot_be_rendered(folder, monkeypatch, template, words):
    assert words in refusal(folder, monkeypatch, template, seconds=limited.SECONDS)


@pytest.mark.parametrize(
    "template",
    [
        "{% for i in range(90000) %}{% for j in range(90000) %}{% endfor %}{% endfor %}",
        "{{ 10 ** (10 ** 10) }}",  # one operation, which no signal ends
    ],
)
def test_a_template_that_does_not_end(folder, monkeypatch, template):
    assert refusal(folder, monkeypatch, template, seconds=1) == "takes longer than 1 s"


def test_an_answer_has_a_limit(monkeypatch):
    monkeypatch.setattr(limited, "OUTPUT_BYTES", 8 << 10)
    assert limited.run_limited(lambda: [7] * 1000) == [7] * 1000
    with pytest.raises(limited.LimitedWorkError, match="makes more than"):
        limited.run_limited(lambda: [7] * 100_000)
    with pytest.raises(limited.LimitedWorkError, match="crashed"):
        limited.run_limited(lambda: os._exit(1))


def test_limited_work_leaves_nothing_behind():
    def held() -> tuple[int, set[str]]:
        children = Path("/proc/self/task").glob("*/children")
        return len(os.listdir("/proc/self/fd")), {child for file in children for child in file.read_text().split()}

    before = held()
    for _ in range(10):
        limited.run_limited(lambda: [1])
    assert held() == before


@pytest.mark.parametrize("size", [0, 1, 100, 5000])
def test_a_tokenizer_that_is_cut(folder, size):
    path = folder / "tokenizer.json"
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(ValueError, match=r"tokenizer\.json: the tokenizer cannot be loaded: ") as caught:
        load_tokenizer(folder)
    assert str(caught.value).isprintable()


def test_a_tokenizer_configuration_that_is_none(folder):
    (folder / "tokenizer_config.json").write_text('["a list"]')
    with pytest.raises(ValueError, match="the tokenizer cannot be loaded"):
        load_tokenizer(folder)


def test_a_tokenizer_file_that_might_not_end(folder):
    (folder / "tokenizer.json").unlink()
    os.mkfifo(folder / "tokenizer.json")
    with pytest.raises(ValueError, match=r"tokenizer\.json: is not a regular file"):
        load_tokenizer(folder)
    (folder / "tokenizer.json").unlink()
    with (folder / "tokenizer.json").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(ValueError, match=r"tokenizer\.json: has 1099511627776 bytes"):
        load_tokenizer(folder)


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir], ids=["fifo", "folder"])
def test_a_tokenizer_configuration_that_is_no_regular_file(folder, make):
    (folder / "tokenizer_config.json").unlink()
    make(folder / "tokenizer_config.json")
    with pytest.raises(ValueError, match=r"tokenizer_config\.json: expected a regular file of at most \d+ bytes"):
        Vocabulary(folder)
    if make is os.mkfifo:  # transformers passes a folder over
        with pytest.raises(ValueError, match=r"tokenizer_config\.json: is not a regular file"):
            load_tokenizer(folder)


def test_a_tokenizer_that_multiplies_its_input(folder, monkeypatch):
    content = json.loads((folder / "tokenizer.json").read_text())
    replace = [{"type": "Replace", "pattern": {"String": "e"}, "content": "e" * 3000}] * 3
    content["normalizer"] = {"type": "Sequence", "normalizers": replace}
    (folder / "tokenizer.json").write_text(json.dumps(content))
    monkeypatch.setattr(limited.run_limited, "__defaults__", (2.0,))
    with pytest.raises(ValueError, match=r"the chat template fails: (takes longer|needs more|crashed)"):
        encode_chat(load_tokenizer(folder), MESSAGES)


def test_ids_outside_the_embedding_are_refused():
    import numpy as np

    with pytest.raises(ValueError, match="token ids 1 to 9, but the embedding has 9 rows"):
        next(prompt_chunks(np.zeros((9, 4), np.float16), [1, 9], 4))
