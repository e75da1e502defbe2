"""The examples on a card in trouble: one line that says so, and no hang (docs/fault-injection.md)."""

from __future__ import annotations

import pytest
from llm_packages import LoadedPackage

import tcim_lite.runtime as rt
from tcim_lite.llm import Sampler, encode_chat, load_tokenizer

pytestmark = pytest.mark.slow  # whole programs
QUESTION = "What is 12 + 30?"
ASKED = ("--question", QUESTION)


HANG = ('kind = "hang"\nnth = 3\ntimeout_s = 0.2', "(ret:110)")
OTHERS = [
    ('kind = "device_lost"\nnth = 3', "is lost"),
    ('kind = "out_of_memory"\nnth = 2', "is out of memory"),
    ('kind = "load_failure"', "is damaged"),
]
EXAMPLES = [
    ("qwen3_chat.py", ()),
    ("qwen3_multibatch.py", ("--batch", "3")),
    ("qwen3_pipeline.py", ("--pipeline", "3")),
    ("qwen3_prefix_cache.py", ()),
]


# Every error ends the first example, an error of a run each of them, and one of a load the stages in processes too.
@pytest.mark.parametrize(
    ("example", "options", "rule", "words"),
    [
        *((*example, *HANG) for example in EXAMPLES),
        *((*EXAMPLES[0], *other) for other in OTHERS),
        (*EXAMPLES[2], *OTHERS[-1]),
    ],
)
def test_an_example_says_in_one_line_what_its_card_did(
    compile_demo, run_example, tmp_path, example, options, rule, words
):
    (tmp_path / "rules.toml").write_text(f"[[fault]]\n{rule}\n")
    folder = compile_demo(*options).folder
    done = run_example(example, folder, *ASKED, TCIM_LITE_FAULTS=str(tmp_path / "rules.toml"), TCIM_LITE_DEVICE_NUM="3")
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stderr
    said = [line for line in done.stderr.splitlines() if not line.startswith("tcim_lite warning: ")]
    assert len(said) == 1
    assert said[0].startswith("error: ")
    assert words in said[0]


def test_an_answer_that_a_fault_ended_is_given_after_a_reset(compile_demo, plain_tokens, tcim_faults, hal):
    package = compile_demo()
    tokenizer = load_tokenizer(package.tokenizer_folder)
    prompt = encode_chat(tokenizer, [{"role": "user", "content": QUESTION}])
    loaded = LoadedPackage(package)
    injected = tcim_faults(kind="device_lost", model="decode", nth=4)
    tokens = []
    with pytest.raises(rt.DeviceError, match="device 0 is lost"):
        tokens.extend(loaded.generate(prompt, Sampler(), 20, {tokenizer.eos_token_id}))
    assert [fault.device for fault in injected.fired] == [0]
    hal.ipu_reset(0)
    assert list(loaded.generate(prompt, Sampler(), 20, {tokenizer.eos_token_id})) == plain_tokens(QUESTION, 20)
