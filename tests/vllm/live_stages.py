"""Pipeline stages and several devices under vLLM itself; `make test-vllm` runs it."""

import os

os.environ.update(VLLM_ENABLE_V1_MULTIPROCESSING="1", TCIM_LITE_DEVICE_NUM="4")

import contextlib
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from live_fixtures import GREEDY, case_folder, check_joins_and_aborts, compile_demo, devices_below
from vllm import LLM, SamplingParams


@pytest.fixture(scope="session")
def package(tmp_path_factory) -> Path:
    """As a whole, in two stages, and for two devices."""
    return compile_demo(tmp_path_factory.mktemp("staged"), "--pipeline", "2", "--ndevice", "2")


@contextlib.contextmanager
def open_llm(package: Path, **options) -> Iterator[LLM]:
    llm = LLM(model=str(package), seed=0, max_num_batched_tokens=48, **options)
    try:
        yield llm
    finally:
        llm.llm_engine.engine_core.shutdown()


def answers(llm: LLM, prompts: list[list[int]]) -> list[list[int]]:
    asked = [{"prompt_token_ids": tokens} for tokens in prompts]
    return [list(out.outputs[0].token_ids) for out in llm.generate(asked, GREEDY, use_tqdm=False)]


@pytest.fixture(scope="module")
def staged(package) -> Iterator[LLM]:
    with open_llm(package, pipeline_parallel_size=2) as llm:
        yield llm


@pytest.mark.parametrize("concurrency", [1, 2, 3, 4, 8])
def test_stages_in_two_workers_give_the_tokens_of_one_device(staged, prompts, alone, concurrency):
    found = []
    for begin in range(0, len(prompts), concurrency):
        found += answers(staged, prompts[begin : begin + concurrency])
    assert found == alone


def test_requests_that_join_and_leave_do_not_change_the_others(staged, prompts, alone):
    check_joins_and_aborts(staged, prompts, alone, steps=2000)


@pytest.mark.parametrize("at", [(3,), (12, 13, 30)])
def test_requests_that_are_preempted_start_over_on_all_stages(staged, prompts, alone, at):
    engine, found, step = staged.llm_engine, {}, 0
    for number, prompt in enumerate(prompts):
        engine.add_request(f"p{number}", {"prompt_token_ids": prompt}, GREEDY)
    while engine.has_unfinished_requests():
        step += 1
        if step in at:
            engine.reset_prefix_cache(reset_running_requests=True)
        found |= {out.request_id: list(out.outputs[0].token_ids) for out in engine.step() if out.finished}
    assert step > max(at)
    assert [found[f"p{number}"] for number in range(len(prompts))] == alone


def test_sampled_tokens_are_those_of_one_device(staged, package, prompts):
    params = SamplingParams(temperature=1.0, seed=7, max_tokens=12, ignore_eos=True, logprobs=2)
    asked = [{"prompt_token_ids": tokens} for tokens in prompts[:6]]
    found = [out.outputs[0].token_ids for out in staged.generate(asked, params, use_tqdm=False)]
    with open_llm(package) as whole:
        assert [out.outputs[0].token_ids for out in whole.generate(asked, params, use_tqdm=False)] == found


def test_one_worker_drives_the_graphs_of_two_devices(package, prompts, alone):
    with open_llm(package, additional_config={"devices": [2, 1]}) as llm:
        assert answers(llm, prompts) == alone


@pytest.fixture(scope="module")
def case(package, tmp_path_factory) -> Path:
    """A case folder whose config.json says parallel_size=2."""
    return case_folder(tmp_path_factory.mktemp("case") / "folder", package, devices=2)


@pytest.mark.parametrize(
    ("options", "used"),
    [
        ({}, {0, 1}),
        ({"tensor_parallel_size": 2}, {0, 1}),
        ({"additional_config": {"devices": [3, 0]}}, {0, 3}),
    ],
    ids=["alone", "flag", "devices"],
)
def test_a_case_folder_runs_on_as_many_devices_as_it_says(case, prompts, alone, options, used):
    with open_llm(case, **options) as llm:
        assert answers(llm, prompts) == alone
        assert used in devices_below(psutil.Process())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tensor_parallel_size": 4}, r"tensor_parallel_size=4, but .*config\.json says parallel_size=2"),
        ({"additional_config": {"devices": [1]}}, r"names 1 devices, \[1\], but .* says parallel_size=2"),
    ],
)
def test_a_case_folder_and_flags_that_differ_are_refused_with_both_numbers(case, options, message):
    with pytest.raises(Exception, match=message):
        LLM(model=str(case), **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pipeline_parallel_size": 3}, "pipeline_parallel_size=3: .* has 2 stages"),
        ({"pipeline_parallel_size": 2, "additional_config": {"devices": [0]}}, "names 1, pipeline_parallel_size=2"),
    ],
)
def test_workers_that_cannot_share_a_package_are_refused(package, options, message):
    with pytest.raises(Exception, match=message):
        LLM(model=str(package), **options)
