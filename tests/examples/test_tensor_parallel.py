"""Several devices as one: the answers of a single device, whether prompts run on all of them or in stages."""

import pytest

pytestmark = pytest.mark.slow

DEVICES = {"TCIM_LITE_DEVICE_NUM": "2"}
QUESTIONS = ["What is 12 + 30?", "Repeat after me: the quick brown fox jumps over the lazy dog"]
ASKED = [argument for question in QUESTIONS for argument in ("--question", question)]
PACKAGES = {
    "tensor": ("--ndevice", "2"),
    # Two chunks of prompt, and no graph for one device at all.
    "pipeline": ("--ndevice", "2", "--pipeline", "2", "--no-single-device", "--prefill-length", "16"),
}


@pytest.mark.parametrize(("prefill", "devices"), [("tensor", "1,0"), ("pipeline", "0,1")])
def test_answers_equal_those_of_one_device_token_for_token(
    compile_demo, run_example, plain_tokens, shown_tokens, prefill, devices
):
    arguments = [*ASKED, "--show-tokens", "--prefill", prefill, "--devices", devices]
    done = run_example("qwen3_tensor_parallel.py", compile_demo(*PACKAGES[prefill]).folder, *arguments, **DEVICES)
    assert done.returncode == 0, done.stderr
    assert shown_tokens(done.stdout) == [plain_tokens(question) for question in QUESTIONS]
    assert f"devices {devices}" in done.stdout


@pytest.mark.parametrize(
    ("package", "arguments", "text"),
    [
        ("tensor", ["--devices", "0"], "is a model for 2 devices, the device manager lists 1"),
        ("tensor", ["--devices", "0,2"], "device 2 does not exist"),
        ("tensor", ["--prefill", "pipeline"], "--name qwen3 --pipeline 2"),
        ("pipeline", ["--prefill", "pipeline", "--devices", "1"], "2 stages, --devices names 1"),
        ("plain", [], "or compile with --ndevice N"),
    ],
)
def test_what_does_not_fit_is_one_sentence(compile_demo, run_example, package, arguments, text):
    folder = compile_demo(*PACKAGES.get(package, ())).folder
    done = run_example("qwen3_tensor_parallel.py", folder, "--question", "hi", *arguments, **DEVICES)
    assert done.returncode == 1
    assert text in done.stderr
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
