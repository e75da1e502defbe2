"""Graphs that take a LoRA as inputs, against transformers with the adapter merged into its weights."""

from __future__ import annotations

import json

import numpy as np
import pytest
from llm_packages import LoadedPackage, compile_package

pytestmark = pytest.mark.oracle
pytest.importorskip("safetensors.numpy", reason="writes checkpoints")
torch = pytest.importorskip("torch", reason="the oracle")
transformers = pytest.importorskip("transformers", reason="the oracle")
from engine_tools import run
from hybrid_models import bound_of, random_model, tokens_of
from lora_adapters import ALPHA, ATTENTION, MLP, RANK
from oracle import assert_close, oracle_logits
from safetensors.numpy import save_file

import tcim_lite.runtime as tcim
from tcim_lite.bench.modules import Modules
from tcim_lite.cli import main
from tcim_lite.llm import Sampler, lanes_of
from tcim_lite.llm.engine import Engine, SamplingParams, Slots
from tcim_lite.models.families import FAMILIES

CLASSES = {"gpt_neox": "GPTNeoX", "qwen3": "Qwen3", "phi3": "Phi3", "granite": "Granite", "glm4": "Glm4"}
# Merged Linears of which some parts are changed and some are not; stacked, in turns, halves, head by head, in pairs.
TARGETS = {
    "qwen3": [ATTENTION + MLP, ("q_proj", "v_proj"), ("up_proj",)],
    "phi3": [("qkv_proj", "o_proj", "gate_up_proj", "down_proj")],
    "granite": [("k_proj", "o_proj", "gate_proj", "down_proj")],
    "glm4": [("q_proj", "k_proj", "gate_up_proj")],
    "gpt_neox": [("query_key_value", "attention.dense", "dense_4h_to_h")],
    "qwen3_5": [("q_proj", "v_proj", "in_proj_qkv", "out_proj", "gate_proj"), ("k_proj", "in_proj_z", "in_proj_b")],
    "qwen3_5_moe": [
        ("q_proj", "in_proj_qkv", "shared_expert.up_proj", "shared_expert_gate", "shared_expert.down_proj")
    ],
}
CASES = [(family, targets) for family, several in TARGETS.items() for targets in several]


def checkpoint_of(folder, family):
    """A random model of a family, and its folder."""
    if family in ("qwen3_5", "qwen3_5_moe"):
        return random_model(folder, {}, family)
    torch.manual_seed(5)
    kind = CLASSES[family]
    config = getattr(transformers, f"{kind}Config")(
        **FAMILIES[family].tiny, initializer_range=0.05, attn_implementation="eager", eos_token_id=None
    )
    model = getattr(transformers, f"{kind}ForCausalLM")(config).float().eval()
    model.save_pretrained(folder)
    return model


def write_adapter(folder, model, targets, seed=1, **config):
    """A random LoRA of the Linears whose names end so; returns what it adds to each."""
    rng, tensors, added = np.random.default_rng(seed), {}, {}
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Linear) and name.endswith(targets):
            down, up = (
                (rng.standard_normal(shape) * 0.2).astype(np.float32)
                for shape in ((RANK, module.in_features), (module.out_features, RANK))
            )
            stem = f"base_model.model.{name}"
            tensors |= {f"{stem}.lora_A.weight": down, f"{stem}.lora_B.weight": up}
            added[name] = torch.from_numpy(up @ down * np.float32(ALPHA / RANK))
    folder.mkdir(parents=True)
    save_file(tensors, folder / "adapter_model.safetensors")
    written = {"peft_type": "LORA", "r": RANK, "lora_alpha": ALPHA, "bias": "none", "target_modules": list(targets)}
    (folder / "adapter_config.json").write_text(json.dumps(written | config))
    return added


def names_of(module):
    names = (module.get_input_name(index) for index in range(module.get_num_inputs()))
    return [name for name in names if "lora_bundle_pipelined_te" in name]


def activate(loaded, folder=None):
    """As the vendor's programs do: files by the names of inputs, or zeros; decode reads prefill's memory."""
    for name in names_of(loaded.prefill_module):
        info = loaded.prefill_module.get_input_info(name)
        value = np.zeros(info.shape, info.dtype) if folder is None else np.load(folder / f"{name}.npy")
        assert (value.shape, value.dtype) == (tuple(info.shape), info.dtype)
        loaded.prefill_module.set_input(name, value)
        loaded.decode_module.set_dev_input(name, loaded.prefill_module.get_dev_input(name))
    loaded.cached_tokens = []


def logits_of(loaded, tokens, length):
    """Of a prompt in chunks, the last of them not full, and of single tokens behind it."""
    rows = [loaded.prefill(tokens[:length])]
    return [*rows, *(loaded.decode(tokens[at], at) for at in range(length, len(tokens)))]


@pytest.mark.parametrize(("family", "targets"), CASES, ids=[f"{case[0]}-{'-'.join(case[1])}" for case in CASES])
def test_float32_graphs_agree_with_merged_weights(tmp_path, family, targets):
    model, tokens = checkpoint_of(tmp_path / "hf", family), tokens_of(40)
    sizes = {"quant": "float32", "prefill_length": 16, "context_length": 64, "name": "it"}
    plain = logits_of(LoadedPackage(compile_package(tmp_path / "hf", tmp_path / "plain", **sizes)), tokens, 35)
    added = write_adapter(tmp_path / "tuned", model, targets)
    package = compile_package(tmp_path / "hf", tmp_path / "out", lora=tmp_path / "tuned", **sizes)
    loaded, folder = LoadedPackage(package), tmp_path / "out/it_tuned_prefill_lora_input"
    assert {path.stem for path in folder.iterdir()} == set(names_of(loaded.prefill_module))
    twin = folder.with_name("it_tuned_decode_lora_input")
    assert {path.stem for path in twin.iterdir()} == set(names_of(loaded.decode_module))

    # Zeros, which `LoadedPackage` has at first, are the base model to the bit.
    np.testing.assert_array_equal(logits_of(loaded, tokens, 35), plain)
    activate(loaded, folder)
    changed = logits_of(loaded, tokens, 35)
    with torch.no_grad():
        for name, module in model.named_modules():
            if name in added:
                module.weight += added[name]
    want = oracle_logits(model, tokens)
    for got, at in zip(changed, range(34, 40), strict=True):
        assert_close(got, want[at], bound_of(model.config), f"position {at}")
        assert np.abs(got - plain[at - 34]).max() > 0.05 * np.abs(want[at]).max()
    activate(loaded)
    np.testing.assert_array_equal(logits_of(loaded, tokens, 35), plain)


@pytest.fixture(scope="module")
def tuned(tmp_path_factory):
    """A checkpoint with two adapters of the same Linears, and packages of them by profile."""
    folder = tmp_path_factory.mktemp("tuned")
    model = checkpoint_of(folder / "hf", "qwen3")
    for seed, name in enumerate(("first", "second")):
        write_adapter(folder / name, model, ATTENTION + MLP, seed)

    def make(quant, adapter=None, **options):
        lora = None if adapter is None else folder / adapter
        output = folder / "-".join([quant, adapter or "plain", *options])
        sizes = {"prefill_length": 16, "context_length": 64, "name": "it"}
        return compile_package(folder / "hf", output, quant=quant, lora=lora, **sizes, **options)

    return make


@pytest.mark.parametrize("quant", ["w4a8h0_ssfp", "float16", "float32"])
def test_chunks_are_their_tokens_one_by_one(tuned, quant):
    package, tokens = tuned(quant, "first"), tokens_of(40)
    plain, loaded = LoadedPackage(tuned(quant)), LoadedPackage(package)
    np.testing.assert_array_equal(logits_of(loaded, tokens, 35), logits_of(plain, tokens, 35))
    activate(loaded, package.folder / "it_first_prefill_lora_input")
    want = logits_of(loaded, tokens, 1)
    for length in (2, 15, 16, 17, 33):
        loaded.cached_tokens = []
        np.testing.assert_array_equal(logits_of(loaded, tokens, length), want[length - 1 :])


def test_adapters_of_one_shape_share_their_graphs(tuned):
    """So a program that has loaded the graphs of one may switch to another, as the vendor's demo does."""
    first, second = (tuned("w4a8h0_ssfp", name) for name in ("first", "second"))
    for stage in ("prefill", "decode"):
        one, other = ((package.folder / f"it_{stage}.hmm").read_bytes() for package in (first, second))
        assert one == other
    switched, own, tokens = LoadedPackage(first), LoadedPackage(second), tokens_of(20)
    for loaded in (switched, own):
        activate(loaded, second.folder / "it_second_prefill_lora_input")
    changed = logits_of(own, tokens, 18)
    np.testing.assert_array_equal(logits_of(switched, tokens, 18), changed)
    activate(switched, first.folder / "it_first_prefill_lora_input")
    assert not np.array_equal(logits_of(switched, tokens, 18), changed)


def test_slots_share_the_adapter(tuned):
    """Decode of two tokens in two slots gives what each gives alone."""
    one, two = (tuned("float16", "first", **options) for options in ({}, {"batch": 2}))
    loaded, folder = LoadedPackage(one), one.folder / "it_first_prefill_lora_input"
    activate(loaded, folder)
    want = np.stack([loaded.decode(token, 0) for token in (7, 9)])
    module = tcim.load(str(two.decode_path))
    for name in names_of(module):
        module.set_input(name, np.load(folder / f"{name}.npy"))
    lanes = lanes_of(module)
    assert len(lanes) == 2
    for lane in lanes:
        module.set_input(lane.valid, np.zeros(1, np.int32))
        module.set_input(lane.current, np.ones(1, np.int32))
    embedding = two.embedding_for(module)
    module.set_input(module.get_input_name(0), np.stack([embedding[token].reshape(1, -1) for token in (7, 9)]))
    module.run()
    module.sync()
    got = module.get_output(module.get_output_name(0)).numpy()
    np.testing.assert_array_equal(got.reshape(want.shape), want)


def test_commands_run_the_base_model(tuned, strict_mode):
    """Whatever loads a package of ours sets these inputs, which strict mode fills with NaN before."""
    package, plain, prompt = tuned("float16", "first"), tuned("float16"), tokens_of(20)
    want = list(LoadedPackage(plain).generate(prompt, Sampler(), 5, ()))
    assert list(LoadedPackage(package).generate(prompt, Sampler(), 5, ())) == want
    engine = Engine(Slots.open(package))
    engine.add(prompt, SamplingParams(max_tokens=5), request_id="one")
    assert run(engine)[0]["one"] == want
    modules = Modules(package, None, slots=1)
    for graph, rows in ((modules.prefill, 16), (modules.decode, 1)):
        graph.run(0, rows)


def test_a_comparison_with_the_package_of_the_base_is_refused(tuned, tmp_path, capsys):
    plain, package = (tuned("float32", name).folder for name in (None, "first"))
    for one, other in ((plain, package), (package, plain)):
        assert main(["diff", str(one), str(other), "--tokens", "1,2,3", "--steps", "1", "-o", str(tmp_path)]) != 0
        assert "only one package has the input lora_bundle_pipelined_te_layers_0_" in capsys.readouterr().err


def test_names_do_not_look_like_those_of_caches(tuned):
    """Programs find caches and states by parts of names, and take the first inputs by their index."""
    module = LoadedPackage(tuned("float16", "first")).decode_module
    names = [module.get_input_name(index) for index in range(module.get_num_inputs())]
    ours = names_of(module)
    assert names[-len(ours) :] == ours
    assert not [name for name in ours if any(part in name for part in ("model_layers", "cache", "recurrent_state"))]
    assert len(ours) == 2 * 4 * FAMILIES["qwen3"].tiny["num_hidden_layers"]  # qkv, o, gate and up, down
