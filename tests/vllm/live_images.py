"""Images under vLLM: answers are those of the engine of `tcim-lite serve` and of transformers, for all towers."""

import base64
import io
import itertools
import sys
from pathlib import Path

import numpy as np
import pytest
from live_fixtures import post, served
from PIL import Image
from vllm import LLM, SamplingParams
from vllm.exceptions import VLLMValidationError

from tcim_lite.llm.engine import Engine, answer_all
from tcim_lite.llm.engine import SamplingParams as OwnParams
from tcim_lite.llm.images import ImagePrompts

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[1] / "llm")]
from image_models import png
from test_image_prompts import MODELS

FILES = [png(50, 70, 1), png(50, 70, 1), png(90, 100, 2)]
PARAMS = SamplingParams(temperature=0, max_tokens=6, ignore_eos=True, logprobs=0)


def question(model, count, words="and"):
    return "<|im_start|>user\nOne " + f" {words} {model.written}".join(["", *[""] * (count - 1), "?<|im_end|>\n"])


def asked(model, files, words="and"):
    images = [Image.open(io.BytesIO(file)) for file in files]
    return {"prompt": question(model, len(files), words), "multi_modal_data": {"image": images}}


def by_serve(model, questions):
    """Tokens of the prompt and of the answer to each, `words` and files."""
    images, engine = ImagePrompts.open(model.package, model.tokenizer), Engine.open(model.package, stop_tokens=())
    prompts = []
    for words, files in questions:
        shown = [images.take(file) for file in files]
        text = images.expand(question(model, len(files), words), shown)
        prompts.append(images.place(model.tokenizer.encode(text, add_special_tokens=False).ids, shown))
    events = answer_all(engine, prompts, OwnParams(max_tokens=6))
    return [(list(prompt), list(event.token_ids)) for prompt, event in zip(prompts, events, strict=True)]


def found(out):
    return out.prompt_token_ids, list(out.outputs[0].token_ids)


def text_of(number):
    """A prompt of text, which shares slots and steps with the images."""
    return {"prompt_token_ids": [(7 * place + number) % 300 + 5 for place in range(30)]}


# Compiling Qwen3-Omni needs onnx, which is not in this environment; its tower is that of Qwen3-VL.
@pytest.fixture(scope="module", params=[name for name in MODELS if name != "qwen3_omni_moe"])
def tiny(request, tmp_path_factory):
    kind, family, vision, options = MODELS[request.param]
    return kind(family, tmp_path_factory.mktemp("images"), vision, **options)


def test_answers_are_those_of_serve_and_of_transformers(tiny):
    questions = [("and", FILES), ("or", FILES[2:]), ("and", FILES), ("with", FILES[:1])]
    expected = by_serve(tiny, questions)
    llm = LLM(model=str(tiny.package.folder), seed=0, max_num_batched_tokens=96)
    plain = [found(llm.generate([text_of(number)], PARAMS, use_tqdm=False)[0]) for number in range(2)]
    prompts = [text_of(0), *(asked(tiny, files, words) for words, files in questions), text_of(1)]
    outputs = llm.generate(prompts, PARAMS, use_tqdm=False)  # more than slots
    assert [found(out) for out in outputs[1:-1]] == expected
    assert [found(out) for out in (outputs[0], outputs[-1])] == plain
    tokens, answer = expected[0]
    want, bound = tiny.logprobs([*tokens, *answer], FILES)
    for place, (token, logprobs) in enumerate(zip(answer, outputs[1].outputs[0].logprobs, strict=True)):
        assert abs(logprobs[token].logprob - want[len(tokens) - 1 + place, token]) <= bound
    begin_again(llm, tiny, questions[:2], expected)
    llm.llm_engine.engine_core.shutdown()


def begin_again(llm, model, questions, expected):
    """Requests that are preempted run their answer again behind the images."""
    engine, last = llm.llm_engine, {}
    for number, (words, files) in enumerate(questions):
        engine.add_request(str(number), asked(model, files, words), PARAMS)
    for step in itertools.count():
        if step in (2, 5):
            assert engine.reset_prefix_cache(reset_running_requests=True)
        last |= {out.request_id.split("-")[0]: out for out in engine.step()}
        if not engine.has_unfinished_requests():
            break
    assert [found(last[str(number)]) for number in range(len(questions))] == expected[: len(questions)]


@pytest.fixture(scope="module")
def qwen(tmp_path_factory):
    kind, family, vision, options = MODELS["qwen2_5_vl"]
    return kind(family, tmp_path_factory.mktemp("qwen"), vision, all_logits=True, **options)


@pytest.fixture(scope="module")
def llm(qwen):
    return LLM(model=str(qwen.package.folder), seed=0, limit_mm_per_prompt={"image": 2}, max_num_batched_tokens=40)


def test_images_may_be_arrays(llm, qwen):
    image = np.asarray(Image.open(io.BytesIO(FILES[0])))
    prompt = asked(qwen, FILES[:1])
    whole = found(llm.generate([prompt], PARAMS, use_tqdm=False)[0])
    for array in (image, image.transpose(2, 0, 1)):
        given = {**prompt, "multi_modal_data": {"image": array}}
        assert found(llm.generate([given], PARAMS, use_tqdm=False)[0]) == whole


def test_logprobs_of_a_prompt_with_an_image_are_those_of_transformers(llm, qwen):
    params = SamplingParams(temperature=0, max_tokens=1, prompt_logprobs=0)
    out = llm.generate([asked(qwen, FILES[2:])], params, use_tqdm=False)[0]
    want, bound = qwen.logprobs(out.prompt_token_ids, FILES[2:])
    for place, (token, known) in enumerate(zip(out.prompt_token_ids[1:], out.prompt_logprobs[1:], strict=True)):
        assert abs(known[token].logprob - want[place, token]) <= bound


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"multi_modal_data": {"image": [Image.new("RGB", (9, 9))] * 3}}, "At most 2 image"),
        ({"multi_modal_data": {"image": np.zeros((8, 8, 3))}}, "an image of float64"),
        ({"mm_processor_kwargs": {"max_pixels": 100}}, "mm_processor_kwargs=.*leave them out"),
        ({"multi_modal_data": {"video": np.zeros((2, 8, 8, 3), np.uint8)}}, "video"),
        ({"prompt": "no mark"}, "Failed to apply prompt replacement|placeholder"),
    ],
)
def test_what_cannot_be_seen_is_refused_alone(llm, qwen, change, message):
    with pytest.raises(Exception, match=message) as refused:
        llm.generate([{**asked(qwen, FILES[:1]), **change}], PARAMS, use_tqdm=False)
    assert isinstance(refused.value, (VLLMValidationError, ValueError, AssertionError, RuntimeError))
    assert found(llm.generate([asked(qwen, FILES[:1])], PARAMS, use_tqdm=False)[0])[1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mm_processor_kwargs": {"max_pixels": 100}}, "mm_processor_kwargs=.*leave it out"),
        ({"enable_mm_embeds": True}, "enable_mm_embeds"),
    ],
)
def test_what_the_tower_was_not_compiled_for_is_refused_at_the_start(qwen, options, message):
    with pytest.raises(Exception, match=message):
        LLM(model=str(qwen.package.folder), **options)


def test_without_images_the_package_answers_text(qwen):
    blind = LLM(model=str(qwen.package.folder), seed=0, limit_mm_per_prompt={"image": 0})
    assert found(blind.generate([text_of(0)], PARAMS, use_tqdm=False)[0])[1]
    with pytest.raises(Exception, match="text-only models"):
        blind.generate([asked(qwen, FILES[:1])], PARAMS, use_tqdm=False)


def test_stages_each_have_the_images(tmp_path, monkeypatch):
    monkeypatch.setenv("TCIM_LITE_DEVICE_NUM", "2")
    monkeypatch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "1")
    kind, family, vision, options = MODELS["qwen3_vl"]
    model = kind(family, tmp_path, vision, pipeline=2, **options)
    questions = [("and", FILES), ("or", FILES[2:])]
    staged = LLM(model=str(model.package.folder), seed=0, pipeline_parallel_size=2)
    outputs = staged.generate([asked(model, files, words) for words, files in questions], PARAMS, use_tqdm=False)
    assert [found(out) for out in outputs] == by_serve(model, questions)


@pytest.mark.parametrize("family", ["qwen3_vl", "minicpmv"])
def test_over_http_an_image_is_a_part_of_a_message(family, tmp_path):
    kind, family, vision, options = MODELS[family]
    model = kind(family, tmp_path, vision, **options)
    url = "data:image/png;base64," + base64.b64encode(FILES[2]).decode()
    content = [{"type": "text", "text": "What is "}, {"type": "image_url", "image_url": {"url": url}}]
    body = {"messages": [{"role": "user", "content": content}], "max_tokens": 6, "temperature": 0, "ignore_eos": True}
    answers = []
    with served(str(model.package.folder)) as base:
        for _ in range(2):  # the second time, the image is known
            answers.append(post(f"{base}/v1/chat/completions", {**body, "return_token_ids": True}))
    tokens = answers[0]["prompt_token_ids"]
    want, bound = model.logprobs([*tokens, *answers[0]["choices"][0]["token_ids"]], FILES[2:])
    for place, token in enumerate(answers[0]["choices"][0]["token_ids"], len(tokens) - 1):
        assert want[place].max() - want[place, token] <= bound
    assert len({str(each["choices"][0]["token_ids"]) for each in answers}) == 1
