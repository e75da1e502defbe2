"""The plugin in vLLM itself; `make test-vllm` runs it in an environment of its own, `make test` does not collect it."""

import inspect
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import vllm
from live_fixtures import GREEDY, check_joins_and_aborts, post, served
from vllm import LLM, SamplingParams
from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorBase_V1
from vllm.exceptions import VLLMValidationError
from vllm.platforms.interface import Platform
from vllm.sampling_params import StructuredOutputsParams
from vllm.v1.core.kv_cache_utils import FreeKVCacheBlockQueue
from vllm.v1.worker.worker_base import WorkerBase

from tcim_lite.vllm import VERSION
from tcim_lite.vllm.connector import SlotConnector
from tcim_lite.vllm.platform import TcimPlatform
from tcim_lite.vllm.worker import TcimWorker


@pytest.mark.parametrize("concurrency", [1, 2, 3, 4, 8])
def test_greedy_tokens_are_those_of_one_request_alone(llm, prompts, alone, concurrency):
    found = []
    for begin in range(0, len(prompts), concurrency):
        asked = [{"prompt_token_ids": tokens} for tokens in prompts[begin : begin + concurrency]]
        found += [list(out.outputs[0].token_ids) for out in llm.generate(asked, GREEDY, use_tqdm=False)]
    assert found == alone


def test_requests_that_join_and_leave_do_not_change_the_others(llm, prompts, alone):
    check_joins_and_aborts(llm, prompts, alone, steps=400)


def test_a_seed_gives_the_same_answer_beside_others_and_in_chunks(llm, prompts):
    params = SamplingParams(temperature=1.0, seed=7, max_tokens=12, ignore_eos=True)
    long = {"prompt_token_ids": prompts[-1]}
    first = llm.generate([long], params, use_tqdm=False)[0].outputs[0].token_ids
    beside = llm.generate([long, *({"prompt_token_ids": p} for p in prompts[:6])], params, use_tqdm=False)
    assert beside[0].outputs[0].token_ids == first


def test_vllms_sampler_chooses_the_greedy_tokens_and_gives_logprobs(llm, prompts, alone):
    params = SamplingParams(temperature=0, max_tokens=16, ignore_eos=True, logprobs=3)
    for prompt, expected in zip(prompts[:4], alone, strict=False):
        out = llm.generate([{"prompt_token_ids": prompt}], params, use_tqdm=False)[0].outputs[0]
        assert list(out.token_ids) == expected
        assert [places[token].rank for token, places in zip(out.token_ids, out.logprobs, strict=True)] == [1] * 16


def test_logit_bias_takes_part_in_a_greedy_answer(llm, prompts):
    params = SamplingParams(temperature=0, max_tokens=3, ignore_eos=True, logit_bias={5: 100.0})
    out = llm.generate([{"prompt_token_ids": prompts[0]}], params, use_tqdm=False)[0]
    assert list(out.outputs[0].token_ids) == [5, 5, 5]


def test_an_answer_has_the_form_of_its_grammar(llm, prompts):
    params = SamplingParams(temperature=0, max_tokens=8, structured_outputs=StructuredOutputsParams(regex="[0-9]{3}"))
    text = llm.generate([{"prompt_token_ids": prompts[1]}], params, use_tqdm=False)[0].outputs[0].text
    assert len(text) == 3
    assert text.isdigit()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_model_len": 4096}, "max_model_len=4096: the package has a context of 2048"),
        ({"block_size": 16, "enable_prefix_caching": True}, "block_size=16: a block is a slot"),
        ({"tensor_parallel_size": 2}, "--additional-config"),
        ({"pipeline_parallel_size": 2}, "compile it with --pipeline 2"),
        ({"enable_lora": True}, "enable_lora: .*compile the package with --lora ADAPTER"),
        ({"quantization": "fp8"}, "quantization=fp8: .*compile with --quant"),
        ({"kv_offloading_size": 1}, "kv_offloading_size=1.*: .*SlotConnector"),
        ({"cpu_offload_gb": 1}, "cpu_offload_gb=1.*--pipeline"),
        ({"kv_cache_dtype": "fp8"}, "kv_cache_dtype=fp8: the caches are compiled"),
        (
            {"speculative_config": {"method": "ngram", "num_speculative_tokens": 2}},
            "speculative_config: .*leave it out",
        ),
        ({"load_format": "dummy"}, "load_format=dummy: .*--random-weights"),
        ({"device_ids": [0]}, r"device_ids=\[0\]: .*--additional-config"),
        ({"additional_config": {"device": [0]}}, "has device: the plugin knows devices alone"),
    ],
)
def test_what_a_package_cannot_do_is_refused_with_what_to_do(package, options, message):
    with pytest.raises(Exception, match=message):
        LLM(model=str(package), hf_overrides={"max_position_embeddings": 8192}, **options)


@pytest.mark.parametrize("method", ["fp8", "gptq", "awq", "compressed-tensors", "bitsandbytes", "modelopt"])
def test_how_a_checkpoint_was_quantised_does_not_matter_to_its_package(package, prompts, alone, method, tmp_path):
    copy = shutil.copytree(package, tmp_path / "package")
    config = json.loads((copy / "config.json").read_text())
    config["quantization_config"] = {"quant_method": method, "bits": 4, "group_size": 128, "zero_point": True}
    (copy / "config.json").write_text(json.dumps(config))
    out = LLM(model=str(copy), seed=0).generate([{"prompt_token_ids": prompts[0]}], GREEDY, use_tqdm=False)[0]
    assert list(out.outputs[0].token_ids) == alone[0]


def test_prompt_logprobs_are_refused(llm, prompts):
    with pytest.raises(VLLMValidationError, match="--all-logits"):
        llm.generate([{"prompt_token_ids": prompts[0]}], SamplingParams(prompt_logprobs=1), use_tqdm=False)


def test_rows_that_a_request_did_not_compute_are_refused(llm):
    worker = llm.llm_engine.model_executor.driver_worker.worker
    state = type("State", (), {"req_id": "thief", "block_ids": ([1],), "lora_request": None})()
    with pytest.raises(RuntimeError, match="prefix caching"):
        worker.runner._slot(state, 16)


def test_where_triton_works_a_preempted_request_still_ends_as_if_alone(package, prompts, alone, monkeypatch):
    monkeypatch.delenv("VLLM_USE_V2_MODEL_RUNNER", raising=False)
    monkeypatch.setattr("vllm.config.vllm.HAS_TRITON", True)
    engine = LLM(model=str(package), seed=0).llm_engine
    engine.add_request("0", {"prompt_token_ids": prompts[0]}, GREEDY)
    found = []
    for step in range(60):
        if step == 5:
            assert engine.reset_prefix_cache(reset_running_requests=True)
        found = [out for out in engine.step() if out.finished] or found
    assert [list(out.outputs[0].token_ids) for out in found] == [alone[0]]


def test_another_runner_is_refused(package, monkeypatch):
    monkeypatch.setattr("vllm.config.vllm.HAS_TRITON", True)
    monkeypatch.setenv("VLLM_USE_V2_MODEL_RUNNER", "1")
    with pytest.raises(Exception, match="leave it out"):
        LLM(model=str(package))


def test_logprobs_of_named_tokens_of_a_prompt_are_refused():
    with pytest.raises(VLLMValidationError, match="ask for prompt_logprobs"):
        TcimPlatform.validate_request(None, SamplingParams(prompt_logprob_token_ids=[[5, 6]]))


def test_it_may_be_started_in_the_folder_of_the_sources(package, tmp_path):
    env = {**os.environ, "VLLM_CACHE_ROOT": str(tmp_path)}  # vLLM looks at each model's class once, then remembers
    command = [sys.executable, "-P", "-c", "import sys; from vllm import LLM; LLM(model=sys.argv[1])", str(package)]
    subprocess.run(command, cwd=Path(__file__).parents[2], env=env, check=True)


def test_the_methods_that_are_overridden_exist_in_the_pinned_vllm():
    assert vllm.__version__.startswith(VERSION)
    added = {"initialize_from_config", "determine_available_memory", "get_supported_tasks", "execute_dummy_batch"}
    added |= {"get_kv_connector_handshake_metadata", "register_slots", "reset_encoder_cache", "sleep", "profile"}
    halves = ((TcimPlatform, Platform), (TcimWorker, WorkerBase), (SlotConnector, KVConnectorBase_V1))
    assert {"remove", "prepend_n", "get_all_free_blocks"} <= set(dir(FreeKVCacheBlockQueue))
    for ours, base in halves:
        for name, member in vars(ours).items():
            if not name.startswith("_") and callable(getattr(ours, name)) and name not in added:
                assert hasattr(base, name), name
                theirs = inspect.signature(getattr(base, name)).parameters
                assert list(inspect.signature(getattr(ours, name)).parameters) == list(theirs), (name, member)


def test_the_server_answers_as_one_request_alone(package, prompts, alone):
    body = {"model": str(package), "prompt": prompts[:5], "max_tokens": 16, "temperature": 0, "ignore_eos": True}
    with served(str(package)) as base:
        choices = post(f"{base}/v1/completions", body | {"return_token_ids": True})["choices"]
    assert [choice["token_ids"] for choice in choices] == alone[:5]
