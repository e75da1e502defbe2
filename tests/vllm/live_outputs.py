"""What comes beside the tokens: logprobs of prompts and answers, grammars, and answers that start over."""

import json

import numpy as np
import pytest
import torch
from live_fixtures import GREEDY, compile_demo, post, served
from vllm import LLM, SamplingParams
from vllm.sampling_params import StructuredOutputsParams
from vllm.v1.sample.sampler import Sampler

from tcim_lite.llm.engine.slots import Slots
from tcim_lite.vllm.runner import _greedy


@pytest.fixture(scope="session")
def package(tmp_path_factory):
    return compile_demo(tmp_path_factory.mktemp("all_logits"), "--all-logits")


@pytest.fixture(scope="session")
def rows(package, prompts) -> list[np.ndarray]:
    """Logarithms of the probabilities [n, V] after each token of each prompt."""
    slots, found = Slots.open(package), []
    for prompt in prompts:
        slots.tokens[0] = []
        chunks = [prompt[begin : begin + slots.chunk_length] for begin in range(0, len(prompt), slots.chunk_length)]
        logits = np.concatenate([slots.prefill_all(0, chunk) for chunk in chunks]).astype(np.float64)
        found.append(logits - np.log(np.exp(logits).sum(-1, keepdims=True)))
    return found


def test_logprobs_of_a_prompt_are_those_of_its_prefill(llm, prompts, rows):
    params = SamplingParams(temperature=0, max_tokens=3, ignore_eos=True, prompt_logprobs=4)
    asked = [{"prompt_token_ids": prompt} for prompt in prompts]  # the longest is cut by the budget of a step
    for out, prompt, expected in zip(llm.generate(asked, params, use_tqdm=False), prompts, rows, strict=True):
        assert out.prompt_logprobs[0] is None
        assert len(out.prompt_logprobs) == len(prompt)
        for place, (token, found) in enumerate(zip(prompt[1:], out.prompt_logprobs[1:], strict=True)):
            row = expected[place]
            assert found[token].logprob == pytest.approx(row[token], abs=1e-3)
            assert found[token].rank == int((row >= row[token]).sum())
            best = sorted(found.values(), key=lambda one: one.rank)[:4]
            assert [one.logprob for one in best] == pytest.approx(sorted(row)[:-5:-1], abs=1e-3)


def test_asking_for_logprobs_of_the_prompt_changes_no_token(llm, prompts, alone):
    params = [GREEDY, SamplingParams(temperature=0, max_tokens=16, ignore_eos=True, prompt_logprobs=0)] * 6
    asked = [{"prompt_token_ids": prompt} for prompt in prompts]
    outputs = llm.generate(asked, params[: len(asked)], use_tqdm=False)
    assert [list(out.outputs[0].token_ids) for out in outputs] == alone
    assert [out.prompt_logprobs is None for out in outputs] == [number % 2 == 0 for number in range(len(asked))]


def test_a_prompt_of_one_token_has_no_logprobs(llm, prompts):
    params = SamplingParams(temperature=0, max_tokens=2, prompt_logprobs=2)
    out = llm.generate([{"prompt_token_ids": prompts[0][:1]}], params, use_tqdm=False)[0]
    assert out.prompt_logprobs == [None]


def test_logprobs_of_an_answer_are_those_of_the_decode_graph(llm, package, prompts):
    params = SamplingParams(temperature=0, max_tokens=6, ignore_eos=True, logprobs=2)
    out = llm.generate([{"prompt_token_ids": prompts[1]}], params, use_tqdm=False)[0].outputs[0]
    slots = Slots.open(package)
    logits = slots.prefill(2, prompts[1])
    for token, found in zip(out.token_ids, out.logprobs, strict=True):
        row = logits.astype(np.float64)
        assert found[token].logprob == pytest.approx(row[token] - np.log(np.exp(row).sum()), abs=1e-3)
        logits = slots.decode({2: token})[2]


def test_echo_with_logprobs_over_http(package, prompts):
    body = {"model": str(package), "prompt": prompts[0], "max_tokens": 2, "temperature": 0, "echo": True}
    body |= {"logprobs": 1, "ignore_eos": True}
    with served(str(package)) as base:
        logprobs = post(f"{base}/v1/completions", body)["choices"][0]["logprobs"]
    assert len(logprobs["token_logprobs"]) == len(prompts[0]) + 2
    assert logprobs["token_logprobs"][0] is None
    assert all(value <= 0 for value in logprobs["token_logprobs"][1:])


@pytest.mark.parametrize("sign", [1, -1, 0])
def test_of_equal_logits_the_id_is_the_one_that_vllms_sampler_takes(sign):
    rng = np.random.default_rng(3)
    for _ in range(200):
        logits = (sign * rng.integers(0, 3, 97) + (sign == 0) * rng.integers(-1, 2, 97)).astype(np.float16)
        if sign == 0:
            logits[logits == 0] *= rng.choice([-1.0, 1.0])  # both zeros are equal
        expected = int(Sampler.greedy_sample(torch.from_numpy(logits).to(torch.float32)[None])[0])
        assert _greedy(logits) == expected == int(np.flatnonzero(logits == logits.max())[0])


@pytest.mark.parametrize("bad", [np.nan, -np.nan, np.inf])
def test_a_logit_that_is_no_number_is_taken_as_vllms_sampler_takes_it(bad):
    logits = np.linspace(-3, 3, 50).astype(np.float16)
    logits[[20, 30]] = bad
    assert _greedy(logits) == int(Sampler.greedy_sample(torch.from_numpy(logits).to(torch.float32)[None])[0]) == 20


SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 8}, "age": {"enum": [1, 2, 3]}},
    "required": ["name", "age"],
    "additionalProperties": False,
}


@pytest.mark.parametrize("temperature", [0, 0.8])
@pytest.mark.parametrize(
    ("grammar", "holds"),
    [
        ({"choice": ["yes", "no"]}, lambda text: text in ("yes", "no")),
        ({"regex": "[a-c]{5}"}, lambda text: len(text) == 5 and set(text) <= set("abc")),
        ({"json": SCHEMA}, lambda text: set(json.loads(text)) == {"name", "age"}),
    ],
    ids=["choice", "regex", "json"],
)
def test_an_answer_has_its_form_beside_answers_that_have_none(llm, prompts, alone, grammar, holds, temperature):
    formed = SamplingParams(
        temperature=temperature, seed=5, max_tokens=120, structured_outputs=StructuredOutputsParams(**grammar)
    )
    asked = [{"prompt_token_ids": prompt} for prompt in prompts[:4]]
    outputs = llm.generate(asked, [GREEDY, formed, GREEDY, formed], use_tqdm=False)
    assert all(holds(out.outputs[0].text) for out in outputs[1::2]), [out.outputs[0].text for out in outputs]
    assert [list(out.outputs[0].token_ids) for out in outputs[::2]] == alone[0:4:2]


@pytest.mark.parametrize("at", [1, 3, 7])
def test_requests_that_are_preempted_start_over_and_end_as_if_alone(llm, prompts, alone, at):
    engine, found = llm.llm_engine, {}
    params = [GREEDY, SamplingParams(temperature=0, max_tokens=16, ignore_eos=True, prompt_logprobs=1)]
    for number in (0, 1, 10, 3):
        engine.add_request(f"p{number}", {"prompt_token_ids": prompts[number]}, params[number % 2])
    for step in range(200):
        if step == at:
            assert engine.reset_prefix_cache(reset_running_requests=True)
        for out in engine.step():
            if out.finished:
                found[int(out.request_id[1:])] = out
        if not engine.has_unfinished_requests():
            break
    assert {number: list(out.outputs[0].token_ids) for number, out in found.items()} == {
        number: alone[number] for number in (0, 1, 10, 3)
    }
    assert [len(found[number].prompt_logprobs) for number in (1, 3)] == [len(prompts[number]) for number in (1, 3)]


def test_a_sampled_request_that_was_preempted_goes_on_with_its_seed(llm, prompts):
    params = SamplingParams(temperature=1.0, seed=11, max_tokens=16, ignore_eos=True)
    expected = llm.generate([{"prompt_token_ids": prompts[2]}], params, use_tqdm=False)[0].outputs[0].token_ids
    engine, last = llm.llm_engine, None
    engine.add_request("seeded", {"prompt_token_ids": prompts[2]}, params)
    for step in range(100):
        if step == 6:
            assert engine.reset_prefix_cache(reset_running_requests=True)
        last = next((out for out in engine.step()), last)
        if not engine.has_unfinished_requests():
            break
    assert last.outputs[0].token_ids == expected


def test_two_engines_in_one_process_do_not_mix(llm, package, prompts, alone):
    other = LLM(model=str(package), seed=0)
    outputs = [one.generate([{"prompt_token_ids": prompts[0]}], GREEDY, use_tqdm=False)[0] for one in (other, llm)]
    assert [list(out.outputs[0].token_ids) for out in outputs] == [alone[0]] * 2
