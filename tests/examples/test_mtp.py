"""The example of multi-token prediction: exactly the tokens of plain decode."""

import json
import re
import shutil

import pytest
from llm_packages import DEMO_CHECKPOINT, LoadedPackage, compile_package

from tcim_lite.llm import encode_chat, load_tokenizer
from tcim_lite.models.families import FAMILIES

pytestmark = pytest.mark.slow


def test_answers_are_those_of_plain_decode(tmp_path, run_example, shown_tokens):
    """Weights are random, so the layer's guesses are mostly wrong."""
    checkpoint = tmp_path / "hf"
    checkpoint.mkdir()
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copy(DEMO_CHECKPOINT / name, checkpoint / name)
    vocab_size = json.loads((DEMO_CHECKPOINT / "config.json").read_text())["vocab_size"]
    config = {**FAMILIES["qwen3_5"].tiny_config, "vocab_size": vocab_size}
    (checkpoint / "config.json").write_text(json.dumps(config))
    options = {"random_weights": True, "prefill_length": 16, "context_length": 64, "quant": "float16"}
    package = compile_package(checkpoint, tmp_path / "mtp", mtp=True, **options)
    plain = compile_package(checkpoint, tmp_path / "plain", **options)
    tokenizer = load_tokenizer(plain.tokenizer_folder)
    prompt = encode_chat(tokenizer, [{"role": "user", "content": "What is 7 + 5?"}])
    want = list(LoadedPackage(plain).generate(prompt, None, 12, plain.stop_tokens(tokenizer)))
    done = run_example(
        "qwen3_5_mtp.py", package.folder, "--question", "What is 7 + 5?", "--max-new-tokens", "12", "--show-tokens"
    )
    assert done.returncode == 0, done.stderr
    assert shown_tokens(done.stdout) == [want]
    assert re.search(r"12 tokens in \d+ runs of the model \| \d+ of \d+ proposals accepted", done.stdout)


def test_a_package_without_the_graphs_names_the_option(compile_demo, run_example):
    done = run_example("qwen3_5_mtp.py", compile_demo().folder)
    assert done.returncode != 0
    assert re.search("tcim-lite compile CHECKPOINT .* --mtp", done.stderr)


@pytest.mark.parametrize("count", [0, -1])
def test_no_tokens_are_refused(compile_demo, run_example, count):
    done = run_example("qwen3_5_mtp.py", compile_demo().folder, f"--max-new-tokens={count}")
    assert done.returncode == 2
    assert f"--max-new-tokens {count}: expected at least 1" in done.stderr
