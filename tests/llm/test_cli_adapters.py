"""`--lora NAME[=DIR]` of generate and chat, with a package and with a checkpoint."""

import sys

import pytest
from generate_command import QUESTION, in_process
from llm_packages import DEMO_CHECKPOINT, compile_package
from lora_adapters import linears_of, write_random_adapter

pytest.importorskip("safetensors.numpy", reason="writes adapters")
pytest.importorskip("tokenizers", reason="the commands need the extra [chat]")

from tcim_lite.cli import main
from tcim_lite.llm import encode_chat, load_tokenizer
from tcim_lite.llm.engine import Engine, SamplingParams, answer_all

SIZES = {"prefill_length": 32, "context_length": 128}
ASK = ["--chat", "--prompt", QUESTION, "--max-new-tokens", 8]


@pytest.fixture(scope="module")
def tuned(tmp_path_factory):
    """A package with two adapters, their PEFT folders beside it."""
    folder = tmp_path_factory.mktemp("tuned")
    for seed, name in enumerate(("first", "second")):
        write_random_adapter(folder / name, linears_of(DEMO_CHECKPOINT), seed)
        package = compile_package(DEMO_CHECKPOINT, folder / "out", lora=folder / name, **SIZES)
    return package


@pytest.fixture(scope="module")
def answer_of(tuned):
    tokenizer = load_tokenizer(tuned.tokenizer_folder)
    engine = Engine.open(tuned, adapters=tuned.adapters, tokenizer=tokenizer)
    prompt = encode_chat(tokenizer, [{"role": "user", "content": QUESTION}])

    def answer(adapter):
        return answer_all(engine, [prompt], SamplingParams(max_tokens=8, adapter=adapter))[0].text

    return answer


def test_the_adapter_named_answers(tuned, answer_of, capfd):
    texts = {adapter: answer_of(adapter) for adapter in (None, "first", "second")}
    assert len(set(texts.values())) == 3
    assert in_process(capfd, tuned.folder, *ASK)["text"] == texts[None]
    for adapter, words in (
        ("first", "first"),
        ("second", "second"),
        ("second", f"other={tuned.adapters['second']}"),
    ):
        made = in_process(capfd, tuned.folder, *ASK, "--lora", words)
        assert (made["text"], made["model"]) == (texts[adapter], words.partition("=")[0])


def test_a_chat_takes_an_adapter(tuned, answer_of, capfd, monkeypatch, tmp_path):
    (tmp_path / "said").write_text(QUESTION)
    with (tmp_path / "said").open() as said:
        monkeypatch.setattr(sys, "stdin", said)
        assert main(["chat", str(tuned.folder), "--max-new-tokens", "8", "--lora", "first"]) == 0
    printed = capfd.readouterr().out
    assert all(line in printed for line in answer_of("first").splitlines() if line.isprintable())


def test_an_adapter_beside_a_checkpoint_is_compiled(tuned, answer_of, capfd, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    sizes = ["--context-length", 128, "--prefill-length", 32]
    made = in_process(capfd, DEMO_CHECKPOINT, *ASK, *sizes, "--lora", f"mine={tuned.folder.parent / 'first'}")
    assert made["text"] == answer_of("first")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--lora", "third"], "--lora third: "),
        (["--lora", "third"], " has no adapter of that name, but first, second; give the folder"),
        (["--lora", ""], "--lora '': expected NAME or NAME=DIR"),
        (["--lora", "first="], "--lora 'first=': expected NAME or NAME=DIR"),
        (["--lora", "first", "--lora", "first"], "'first' is given twice"),
        (["--lora", "first", "--lora", "second"], "--lora is given 2 times; one adapter answers, and serve takes"),
        (["--lora", "x=nowhere"], "adapter 'x': nowhere is no folder; give one that `compile --lora` wrote"),
    ],
)
def test_what_is_wrong_with_an_adapter_is_one_line(tuned, capfd, words, message):
    assert main(["generate", str(tuned.folder), "--prompt", "x", *words]) == 2
    told = capfd.readouterr().err
    assert message in told
    assert told.startswith("error: ")
    assert told.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["a"], "--lora a beside a checkpoint: give the folder of the PEFT adapter, a=DIR"),
        (["a=x", "b=y"], "--lora of 2 adapters beside a checkpoint, from which one can be compiled"),
        (["a=nowhere"], "--lora nowhere is no folder; expected a PEFT adapter"),
    ],
)
def test_what_is_wrong_with_an_adapter_beside_a_checkpoint(capfd, monkeypatch, tmp_path, words, message):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    options = [option for word in words for option in ("--lora", word)]
    assert main(["generate", str(DEMO_CHECKPOINT), "--prompt", "x", *options]) == 2
    assert message in capfd.readouterr().err


def test_a_server_does_not_call_two_models_the_same(tuned, capfd):
    words = ["--port", "0", "--lora", f"qwen3={tuned.adapters['first']}"]
    assert main(["serve", str(tuned.folder), *words]) == 2
    assert "the base model and an adapter are both called 'qwen3'; rename one" in capfd.readouterr().err
