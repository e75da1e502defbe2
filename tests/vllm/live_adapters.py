"""LoRA adapters under vLLM: each answer is the one that its adapter gives alone, whatever runs beside it."""

import json
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from live_fixtures import CHECKPOINT, GREEDY, Alone, compile_demo, post, served
from vllm import LLM, SamplingParams
from vllm.exceptions import VLLMValidationError
from vllm.lora.request import LoRARequest

from tcim_lite.llm import Package
from tcim_lite.llm.lora import fitted, read_inputs
from tcim_lite.models.compiler.adapter_inputs import adapter_inputs
from tcim_lite.vllm.shape import Shape

sys.path.insert(0, str(Path(__file__).parents[1] / "llm"))
from lora_adapters import linears_of, write_random_adapter

NAMES = ("poet", "lawyer", "queries")  # the last is smaller than the graphs' and in no package


@pytest.fixture(scope="session")
def folder(tmp_path_factory) -> Path:
    """Adapters of PEFT."""
    made = tmp_path_factory.mktemp("adapters")
    for seed, name in enumerate(NAMES[:2]):
        write_random_adapter(made / name, linears_of(CHECKPOINT), seed)
    write_random_adapter(made / "queries", linears_of(CHECKPOINT, ("q_proj",)), 7, rank=2)
    write_random_adapter(made / "thick", linears_of(CHECKPOINT), 8, rank=16)
    return made


@pytest.fixture(scope="session")
def package(folder, tmp_path_factory) -> Path:
    made = tmp_path_factory.mktemp("served")
    for name in NAMES[:2]:
        compile_demo(made, "--lora", str(folder / name), "--pipeline", "2")
    return made


@pytest.fixture(scope="session")
def answers(package, folder, prompts) -> dict[str | None, list[list[int]]]:
    """Of each adapter and the base model, alone."""
    opened, model, found = Package.open(package), Alone(package), {}
    for name in (None, *NAMES):
        if name is not None:
            values = adapter_inputs(CHECKPOINT / "config.json", folder / name)
            if name in opened.adapters:
                values = read_inputs(name, opened.adapters[name])
            model._slots.adapters.add_values(name, fitted(name, values, Shape.read(opened).lora))
        model._slots.assign(0, name)
        found[name] = []
        for prompt in prompts:
            model._slots.tokens[0] = []
            found[name].append(list(model.generate(prompt, max_new_tokens=16, stop_tokens=())))
    assert len({str(each) for each in found.values()}) == len(found)
    return found


@pytest.fixture(scope="session")
def llm(package):
    return LLM(model=str(package), seed=0, enable_lora=True, max_loras=2, max_num_batched_tokens=48)


def asked(prompts):
    return [{"prompt_token_ids": prompt} for prompt in prompts]


def requests(folder, names):
    return [None if name is None else LoRARequest(name, NAMES.index(name) + 1, str(folder / name)) for name in names]


def tokens_of(outputs):
    return [list(out.outputs[0].token_ids) for out in outputs]


def test_adapters_beside_each_other_answer_as_alone(llm, folder, prompts, answers):
    names = [(None, *NAMES)[number % 4] for number in range(len(prompts))]  # more adapters than run at a time
    outputs = llm.generate(asked(prompts), GREEDY, use_tqdm=False, lora_request=requests(folder, names))
    assert tokens_of(outputs) == [answers[name][number] for number, name in enumerate(names)]
    assert len(llm.llm_engine.list_loras()) == 2


def test_a_slot_does_not_keep_rows_of_another_adapter(llm, folder, prompts, answers):
    for name in (None, "poet", "queries", "poet", None):
        outputs = llm.generate(asked(prompts[:1]), GREEDY, use_tqdm=False, lora_request=requests(folder, [name]))
        assert tokens_of(outputs) == answers[name][:1]


def test_an_adapter_in_the_package_goes_by_its_name(llm, prompts, answers):
    request = LoRARequest("by name", 9, "lawyer")
    outputs = llm.generate(asked(prompts[:2]), GREEDY, use_tqdm=False, lora_request=request)
    assert tokens_of(outputs) == answers["lawyer"][:2]


def test_sampling_and_logprobs_are_those_of_the_adapter(llm, folder, prompts, answers):
    params = SamplingParams(temperature=0, max_tokens=16, ignore_eos=True, logprobs=1)
    outputs = llm.generate(asked(prompts[:2]), params, use_tqdm=False, lora_request=requests(folder, ["poet", None]))
    assert tokens_of(outputs) == [answers["poet"][0], answers[None][1]]


@pytest.mark.parametrize(
    ("path", "message"),
    [("nowhere", "nowhere is no folder, and no adapter of .*lawyer, poet"), ("thick", "rank 48, the graphs take 9")],
)
def test_a_request_for_an_adapter_that_cannot_be_had_is_refused_alone(llm, folder, prompts, alone, path, message):
    path = str(folder / path) if (folder / path).exists() else path
    with pytest.raises(VLLMValidationError, match=message):
        llm.generate(asked(prompts[:1]), GREEDY, use_tqdm=False, lora_request=LoRARequest("bad", 17, path))
    assert tokens_of(llm.generate(asked(prompts[:1]), GREEDY, use_tqdm=False)) == alone[:1]


def test_loading_pinning_and_removing(llm, folder, prompts, answers):
    engine = llm.llm_engine
    for number, request in enumerate(requests(folder, NAMES), 1):
        assert engine.add_lora(request)
        if number == 1:
            assert engine.pin_lora(1)
    assert engine.list_loras() == {1, 3}  # as many as `max_cpu_loras`
    replaced = LoRARequest("queries", 3, str(folder / "lawyer"), load_inplace=True)
    assert engine.add_lora(replaced)
    outputs = llm.generate(asked(prompts[:1]), GREEDY, use_tqdm=False, lora_request=replaced)
    assert tokens_of(outputs) == answers["lawyer"][:1]
    assert engine.remove_lora(1)
    assert not engine.remove_lora(1)
    assert engine.list_loras() == {3}
    with pytest.raises(ValueError, match="rank 48"):
        engine.add_lora(LoRARequest("thick", 20, str(folder / "thick")))


def test_prompts_find_the_rows_of_their_own_adapter_alone(package, folder, prompts, answers):
    transfer = {
        "kv_connector": "SlotConnector",
        "kv_role": "kv_both",
        "kv_connector_module_path": "tcim_lite.vllm.connector",
        "kv_connector_extra_config": {"prefix_cache_mb": 64},
    }
    other = LLM(model=str(package), seed=0, enable_lora=True, max_loras=2, kv_transfer_config=transfer)
    names, found = [None, "poet", "queries", "poet", None, "queries", "queries"], []
    for name in names:
        out = other.generate(asked(prompts[-1:]), GREEDY, use_tqdm=False, lora_request=requests(folder, [name]))[0]
        assert list(out.outputs[0].token_ids) == answers[name][-1]
        found.append(out.num_cached_tokens > 0)
    assert found == [False, False, False, True, True, True, True]


def test_stages_each_have_their_layers_of_an_adapter(package, folder, prompts, answers, monkeypatch):
    monkeypatch.setenv("TCIM_LITE_DEVICE_NUM", "2")
    monkeypatch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "1")
    staged = LLM(model=str(package), seed=0, enable_lora=True, max_loras=2, pipeline_parallel_size=2)
    names = [None, "poet", "queries", "lawyer"]
    outputs = staged.generate(asked(prompts[:4]), GREEDY, use_tqdm=False, lora_request=requests(folder, names))
    assert tokens_of(outputs) == [answers[name][number] for number, name in enumerate(names)]


def load(base, name, path):
    body = json.dumps({"lora_name": name, "lora_path": str(path)}).encode()
    asked = urllib.request.Request(f"{base}/v1/load_lora_adapter", body, {"Content-Type": "application/json"})
    urllib.request.urlopen(asked, timeout=60)  # its answer is text


def test_over_http_an_adapter_is_a_model(package, folder, prompts, answers):
    modules = ["--enable-lora", "--max-loras", "2", "--lora-modules", f"poet={folder / 'poet'}", "law=lawyer"]
    with served(str(package), *modules, VLLM_ALLOW_RUNTIME_LORA_UPDATING="1") as base:
        load(base, "queries", folder / "queries")
        with pytest.raises(urllib.error.HTTPError) as refused:
            load(base, "thick", folder / "thick")
        assert "rank 48, the graphs take 9" in json.load(refused.value)["error"]["message"]
        for model, name in [("poet", "poet"), ("law", "lawyer"), ("queries", "queries"), (str(package), None)]:
            body = {"model": model, "prompt": prompts[0], "max_tokens": 16, "temperature": 0, "ignore_eos": True}
            choice = post(f"{base}/v1/completions", body | {"return_token_ids": True})["choices"][0]
            assert choice["token_ids"] == answers[name][0], model
