"""--hidden-states: graphs without a head, as that of CosyVoice3's language model, against transformers."""

from __future__ import annotations

import json

import numpy as np
import pytest
from llm_packages import compile_package

import tcim_lite.runtime as rt
from tcim_lite.cli import main
from tcim_lite.hmm import read
from tcim_lite.models.common.errors import CompileWarning
from tcim_lite.models.compiler import CompileOptions, compile_checkpoint
from tcim_lite.models.families import FAMILIES

pytestmark = pytest.mark.oracle
torch = pytest.importorskip("torch", reason="the oracle")
pytest.importorskip("transformers", reason="the oracle")
from oracle import assert_close, logit_bound, random_model
from safetensors.torch import save_file

SIZES = {"prefill_length": 16, "context_length": 64, "hidden_states": -1}


def fed(module: rt.Module, rows: np.ndarray, valid: int) -> np.ndarray:
    info = module.get_input_info("input_1")
    padded = np.zeros(info.shape, np.float32)
    padded[:, : len(rows)] = rows
    module.set_input("input_1", padded)
    module.set_input("valid_length", np.int32([valid]))
    module.set_input("current_length", np.int32([len(rows)]))
    module.run(True)
    outputs = [module.get_output_name(at) for at in range(module.get_num_outputs())]
    assert outputs[0] == "hidden_states"
    assert not any(name in ("logits", "hidden_states") for name in outputs[1:])
    return module.get_output("hidden_states").numpy()


@pytest.mark.parametrize("family", ["qwen2", "mixtral", "granite"])
def test_graphs_return_what_the_head_would_read(tmp_path, family):
    model = random_model(FAMILIES[family].tiny, family)
    model.save_pretrained(tmp_path / "hf")
    package = compile_package(tmp_path / "hf", tmp_path / "out", quant="float32", verify_length=3, **SIZES)
    assert not any("lm_head" in weight.name for weight in read(next(package.folder.glob("*.hmw"))).weights)
    tokens = torch.randint(0, 331, (1, 40), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        want = model(tokens, output_hidden_states=True).hidden_states[-1][0].numpy()
    table = np.fromfile(package.folder / "hmquant/quant_embedding.bin", np.float32).reshape(331, -1)
    rows, bound = table[tokens[0].numpy()], logit_bound(model.config)
    prefill, decode = rt.load(package.prefill_path), rt.load(package.decode_path)
    caches = [name for at in range(prefill.get_num_inputs()) if "cache" in (name := prefill.get_input_name(at))]
    for module in (decode, verify := rt.load(package.graph("verify.hmm"))):
        for name in caches:
            module.set_input(name, prefill.get_dev_input(name))
    for begin, count in ((0, 16), (16, 16), (32, 2)):
        got = fed(prefill, rows[begin : begin + count], begin)
        assert got.shape == (1, 1, 192)
        assert_close(got[0, 0], want[begin + count - 1], bound, f"prefill to {begin + count}")
    for at in (34, 35):
        assert_close(fed(decode, rows[at : at + 1], at)[0, 0], want[at], bound, f"decode at {at}")
    assert_close(fed(verify, rows[36:39], 36)[0], want[36:39], bound, "verify")


@pytest.mark.parametrize("family", ["qwen3", "mixtral", "qwen3_next"])
@pytest.mark.parametrize("number", [-2, -3])
def test_graphs_return_what_a_layer_would_read(tmp_path, family, number):
    """As the text encoder of Z-Image: all rows, no layer from that one on, and no final norm."""
    config = {**FAMILIES[family].tiny, "num_hidden_layers": 4}
    if family == "qwen3_next":
        config["layer_types"] = ["full_attention", "linear_attention"] * 2
    model = random_model(config, family)
    model.save_pretrained(tmp_path / "hf")
    options = {**SIZES, "quant": "float32", "all_logits": True, "hidden_states": number}
    package = compile_package(tmp_path / "hf", tmp_path / "out", **options)
    names = [weight.name for weight in read(next(package.folder.glob("*.hmw"))).weights]
    assert not any(name.startswith(("lm_head", "final_norm", f"layers.{5 + number}.")) for name in names)
    assert any(name.startswith(f"layers.{4 + number}.") for name in names)
    tokens = torch.randint(0, 331, (1, 27), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        want = model(tokens, output_hidden_states=True).hidden_states[number][0].numpy()
    table = np.fromfile(package.folder / "hmquant/quant_embedding.bin", np.float32).reshape(331, -1)
    rows, bound = table[tokens[0].numpy()], logit_bound(model.config)
    prefill, decode = rt.load(package.prefill_path), rt.load(package.decode_path)
    for module in (prefill, decode):
        if family == "qwen3_next":
            mask = np.zeros(module.get_input_info("linear_attn_mask").shape, np.float32)
            mask[:, : 1 if module is decode else 11] = 1
            module.set_input("linear_attn_mask", mask)
    states = [name for at in range(prefill.get_num_inputs()) if "past" in (name := prefill.get_input_name(at))]
    caches = [name for at in range(prefill.get_num_inputs()) if "cache_input" in (name := prefill.get_input_name(at))]
    got = fed(prefill, rows[:11], 0)[0]
    assert got.shape == (16, 192)
    assert_close(got[:11], want[:11], bound, "prefill")
    assert not got[11:].any()
    for name in caches:
        decode.set_input(name, prefill.get_dev_input(name))
    for name in states:
        after = name.replace("past_conv_cache", "conv_cache_out").replace("past_recurrent_state", "recurrent_state_out")
        decode.set_input(name, prefill.get_dev_output(after))
    assert_close(fed(decode, rows[11:12], 11)[0, 0], want[11], bound, "decode")


def test_the_command_takes_a_number_or_none(tmp_path, capsys):
    (tmp_path / "config.json").write_text(json.dumps(FAMILIES["qwen2"].tiny_config))
    for given, kept in (([], None), (["--hidden-states"], True), (["--hidden-states", "-2"], -2)):
        arguments = ["compile", str(tmp_path), "-o", str(tmp_path / "out"), "--random-weights", "--quant", "float16"]
        assert main([*arguments, *given]) == 0
        message = json.loads(read(tmp_path / "out" / "qwen2_decode.hmm").custom_msg)
        assert message.get("hidden_states") == kept
    assert "warning" in capsys.readouterr().err  # there is no tokenizer


def test_a_checkpoint_without_a_head_may_leave_the_prefix_out(tmp_path):
    """As that of Qwen3-Embedding, whose config names the class with a head."""
    model = random_model({**FAMILIES["qwen3"].tiny, "tie_word_embeddings": True}, "qwen3")
    model.save_pretrained(tmp_path / "whole")
    tensors = {name: tensor for name, tensor in model.model.state_dict().items()}
    (tmp_path / "bare").mkdir()
    save_file(tensors, tmp_path / "bare/model.safetensors")
    (tmp_path / "bare/config.json").write_bytes((tmp_path / "whole/config.json").read_bytes())
    assert set(tensors) & {"embed_tokens.weight", "layers.0.mlp.up_proj.weight", "norm.weight"}
    for options in (SIZES, {**SIZES, "hidden_states": None}):  # a tied head is there as well
        files = []
        for name in ("whole", "bare"):
            options = {**options, "checkpoint": tmp_path / name, "output": tmp_path / f"{name}_out"}
            with pytest.warns(CompileWarning) as warned:
                compile_checkpoint(CompileOptions(**options))
            assert ["no tokenizer files" in str(warning.message) for warning in warned] == [True]
            paths = (path for path in options["output"].rglob("*") if path.suffix in (".hmm", ".hmw", ".bin"))
            files.append({path.name: path.read_bytes() for path in paths})
        assert len(files[0]) == 4
        assert files[0] == files[1]


def test_stages_give_the_same_bits(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(FAMILIES["qwen2"].tiny_config))
    options = {"random_weights": True, "quant": "w8a8h1_sefp", **SIZES}
    package = compile_package(tmp_path, tmp_path / "out", pipeline=2, **options)
    rows = np.random.default_rng(0).standard_normal((7, 192)).astype(np.float16)
    want = fed(rt.load(package.prefill_path), rows, 0)
    first, last = (rt.load(part) for part in package.parts("prefill"))
    for module in (first, last):
        module.set_input("current_length", np.int32([7]))
    padded = np.zeros((1, 16, 192), np.float16)
    padded[0, :7] = rows
    first.set_input("input_1", padded)
    first.run(True)
    last.set_input(last.get_input_name(0), first.get_output(first.get_output_name(0)).numpy())
    last.run(True)
    assert np.array_equal(last.get_output("hidden_states").numpy(), want)


def test_programs_that_need_logits_say_so(tmp_path, capsys):
    (tmp_path / "config.json").write_text(json.dumps(FAMILIES["qwen2"].tiny_config))
    package = compile_package(tmp_path, tmp_path / "out", random_weights=True, **SIZES)
    with pytest.raises(ValueError, match=r"return hidden states.*compiled with --hidden-states"):
        package.embedding_for(rt.load(package.prefill_path))
    assert main(["dump", str(package.folder), "-o", str(tmp_path / "dump"), "--tokens", "1,2,3"]) == 2
    assert "error: the graphs of qwen2" in capsys.readouterr().err
    assert json.loads(read(package.decode_path).custom_msg)["hidden_states"] is True
