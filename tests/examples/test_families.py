"""Every example of text on every family that it takes: the greedy answer of one device, one slot, one token at a time;
strict mode silent.

Weights are random, so the answers mean nothing; tokenizer and chat template are the demo checkpoint's.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from llm_packages import DEMO_CHECKPOINT, LAYER_INPUTS, WITHOUT_AXES, LoadedPackage, compile_package

from tcim_lite.llm import Package, encode_chat, load_tokenizer
from tcim_lite.models.families import FAMILIES

pytestmark = pytest.mark.slow

QUESTION, LIMIT = "What is 12 + 30?", 6
SIZES = {"prefill_length": 8, "context_length": 128}
TWO = {"TCIM_LITE_DEVICE_NUM": "2"}
# What a family's tiny config is without: a window shorter than the prompt, biases on all of attention.
CHANGES: dict[str, dict[str, Any]] = {
    "mistral": {"sliding_window": 9},
    "qwen2": {"use_sliding_window": True, "sliding_window": 11, "max_window_layers": 1},
    "qwen3": {"attention_bias": True, "tie_word_embeddings": True},
    # A cache in each of two stages.
    "qwen3_next": {"layer_types": ["linear_attention", "full_attention", "linear_attention", "full_attention"]},
}
# Script, options of the package and of the script, environment.
FLOWS: dict[str, tuple[str, dict[str, Any], tuple[object, ...], dict[str, str]]] = {
    "chat": ("qwen3_chat.py", {}, (), {}),
    "all logits": ("qwen3_chat.py", {"all_logits": True}, (), {}),
    "batch": ("qwen3_multibatch.py", {"batch": 3}, ("--show-tokens",), {}),
    "pipeline": ("qwen3_pipeline.py", {"pipeline": 2}, ("--show-tokens",), TWO),
    "two devices": ("qwen3_tensor_parallel.py", {"ndevice": 2}, ("--show-tokens",), TWO),
    "speculative": ("qwen3_speculative.py", {"draft_layers": 1}, ("--show-tokens", "--margin", 0), {}),
}


@pytest.fixture(scope="module")
def family_package(tmp_path_factory) -> Callable[..., Package]:
    """family_package(family, **options) -> a package with the demo's tokenizer; equal arguments give the same one."""
    made: dict[str, Package] = {}

    def make(family: str, **options: Any) -> Package:
        key = json.dumps([family, options], sort_keys=True)
        if key not in made:
            folder = tmp_path_factory.mktemp(family)
            for file in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
                shutil.copyfile(DEMO_CHECKPOINT / file, folder / file)
            vocab_size = json.loads((DEMO_CHECKPOINT / "config.json").read_text())["vocab_size"]
            config = FAMILIES[family].tiny_config | CHANGES.get(family, {}) | {"vocab_size": vocab_size}
            (folder / "config.json").write_text(json.dumps(config))
            made[key] = compile_package(folder, folder / "out", random_weights=True, seed=3, **SIZES, **options)
        return made[key]

    return make


@pytest.fixture(scope="module")
def answer_of(family_package) -> Callable[[str], tuple[list[int], str]]:
    """answer_of(family) -> the tokens of the answer, and its text."""
    known: dict[str, tuple[list[int], str]] = {}

    def answer(family: str) -> tuple[list[int], str]:
        if family not in known:
            package = family_package(family)
            tokenizer = load_tokenizer(package.tokenizer_folder)
            prompt = encode_chat(tokenizer, [{"role": "user", "content": QUESTION}])
            assert len(prompt) > 12  # two chunks, and beyond the windows
            tokens = list(LoadedPackage(package).generate(prompt, None, LIMIT, package.stop_tokens(tokenizer)))
            known[family] = tokens, tokenizer.decode(tokens, skip_special_tokens=True)
        return known[family]

    return answer


# Families with graphs of their own inputs, or with a window: the others look alike to a program of the host, whose part
# in these flows is all that tests/llm does not see.
LEADING = [*CHANGES, *{repr(FAMILIES[family].contract): family for family in WITHOUT_AXES}.values()]
OF_THE_HOST = ("all logits", "batch", "pipeline", "two devices")
CASES = [
    pytest.param(family, flow, marks=() if family in LEADING else pytest.mark.grid)
    for family in WITHOUT_AXES
    for flow in FLOWS
    if family in LEADING or flow not in OF_THE_HOST
]
CASES += [("qwen3_next", flow) for flow in FLOWS if flow != "speculative"]
CASES += [(family, flow) for family in LAYER_INPUTS for flow in ("chat", "all logits")]


@pytest.mark.parametrize(("family", "flow"), CASES)
def test_every_flow_answers_as_one_device_does(family_package, answer_of, run_example, shown_tokens, family, flow):
    script, options, arguments, environment = FLOWS[flow]
    folder = family_package(family, **options).folder
    asked = ("--question", QUESTION, "--max-new-tokens", LIMIT)
    done = run_example(script, folder, *asked, *arguments, **environment)
    assert done.returncode == 0, done.stderr
    tokens, text = answer_of(family)
    assert tokens
    if "--show-tokens" in arguments:
        assert shown_tokens(done.stdout) == [tokens]
    else:
        assert text.strip() in done.stdout
        assert f"{len(tokens)} new" in done.stdout


@pytest.mark.parametrize("family", [family for family in WITHOUT_AXES if family in LEADING])
def test_a_prefix_taken_from_the_host_changes_no_answer(family_package, run_example, tmp_path: Path, family):
    document = tmp_path / "book.txt"
    document.write_text("Anna: 4711\nBen: 4712")
    arguments: list[object] = ["--document", document, "--max-new-tokens", LIMIT]
    for name in ("Anna", "Ben"):
        arguments += ["--question", f"What is the number of {name}?"]
    folder = family_package(family).folder
    cached, plain = (run_example("qwen3_prefix_cache.py", folder, *arguments, *more) for more in ((), ("--no-cache",)))
    assert cached.returncode == plain.returncode == 0, cached.stderr + plain.stderr
    answers = [re.findall(r"^\[document \d\] .*\n  (.*)$", done.stdout, re.MULTILINE) for done in (cached, plain)]
    assert len(answers[1]) == 2
    assert answers[0] == answers[1]
    first, second = re.findall(r"\[\d+ prompt tokens: (\d+) there already", cached.stdout)
    assert int(first) == 0 < int(second)
