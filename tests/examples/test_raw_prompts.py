"""Prompts without a chat template, in every example; packages with position ids too."""

import json
import shutil

import pytest
from llm_packages import LoadedPackage

from tcim_lite.llm import load_tokenizer

pytestmark = pytest.mark.slow
QUESTION = "one two three one two three one"
TOKENS = 6
EXAMPLES = {
    "qwen3_chat.py": (),
    "qwen3_prefix_cache.py": (),
    "qwen3_multibatch.py": ("--batch", "2"),
    "qwen3_speculative.py": ("--draft-layers", "2"),
    "qwen3_pipeline.py": ("--pipeline", "2"),
    "qwen3_tensor_parallel.py": ("--ndevice", "2"),
}


HOW = ("--raw", "without a template", "--raw, with positions")
CASES = [(example, how) for how in HOW for example in EXAMPLES]
CASES.remove(("qwen3_multibatch.py", "--raw, with positions"))  # the compiler refuses slots and positions together


@pytest.mark.parametrize(("example", "how"), CASES)
def test_an_example_completes_a_text(compile_demo, run_example, tmp_path, example, how):
    package = compile_demo(*EXAMPLES[example], *(("--position-ids",) if "positions" in how else ()))
    folder = package.folder
    if how == "without a template":
        folder = shutil.copytree(package.folder, tmp_path / "package")
        (folder / "tokenizer" / "chat_template.jinja").unlink()
    question, document = QUESTION, ()
    if "prefix" in example:
        (tmp_path / "document").write_text(QUESTION)
        document, question = ("--document", tmp_path / "document"), f"{QUESTION}\nfour"
    tokenizer = load_tokenizer(package.tokenizer_folder)
    loaded = LoadedPackage(compile_demo())
    expected = list(loaded.generate(tokenizer(question)["input_ids"], None, TOKENS, package.stop_tokens(tokenizer)))
    done = run_example(
        example,
        folder,
        *document,
        *("--question", question.splitlines()[-1], "--max-new-tokens", TOKENS),
        *(("--raw",) if "--raw" in how else ()),
        TCIM_LITE_DEVICE_NUM="2",
    )
    assert done.returncode == 0, done.stderr
    assert tokenizer.decode(expected, skip_special_tokens=True) in done.stdout
    template = tokenizer.apply_chat_template(
        [{"role": "user", "content": question}], add_generation_prompt=True, tokenize=True, return_dict=True
    )
    chat = list(loaded.generate(list(template["input_ids"]), None, TOKENS, package.stop_tokens(tokenizer)))
    assert chat != expected  # or the template would not matter


def test_a_chat_samples_as_the_package_says_if_asked(compile_demo, run_example, tmp_path):
    folder = shutil.copytree(compile_demo().folder, tmp_path / "package")
    path = folder / "tokenizer" / "generation_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"do_sample": True, "temperature": 50.0}))
    arguments = (folder, "--question", "Hello, who are you?", "--max-new-tokens", 12)

    def answer(*more: str) -> str:
        return run_example("qwen3_chat.py", *arguments, *more).stdout.split(" [")[0].split("> ")[1]

    greedy = answer()
    assert answer() == greedy
    assert answer("--sample", "--seed", "1") != greedy
    assert answer("--sample", "--seed", "1") == answer("--sample", "--seed", "1")
    assert answer("--sample", "--temperature", "0") == greedy
