"""Rows that are there already: with `SlotConnector` tokens are those without it, and shared blocks are refused."""

import random

import pytest
from live_fixtures import GREEDY, post, served
from vllm import LLM, SamplingParams
from vllm.config import KVTransferConfig

from tcim_lite.vllm.platform import TcimPlatform


def transfer(**options) -> KVTransferConfig:
    return KVTransferConfig(
        kv_connector="SlotConnector",
        kv_connector_module_path="tcim_lite.vllm.connector",
        kv_role="kv_both",
        kv_connector_extra_config=options,
    )


@pytest.fixture(scope="module", params=[{}, {"prefix_cache_mb": 1}, {"prefix_cache_mb": 64}], ids=str)
def reusing(package, request):
    llm = LLM(model=str(package), seed=0, max_num_batched_tokens=48, kv_transfer_config=transfer(**request.param))
    yield llm
    llm.llm_engine.engine_core.shutdown()


def ask(llm, prompts, params=GREEDY):
    outputs = llm.generate([{"prompt_token_ids": prompt} for prompt in prompts], params, use_tqdm=False)
    return [list(out.outputs[0].token_ids) for out in outputs], [out.num_cached_tokens for out in outputs]


def test_a_second_question_takes_the_rows_of_the_first(reusing, prompts, alone):
    long, expected = prompts[-1], alone[-1]
    assert reusing.reset_prefix_cache(reset_connector=True)
    assert ask(reusing, [long]) == ([expected], [0])
    assert ask(reusing, [long]) == ([expected], [len(long) - 1])
    follow_up = long + expected + prompts[0]
    tokens, cached = ask(reusing, [follow_up])
    assert cached == [len(long) + len(expected) - 1]  # the last token of an answer is not run
    assert reusing.reset_prefix_cache(reset_connector=True)
    assert ask(reusing, [follow_up]) == (tokens, [0])


def test_tokens_are_those_of_one_request_alone_under_joins_and_aborts(reusing, prompts, alone):
    rng, engine = random.Random(7), reusing.llm_engine
    begin = prompts[-1]
    # Prompts that share beginnings of all lengths with the long one and with each other.
    asked = [begin[: rng.randrange(1, len(begin))] + rng.choice(prompts[:6]) for _ in range(24)]
    params = SamplingParams(temperature=0, max_tokens=10, ignore_eos=True)
    never = SamplingParams(temperature=0, max_tokens=10, ignore_eos=True, skip_reading_prefix_cache=True)
    truth, cached = ask(reusing, asked, never)
    assert not any(cached)
    found, aborted, waiting = {}, set(), list(range(len(asked)))
    for _ in range(600):
        if waiting and rng.random() < 0.5:
            number = waiting.pop(0)
            engine.add_request(f"r{number}", {"prompt_token_ids": asked[number]}, params)
        if rng.random() < 0.08 and (ids := [n for n in range(len(asked)) if n not in waiting and n not in found]):
            aborted.add(gone := rng.choice(ids))
            engine.abort_request([f"r{gone}"], internal=False)
        if rng.random() < 0.03:
            engine.reset_prefix_cache(reset_running_requests=True)
        for out in engine.step():
            if out.finished:
                found[int(out.request_id[1:])] = (list(out.outputs[0].token_ids), out.num_cached_tokens)
        if not waiting and not engine.has_unfinished_requests():
            break
    kept = set(range(len(asked))) - aborted
    assert kept <= set(found)
    assert {number: found[number][0] for number in kept} == {number: truth[number] for number in kept}
    assert sum(found[number][1] for number in kept) > 0
    assert ask(reusing, prompts)[0] == alone


def test_rows_go_to_the_host_when_their_slot_is_taken(reusing, prompts, alone):
    assert reusing.reset_prefix_cache(reset_connector=True)
    on_host = reusing.llm_engine.vllm_config.kv_transfer_config.kv_connector_extra_config.get("prefix_cache_mb", 0)
    ask(reusing, [prompts[-1]])
    ask(reusing, [prompt * 10 for prompt in prompts[:8]])  # takes all slots
    tokens, cached = ask(reusing, [prompts[-1]])
    assert tokens == [alone[-1]]
    assert (cached[0] > 100) == (on_host == 64)  # MiB; one holds fewer rows than the prompts since


def test_a_salt_keeps_rows_apart(reusing, prompts):
    assert reusing.reset_prefix_cache(reset_connector=True)

    def cached(salt):
        prompt = {"prompt_token_ids": prompts[-1]} | ({"cache_salt": salt} if salt else {})
        return reusing.generate([prompt], GREEDY, use_tqdm=False)[0].num_cached_tokens

    assert [cached("a"), cached("b"), cached(None)] == [0, 0, 0]
    assert min(cached("a"), cached("b"), cached(None)) > 0


def test_a_prompt_whose_logprobs_are_asked_for_is_prefilled_whole(reusing, prompts):
    skipping = SamplingParams(temperature=0, max_tokens=2, skip_reading_prefix_cache=True)
    ask(reusing, [prompts[-1]])
    assert ask(reusing, [prompts[-1]], skipping)[1] == [0]


def test_a_promise_of_rows_that_are_not_there_is_an_error(reusing, prompts):
    scheduler = reusing.llm_engine.engine_core.engine_core.scheduler
    ask(reusing, [prompts[-1]])
    before = scheduler.connector.build_connector_meta

    def lie(output):
        step = before(output)
        for one in step.admissions:
            one.prompt[:] = [token + 1 for token in one.prompt]
        return step

    scheduler.connector.build_connector_meta = lie
    with pytest.raises(RuntimeError, match="rows of its prompt were to be in slot"):
        ask(reusing, [prompts[-1]])


def test_another_connector_is_refused(package):
    other = KVTransferConfig(kv_connector="ExampleConnector", kv_role="kv_both")
    with pytest.raises(Exception, match=r"only SlotConnector of tcim_lite\.vllm\.connector"):
        LLM(model=str(package), kv_transfer_config=other)


def test_shared_blocks_would_answer_with_other_requests_rows_and_are_refused(package, prompts, monkeypatch):
    """The configuration is forced past the checks: what is left is the check of every step."""
    check = TcimPlatform.check_and_update_config.__func__

    def share(cls, vllm_config):
        check(cls, vllm_config)
        vllm_config.cache_config.block_size = 16
        vllm_config.cache_config.enable_prefix_caching = True

    monkeypatch.setattr(TcimPlatform, "check_and_update_config", classmethod(share))
    llm = LLM(model=str(package), max_model_len=64)
    prompt = (prompts[0] * 9)[:20]
    llm.generate([{"prompt_token_ids": prompt}], SamplingParams(max_tokens=1), use_tqdm=False)
    with pytest.raises(Exception, match=r"counts on 16 computed tokens, slot \d has 0 of this request"):
        llm.generate([{"prompt_token_ids": prompt}], SamplingParams(max_tokens=1), use_tqdm=False)


def test_the_server_counts_what_was_reused(package, prompts, alone):
    option = (
        '{"kv_connector": "SlotConnector", "kv_connector_module_path": "tcim_lite.vllm.connector", '
        '"kv_role": "kv_both"}'
    )
    body = {"model": str(package), "prompt": prompts[-1], "max_tokens": 16, "temperature": 0, "ignore_eos": True}
    arguments = ["--kv-transfer-config", option, "--enable-prompt-tokens-details"]
    with served(str(package), *arguments) as base:
        answers = [post(f"{base}/v1/completions", body | {"return_token_ids": True}) for _ in range(2)]
    assert [answer["choices"][0]["token_ids"] for answer in answers] == [alone[-1]] * 2
    cached = [(answer["usage"].get("prompt_tokens_details") or {}).get("cached_tokens") or 0 for answer in answers]
    assert cached == [0, len(prompts[-1]) - 1]
