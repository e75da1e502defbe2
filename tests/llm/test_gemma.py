"""Gemma in float32 against transformers: norms around blocks, two RoPEs, windows, capped logits, scaled states."""

import itertools
import json

import numpy as np
import pytest
from llm_packages import LoadedPackage, compile_package
from oracle import assert_close, assert_float32_graphs_agree, logit_bound, oracle_logits, random_weights
from safetensors.torch import save_file

import tcim_lite.runtime as rt
from tcim_lite.llm import Package, run_graph
from tcim_lite.llm.engine.slots import Slots
from tcim_lite.models.common.errors import CompileError
from tcim_lite.models.compiler import CompileOptions, compile_checkpoint
from tcim_lite.models.families import FAMILIES

torch = pytest.importorskip("torch", reason="the oracle needs torch: pip install 'tcim-lite[test]'")
transformers = pytest.importorskip("transformers", reason="the oracle needs transformers")

pytestmark = pytest.mark.oracle

FIXED = {"max_position_embeddings": 1024, "initializer_range": 0.05, "eos_token_id": None, "pad_token_id": None}
GEMMA3 = {
    "as it is": {},
    "three layers by their types, capped logits, a window longer than a block": {
        "num_hidden_layers": 3,
        "layer_types": ["full_attention", "sliding_attention", "full_attention"],
        "sliding_window": 130,
        "final_logit_softcapping": 0.5,
        "tie_word_embeddings": False,
    },
}


GEMMA3N = {
    "as it is": {},
    "own keys, an embedding of its own, no scale of the corrected state": {
        "num_kv_shared_layers": 0,
        "altup_correct_scale": False,
        "tie_word_embeddings": False,
        "final_logit_softcapping": 0.5,
    },
    "odd sizes, five layers as usual": {
        "hidden_size": 180,
        "intermediate_size": 250,
        "num_attention_heads": 3,
        "num_key_value_heads": 1,
        "head_dim": 44,
        "num_hidden_layers": 11,
        "layer_types": None,
        "num_kv_shared_layers": 5,
        "activation_sparsity_pattern": None,
        "laurel_rank": 17,
        "hidden_size_per_layer_input": 20,
        "vocab_size_per_layer_input": 7,
    },
}


def random_gemma(model_type, config):
    torch.manual_seed(5)
    config = transformers.AutoConfig.for_model(model_type, **FIXED | config)
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").float().eval()
    random_weights(model)
    return model


@pytest.mark.parametrize("change", GEMMA3)
def test_gemma3_agrees_with_transformers(tmp_path, change):
    model = random_gemma("gemma3_text", {**FAMILIES["gemma3"].tiny, **GEMMA3[change]})
    assert_float32_graphs_agree(tmp_path, model)


def test_the_language_model_of_a_gemma3_with_images(tmp_path):
    """The whole checkpoint, whose config leaves out what is the default, gives what its language model does."""
    text = {key: value for key, value in FAMILIES["gemma3"].tiny.items() if key != "tie_word_embeddings"}
    vision = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2}
    torch.manual_seed(5)
    config = transformers.Gemma3Config(text_config={**FIXED, **text}, vision_config={**vision, "image_size": 28})
    model = transformers.Gemma3ForConditionalGeneration._from_config(config, attn_implementation="eager").float().eval()
    random_weights(model)
    model.save_pretrained(tmp_path / "hf")
    package = compile_package(tmp_path / "hf", tmp_path / "out", quant="float32", prefill_length=32, context_length=64)
    tokens = np.random.default_rng(0).integers(0, 331, 40).tolist()
    want = oracle_logits(model, tokens)
    loaded = LoadedPackage(package)
    assert_close(loaded.prefill(tokens[:39]), want[38], logit_bound(config.text_config), "prefill")
    assert_close(loaded.decode(tokens[39], 39), want[39], logit_bound(config.text_config), "decode")


@pytest.mark.parametrize("change", GEMMA3N)
def test_gemma3n_agrees_with_transformers(tmp_path, change):
    model = random_gemma("gemma3n_text", {**FAMILIES["gemma3n"].tiny, **GEMMA3N[change]})
    assert_float32_graphs_agree(tmp_path, model)


def test_the_language_model_of_a_gemma3n_with_images_and_sounds(tmp_path, recwarn):
    """Its files have keys and values of layers that share those of others."""
    model = random_gemma("gemma3n_text", dict(FAMILIES["gemma3n"].tiny))
    tensors = {name.replace("model.", "model.language_model.", 1): x for name, x in model.state_dict().items()}
    tensors |= {"model.vision_tower.x": torch.ones(2), "model.audio_tower.x": torch.ones(2)}
    for layer, part in itertools.product((2, 3), ("k_proj", "v_proj", "k_norm")):
        name = f"model.language_model.layers.{layer}.self_attn.{part}.weight"
        tensors[name] = tensors[name.replace(f"layers.{layer}", "layers.0")].clone()
    del tensors["lm_head.weight"]
    folder = tmp_path / "hf"
    folder.mkdir()
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, folder / "model.safetensors")
    config = {"architectures": ["Gemma3nForConditionalGeneration"], "model_type": "gemma3n"}
    config |= {"text_config": model.config.to_dict(), "vision_config": {}, "audio_config": {}}
    (folder / "config.json").write_text(json.dumps(config))
    sizes = {"quant": "float32", "prefill_length": 32, "context_length": 64}
    compile_checkpoint(CompileOptions(checkpoint=folder, output=tmp_path / "out", **sizes))
    assert [str(each.message) for each in recwarn if "tokenizer" not in str(each.message)] == []
    tokens = np.random.default_rng(0).integers(0, 331, 40).tolist()
    want, loaded = oracle_logits(model, tokens), LoadedPackage(Package.open(tmp_path / "out"))
    assert_close(loaded.prefill(tokens[:39]), want[38], logit_bound(model.config), "prefill")
    assert_close(loaded.decode(tokens[39], 39), want[39], logit_bound(model.config), "decode")


@pytest.mark.parametrize("quant", ["float16", "w8a8h1_sefp", "w4a8h0_ssfp"])
def test_quantised_gemma3n_stays_near_transformers(tmp_path, quant):
    """Not derived bounds: what rounding of this size leaves of random weights. A wrong layout gives errors near 1."""
    sizes = {"hidden_size": 192, "intermediate_size": 320, "hidden_size_per_layer_input": 64}
    model = random_gemma("gemma3n_text", {**FAMILIES["gemma3n"].tiny, **sizes})
    model.save_pretrained(tmp_path / "hf")
    package = compile_package(tmp_path / "hf", tmp_path / "out", quant=quant, prefill_length=32, context_length=64)
    tokens = np.random.default_rng(0).integers(0, 331, 40).tolist()
    want = oracle_logits(model, tokens)[-1]
    got = LoadedPackage(package).prefill(tokens).astype(np.float64)
    bound = {"float16": 0.02, "w8a8h1_sefp": 0.1, "w4a8h0_ssfp": 0.6}[quant]
    assert np.linalg.norm(got - want) / np.linalg.norm(want) < bound


def test_hidden_states_that_fp16_cannot_hold(tmp_path):
    """Norms behind blocks as large as those of released models: only the scale keeps hidden states in range."""
    model = random_gemma("gemma3_text", dict(FAMILIES["gemma3"].tiny))
    with torch.no_grad():
        for layer in model.model.layers:
            layer.post_feedforward_layernorm.weight.add_(1e5)
    tokens = np.random.default_rng(0).integers(0, 331, 20).tolist()
    model.save_pretrained(tmp_path / "hf")
    package = compile_package(tmp_path / "hf", tmp_path / "out", quant="float16", prefill_length=32, context_length=64)
    want = oracle_logits(model, tokens)[-1]
    with torch.no_grad():
        hidden = model.model(torch.tensor([tokens]), output_hidden_states=True).hidden_states
    assert hidden[1].abs().max() > 65504
    got = LoadedPackage(package).prefill(tokens).astype(np.float64)
    # Not a derived bound: what fp16 leaves of such weights. Values that are clamped give errors near 1.
    assert np.linalg.norm(got - want) / np.linalg.norm(want) < 0.02


GEMMA4 = {
    **{key: value for key, value in FAMILIES["gemma4"].tiny.items() if key != "sliding_window_pattern"},
    "num_hidden_layers": 4,
    "layer_types": ["sliding_attention", "full_attention"] * 2,
    "global_head_dim": 96,
    "vocab_size_per_layer_input": 331,
}
KEYS_ARE_VALUES = {"attention_k_eq_v": True, "num_global_key_value_heads": 1}
EXPERTS = {"enable_moe_block": True, "num_experts": 8, "top_k_experts": 2, "moe_intermediate_size": 128}
E2B = {"num_kv_shared_layers": 2, "use_double_wide_mlp": True, "hidden_size_per_layer_input": 64}
KINDS = {
    "31B": KEYS_ARE_VALUES,
    "26B-A4B": {**KEYS_ARE_VALUES, **EXPERTS},
    "layers of one size, which files do not list": {"global_head_dim": GEMMA4["head_dim"]},
}


def random_gemma4(kind):
    model = random_gemma("gemma4_text", {**GEMMA4, **kind})
    with torch.no_grad():
        for name, tensor in model.named_buffers():
            if name.endswith("layer_scalar"):
                tensor.copy_(torch.rand(1) + 0.3)
        for name, parameter in model.named_parameters():
            if name.endswith(("router.scale", "per_expert_scale")):
                parameter.add_(torch.randn_like(parameter) * 0.2)
    return model


def bound_of(model):
    """As `logit_bound`, of the widest layers."""
    layers = model.config.num_hidden_layers
    return 64 * 2**-24 * (max(max(parameter.shape) for parameter in model.model.layers.parameters()) * layers) ** 0.5


@pytest.mark.parametrize("masks", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_gemma4_agrees_with_transformers(tmp_path, kind, masks):
    model = random_gemma4(KINDS[kind])
    model.save_pretrained(tmp_path / "hf")
    options = {"quant": "float32", "prefill_length": 32, "context_length": 128, "masks": masks}
    loaded = LoadedPackage(compile_package(tmp_path / "hf", tmp_path / "out", **options))
    tokens = np.random.default_rng(0).integers(0, 331, 90).tolist()
    want, bound = oracle_logits(model, tokens), bound_of(model)
    for length in (1, 33, 80):
        assert_close(loaded.prefill(tokens[:length]), want[length - 1], bound, f"prefill of {length}")
    for position in range(80, 90):
        assert_close(loaded.decode(tokens[position], position), want[position], bound, f"decode at {position}")


def local_mask(valid, current, tokens, columns, window):
    """As the vendor's programs make it, padding with one column that it sees."""
    mask = np.full((1, 1, tokens, columns), np.finfo(np.float16).min, np.float16)
    before = min(valid, window - 1)
    for row in range(tokens):
        seen = slice(max(0, before + row - window + 1), before + row + 1) if row < current else slice(0, 1)
        mask[0, 0, row, seen] = 0
    return mask


def test_gemma4_e_agrees_with_transformers(tmp_path):
    """Fed by the order of inputs, with the table of per-layer inputs that torch loads."""
    model = random_gemma4(E2B)
    model.save_pretrained(tmp_path / "hf")
    out = tmp_path / "out"
    package = compile_package(tmp_path / "hf", out, quant="float32", prefill_length=32, context_length=128)
    embedding = torch.load(out / "hmquant/quant_embedding.pt", weights_only=True)["weight"].numpy()
    saved = torch.load(out / "hmquant/per_layer_input_embedding.pt", weights_only=True)
    table = saved["state_dict"]["embed_tokens_per_layer.weight"].numpy()
    manager = rt.WeightManager(0)
    prefill = rt.load(package.prefill_path, option=rt.Option(manager))
    names = [prefill.get_input_name(index) for index in range(prefill.get_num_inputs())]
    assert names[3:5] == ["sliding_attention_mask", "per_layer_inputs"]
    assert [prefill.get_input_info(name).shape for name in names[3:5]] == [(1, 1, 32, 64), (1, 32, 4, 64)]
    # Of the layers with caches of their own, one of each kind.
    assert [prefill.get_input_info(name).shape for name in names[5:]] == [(1, 2, 128, 64), (1, 2, 128, 96)] * 2
    decode = rt.load(package.decode_path, option=rt.Option(manager).set_dummy_tensors(names[5:]))
    for name in names[5:]:
        decode.set_input(name, prefill.get_dev_input(name))
    tokens = np.random.default_rng(0).integers(0, 331, 90)
    want, bound = oracle_logits(model, tokens.tolist()), bound_of(model)

    def run(module, valid, current, columns):
        length = module.get_input_info(names[0]).shape[1]
        rows = np.pad(tokens[valid : valid + current], (0, length - current))
        values = (
            embedding[rows][None],
            np.int32([valid]),
            np.int32([current]),
            local_mask(valid, current, length, columns, 24),
            table[rows].reshape(1, length, 4, 64),
        )
        for index, value in enumerate(values):
            module.set_input(module.get_input_name(index), value)
        module.run(sync=True)
        assert_close(
            module.get_output("logits").numpy()[0, -1], want[valid + current - 1], bound, f"{current} tokens at {valid}"
        )

    for valid, current in ((0, 32), (32, 32), (64, 16)):
        run(prefill, valid, current, 64)
    for valid in range(80, 90):
        run(decode, valid, 1, 32)
    # And as programs of this project feed them.
    loaded = LoadedPackage(package)
    assert_close(loaded.prefill(tokens[:80].tolist()), want[79], bound, "prefill of 80")
    slots = Slots.open(package)
    assert_close(slots.prefill(0, tokens[:20].tolist()), want[19], bound, "prefill of 20 in a slot")
    for position in range(80, 84):
        got = loaded.decode(int(tokens[position]), position)
        assert_close(got, want[position], bound, f"decode at {position}")
        got = slots.decode({0: int(tokens[position - 60])})[0]
        assert_close(got, want[position - 60], bound, f"decode in a slot at {position - 60}")
    with pytest.raises(ValueError, match=r"per-layer inputs of 4 \* 64 for each token, got 192 numbers"):
        run_graph(prefill, embedding[tokens[:32]][None], 0, 32)
    table_file = out / "hmquant/per_layer_input_embedding.pt"
    for content, message in ((b"PK", "is not the table of a package"), (table_file.read_bytes()[:-99], "is not the")):
        table_file.write_bytes(content)
        with pytest.raises(ValueError, match=message):
            package.embedding_for(prefill)


def test_files_for_the_vendors_programs_come_and_go(tmp_path):
    """Those of a package are replaced by the next compilation, and removed by that of a model without them."""
    hf, out = tmp_path / "hf", tmp_path / "out"
    hf.mkdir()
    (hf / "processor_config.json").write_text("{}")
    config = {**FAMILIES["gemma4"].tiny_config, **GEMMA4, **E2B}
    for changes in ({}, {"max_position_embeddings": 512}):
        (hf / "config.json").write_text(json.dumps({**config, **changes}))
        compile_package(hf, out, random_weights=True, prefill_length=32, context_length=64)
        for name in ("config.json", "processor_config.json"):
            assert (out / "hmquant/hf_config" / name).read_bytes() == (hf / name).read_bytes()
        assert (out / "hmquant/per_layer_input_embedding.pt").stat().st_size > 331 * 4 * 64 * 2
    (hf / "config.json").write_text(json.dumps(FAMILIES["qwen3"].tiny_config))
    compile_package(hf, out, random_weights=True, prefill_length=32, context_length=64, name="gemma4")
    assert not (out / "hmquant/per_layer_input_embedding.pt").exists()


def test_what_gemma4_has_no_graphs_for(tmp_path):
    for kind, flag, options in (
        (E2B, "--pipeline 2: layers of this Gemma 4 share caches", {"pipeline": 2}),
        (E2B, "--batch 2: .*per-layer inputs", {"batch": 2}),
        (KEYS_ARE_VALUES, "--ndevice 2: layers of this Gemma 4 differ", {"ndevice": 2}),
        (KEYS_ARE_VALUES, "--position-ids: .*beside masks", {"position_ids": True}),
        (E2B, "--draft: layers of .* take inputs of their own", {"draft_layers": 2}),
    ):
        config = {**FAMILIES["gemma4"].tiny_config, **GEMMA4, **kind}
        (tmp_path / "config.json").write_text(json.dumps(config))
        with pytest.raises(CompileError, match=flag):
            compile_package(tmp_path, tmp_path / "out", random_weights=True, context_length=256, **options)
