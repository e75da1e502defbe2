"""Packages of hybrid families: layers with linear attention, whose states go from run to run, against transformers."""

from __future__ import annotations

import io
import json
import shutil

import numpy as np
import pytest
from llm_packages import DEMO_CHECKPOINT, LoadedPackage, compile_package

pytestmark = pytest.mark.oracle
pytest.importorskip("safetensors.torch", reason="writes checkpoints")
pytest.importorskip("torch", reason="the oracle")
pytest.importorskip("transformers", reason="the oracle")
from engine_tools import check_engine_answers_as_the_generator
from hybrid_models import FAMILY, MODELS, bound_of, random_model, random_next, states_of, tokens_of
from oracle import assert_close, oracle_logits

from tcim_lite.cli import main
from tcim_lite.llm import Sampler

CHANGES = {
    "as it is": {},
    "linear attention last": {"num_hidden_layers": 3, "full_attention_interval": 2},
    "a head of q and k for each of v, tied": {
        "linear_num_key_heads": 4,
        "linear_key_head_dim": 20,
        "linear_value_head_dim": 16,
        "linear_conv_kernel_dim": 3,
        "tie_word_embeddings": True,
        "num_hidden_layers": 4,
        "layer_types": ["full_attention", "linear_attention", "linear_attention", "full_attention"],
    },
}


@pytest.mark.parametrize("change", CHANGES)
def test_float32_graphs_agree_with_transformers(tmp_path, change):
    check(tmp_path, random_model(tmp_path / "hf", CHANGES[change]))


@pytest.mark.parametrize("name", MODELS)
def test_a_language_model_alone_agrees_with_transformers(tmp_path, name):
    model = random_model(tmp_path / "hf", {}, name, alone=True)
    assert json.loads((tmp_path / "hf/config.json").read_text())["model_type"] == f"{name}_text"
    check(tmp_path, model)


@pytest.mark.parametrize("packed", [False, True])
def test_experts_agree_with_transformers(tmp_path, packed):
    changes = {"moe_intermediate_size": 80, "shared_expert_intermediate_size": 100}
    check(tmp_path, random_model(tmp_path / "hf", changes, "qwen3_5_moe", packed))


@pytest.mark.parametrize(
    "changes",
    [{}, {"mlp_only_layers": [1], "norm_topk_prob": False}, {"linear_num_key_heads": 4}, {"decoder_sparse_step": 2}],
)
def test_projections_packed_by_head_agree_with_transformers(tmp_path, changes):
    check(tmp_path, random_next(tmp_path / "hf", changes))


def check(tmp_path, model):
    package = compile_package(tmp_path / "hf", tmp_path / "out", quant="float32", prefill_length=32, context_length=320)
    loaded = LoadedPackage(package)
    tokens = np.random.default_rng(0).integers(0, model.config.vocab_size, 300).tolist()
    want = oracle_logits(model, tokens)
    bound = bound_of(model.config)
    for length in (1, 31, 32, 33, 100, 257):
        assert_close(loaded.prefill(tokens[:length]), want[length - 1], bound, f"prefill of {length}")
    for position in range(257, 300):
        assert_close(loaded.decode(tokens[position], position), want[position], bound, f"decode at {position}")


@pytest.fixture(scope="module")
def float32_package(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hybrid")
    model = random_model(folder / "hf", {})
    return model, compile_package(folder / "hf", folder / "out", quant="float32", prefill_length=16, context_length=64)


def test_float32_chunks_are_their_tokens_one_by_one(float32_package):
    """A state between two runs is then what it is inside of one, so caches and states agree to the bit as well."""
    tokens, loaded = tokens_of(40), LoadedPackage(float32_package[1])
    expected = None
    for split in (40, 1, 15, 16, 17, 39):
        logits = loaded.prefill(tokens[:split])
        for position in range(split, len(tokens)):
            logits = loaded.decode(tokens[position], position)
        found = [logits, *states_of(loaded)]
        expected = expected or found
        for got, want in zip(found, expected, strict=True):
            np.testing.assert_array_equal(got, want)


def test_compiled_names_and_order(float32_package):
    _, package = float32_package
    module = LoadedPackage(package).prefill_module
    caches = [f"model_layers_0_self_attn_{kind}cache_input" for kind in "kv"]
    states = [f"past_{kind}_{index}" for kind in ("conv_cache", "recurrent_state") for index in range(3)]
    positions = ["time_position_ids", "hight_position_ids", "width_position_ids"]
    lengths = ["valid_length", "current_length", "linear_attn_mask"]
    names = [module.get_input_name(index) for index in range(module.get_num_inputs())]
    assert names == ["input_1", *positions, *lengths, *caches, *states]
    outputs = [module.get_output_name(index) for index in range(module.get_num_outputs())]
    assert outputs == ["logits", *(name.removeprefix("past_")[:-2] + "_out" + name[-2:] for name in states)]
    assert module.get_input_info("past_conv_cache_0").shape == (1, 2 * 2 * 32 + 4 * 48, 4)
    assert module.get_input_info("past_recurrent_state_2").shape == (1, 4, 32, 48)


def test_qwen3_next_takes_no_positions(tiny_package):
    """As the vendor's demo, which finds inputs by their index."""
    package = tiny_package("qwen3_next", prefill_length=16, context_length=64)
    loaded = LoadedPackage(package)
    for module in (loaded.prefill_module, loaded.decode_module):
        names = [module.get_input_name(index) for index in range(6)]
        assert names[:4] == ["input_1", "valid_length", "current_length", "linear_attn_mask"]
        assert names[4:] == [f"model_layers_0_self_attn_{kind}cache_input" for kind in "kv"]
        assert module.get_input_info(names[4]).shape[2] == 64


@pytest.mark.parametrize(("quant", "bound"), [("float16", 0.03), ("w8a8h1_sefp", 0.1), ("w4a8h0_ssfp", 0.6)])
def test_quantised_graphs_stay_near_transformers(tmp_path, quant, bound):
    """Not a derived bound, as in test_oracle.py."""
    model = random_model(tmp_path / "hf", {})
    package = compile_package(tmp_path / "hf", tmp_path / "out", quant=quant, prefill_length=32, context_length=128)
    tokens = tokens_of(100)
    loaded = LoadedPackage(package)
    loaded.prefill(tokens[:90])
    for position in range(90, 100):
        got = loaded.decode(tokens[position], position)
    want = oracle_logits(model, tokens)[-1].astype(np.float64)
    assert np.linalg.norm(got - want) / np.linalg.norm(want) < bound


def test_generator_goes_on_or_begins_anew(float32_package):
    """A prompt that goes on with all that the states have seen costs its new part; any other is run from the start."""
    loaded, fresh = LoadedPackage(float32_package[1]), LoadedPackage(float32_package[1])
    first = tokens_of(12)
    answer = list(loaded.generate(first, Sampler(), 5, ()))
    for prompt, reused in ((first + answer[:4] + [7, 8], 16), ([*first[:9], 1, 2], 0), (first[:9], 0)):
        found = list(loaded.generate(prompt, Sampler(), 5, ()))
        assert loaded.stats.reused_tokens == reused
        fresh.cached_tokens = []
        assert list(fresh.generate(prompt, Sampler(), 5, ())) == found
    with pytest.raises(ValueError, match="only go forward"):
        loaded.prefill([1, 2], 3)


def test_engine_answers_as_the_generator_does(float32_package):
    _, package = float32_package
    prompts = [tokens_of(20, 1), tokens_of(20, 1)[:10] + tokens_of(9, 2), tokens_of(3, 3)]
    check_engine_answers_as_the_generator(package, prompts)


def test_generate_and_chat_answer(tmp_path, capsys, monkeypatch, strict_mode):
    """With the demo checkpoint's tokenizer. Weights are random: the second turn of a chat is what one request gets."""
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        if (DEMO_CHECKPOINT / name).exists():
            shutil.copy(DEMO_CHECKPOINT / name, tmp_path / name)
    vocab_size = json.loads((DEMO_CHECKPOINT / "config.json").read_text())["vocab_size"]
    (tmp_path / "config.json").write_text(json.dumps({**FAMILY.tiny_config, "vocab_size": vocab_size}))
    compile_package(tmp_path, tmp_path / "out", random_weights=True, prefill_length=16, context_length=256)
    command = ["generate", str(tmp_path / "out"), "--json", "--max-new-tokens", "6", "--prompt", "What is 12 + 30?"]
    assert main(command) == 0
    first = json.loads(capsys.readouterr().out)
    assert main(command) == 0
    assert json.loads(capsys.readouterr().out)["text"] == first["text"]
    monkeypatch.setattr("sys.stdin", io.StringIO("What is 1 + 1?\nAnd 2 + 2?\n"))
    assert main(["chat", str(tmp_path / "out"), "--max-new-tokens", "4"]) == 0
