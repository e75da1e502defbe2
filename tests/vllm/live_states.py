"""Packages with linear attention under vLLM: states of each slot, whatever vLLM's steps make of the prompts."""

import os

os.environ.update(VLLM_ENABLE_V1_MULTIPROCESSING="1", TCIM_LITE_DEVICE_NUM="4")

import contextlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from live_fixtures import GREEDY, Alone, check_joins_and_aborts
from vllm import LLM, SamplingParams
from vllm.config import KVTransferConfig

from tcim_lite.models.compiler import CompileOptions, compile_checkpoint

sys.path.insert(0, str(Path(__file__).parents[1] / "models"))
from family_checkpoints import family_config

LAYERS = ["linear_attention", "full_attention", "linear_attention", "linear_attention", "full_attention"]
PROMPTS = [[(7 * number + length) % 300 for number in range(length)] for length in (40, 3, 37, 1, 20, 16, 35, 2)]


def compiled(folder: Path, **options) -> Path:
    """Two stages, of which the second begins with states; three slots."""
    config = family_config("qwen3_5", layer_types=LAYERS, num_hidden_layers=len(LAYERS))
    (folder / "config.json").write_text(json.dumps(config))
    sizes = {"prefill_length": 16, "context_length": 64, "batch": 3, "pipeline": 2}
    compile_checkpoint(
        CompileOptions(checkpoint=folder, output=folder / "out", random_weights=True, seed=7, **sizes, **options)
    )
    return folder / "out"


@pytest.fixture(scope="session")
def hybrid(tmp_path_factory) -> Path:
    return compiled(tmp_path_factory.mktemp("hybrid"))


@pytest.fixture(scope="session")
def single(hybrid) -> list[list[int]]:
    model = Alone(hybrid)
    return [list(model.generate(prompt, max_new_tokens=16, stop_tokens=())) for prompt in PROMPTS]


@contextlib.contextmanager
def open_llm(package: Path, **options) -> Iterator[LLM]:
    """A step has room for a chunk and a half."""
    llm = LLM(model=str(package), seed=0, skip_tokenizer_init=True, max_num_batched_tokens=24, **options)
    try:
        yield llm
    finally:
        llm.llm_engine.engine_core.shutdown()


@pytest.fixture(scope="module", params=[1, 2], ids=["whole", "staged"])
def llm(hybrid, request) -> Iterator[LLM]:
    with open_llm(hybrid, pipeline_parallel_size=request.param) as made:
        yield made


def answers(llm: LLM, prompts: list[list[int]]) -> list[list[int]]:
    asked = [{"prompt_token_ids": tokens} for tokens in prompts]
    return [list(out.outputs[0].token_ids) for out in llm.generate(asked, GREEDY, use_tqdm=False)]


def test_tokens_are_those_of_one_request_alone(llm, single):
    assert answers(llm, PROMPTS) == single


def test_requests_that_join_and_leave_do_not_change_the_others(llm, single):
    check_joins_and_aborts(llm, PROMPTS, single, steps=2000)


def test_requests_that_are_preempted_run_their_tokens_as_before(llm, single):
    engine, found, step = llm.llm_engine, {}, 0
    for number, prompt in enumerate(PROMPTS):
        engine.add_request(f"p{number}", {"prompt_token_ids": prompt}, GREEDY)
    while engine.has_unfinished_requests():
        step += 1
        if step in (2, 9, 20):
            engine.reset_prefix_cache(reset_running_requests=True)
        found |= {out.request_id: list(out.outputs[0].token_ids) for out in engine.step() if out.finished}
    assert step > 20
    assert [found[f"p{number}"] for number in range(len(PROMPTS))] == single


def test_a_package_with_multi_token_prediction_answers_without_it(tmp_path, single):
    package = compiled(tmp_path, mtp=True)
    with open_llm(package) as llm:
        assert answers(llm, PROMPTS) == single
        scored = llm.generate(
            [{"prompt_token_ids": PROMPTS[0]}], SamplingParams(max_tokens=1, prompt_logprobs=0), use_tqdm=False
        )
        assert len(scored[0].prompt_logprobs) == len(PROMPTS[0])  # its prefill returns the logits of all tokens
    with pytest.raises(Exception, match="compile without --mtp"):
        LLM(model=str(package), skip_tokenizer_init=True, pipeline_parallel_size=2)


def test_prefixes_of_states_are_refused(hybrid):
    transfer = KVTransferConfig(
        kv_connector="SlotConnector", kv_connector_module_path="tcim_lite.vllm.connector", kv_role="kv_both"
    )
    with pytest.raises(Exception, match="states of linear attention, which only go forward"):
        LLM(model=str(hybrid), skip_tokenizer_init=True, kv_transfer_config=transfer)


def test_images_are_refused(hybrid):
    with open_llm(hybrid) as llm, pytest.raises(ValueError, match="text-only"):
        llm.generate([{"prompt_token_ids": [3, 4], "multi_modal_data": {"image": [object()]}}], GREEDY)
