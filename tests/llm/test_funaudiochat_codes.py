"""What speaks of Fun-Audio-Chat: codes of hidden states, against Qwen3 of transformers between Linears of PyTorch."""

from __future__ import annotations

import numpy as np
import pytest

import tcim_lite.runtime as rt
from tcim_lite.llm import cache_names, load_pair
from tcim_lite.models.common.errors import CheckpointError, CompileError, CompileWarning
from tcim_lite.models.compiler import CompileOptions, compile_checkpoint

pytestmark = pytest.mark.oracle
torch = pytest.importorskip("torch", reason="the oracle")
pytest.importorskip("transformers", reason="the oracle")
from funaudiochat import (
    AUDIO,
    CHUNK,
    CHUNKS,
    CRQ,
    FRAMES,
    HIDDEN,
    NAME,
    QUANTS,
    WIDTH,
    Oracle,
    compiled,
    ports,
    run,
)
from oracle import assert_close
from safetensors.torch import load_file, save_file
from torch.nn import functional

GROUP, CODES = AUDIO["group_size"], AUDIO["codebook_size"]
ROWS = GROUP * CHUNK
PROMPT, SAID, START = 7, 3, 60  # tokens of the prompt, groups of codes behind it, the code that begins


@pytest.fixture(scope="module")
def oracle():
    return Oracle()


@pytest.fixture(scope="module", params=QUANTS, ids=[quant for quant, _ in QUANTS])
def package(request, oracle, tmp_path_factory):
    folder = tmp_path_factory.mktemp("codes")
    quant, limit = request.param
    return compiled(oracle.save(folder / "hf"), folder / "out", quant=quant), limit


def scores(oracle: Oracle, conditions: torch.Tensor, codes: list[int]) -> np.ndarray:
    """Of each code [n, CODES], as the published class computes them: the row of a code and the code before it.

    The prompt is one run: its rows but the last four, to all of which the first code is added.
    """
    apart = functional.linear(conditions, oracle.pre.weight, oracle.pre.bias).reshape(-1, WIDTH)
    whole = PROMPT * GROUP - (GROUP - 1)
    before = torch.tensor([START] * whole + codes[: len(apart) - whole])
    hidden = oracle.crq(inputs_embeds=oracle.into(apart + oracle.codes.weight[before])[None]).last_hidden_state
    return functional.linear(oracle.out_of(hidden[0]), oracle.codes.weight)[whole - 1 :].numpy()


def speak(package, conditions: np.ndarray, codes: list[int]) -> np.ndarray:
    """As the demo: the host has the Linear and the embedding, and adds the rows; the caches are those of prefill."""
    made = torch.load(package / "hmquant" / "audio_decoder_pre_matching.pt", weights_only=True)
    table = torch.load(package / "hmquant" / "quant_audio_embedding.pt", weights_only=False)["weight"].float().numpy()
    apart = functional.linear(torch.tensor(conditions, dtype=torch.float16), made["weight"], made["bias"])
    apart = apart.float().numpy().reshape(-1, WIDTH)
    prefill, decode = (rt.load(package / f"{NAME}_audio_decoder_{stage}.hmm") for stage in ("prefill", "decode"))
    for name in ports(prefill):
        if "cache" in name:
            decode.set_dev_input(name, prefill.get_dev_input(name))
    whole = PROMPT * GROUP - (GROUP - 1)
    found = []
    for first, stop in ((0, whole), *((at, at + 1) for at in range(whole, len(apart)))):
        tokens = 1 if first else ROWS
        given, mask = np.zeros((1, tokens, WIDTH)), np.zeros((tokens, ROWS))
        given[0, : stop - first] = apart[first:stop] + table[codes[first - whole] if first else START]
        mask[:, stop:] = HIDDEN
        mask[stop - first :] = HIDDEN
        (logits,) = run(
            decode if first else prefill,
            crq_inputs_embeds=given,
            past_seq_length=[first],
            current_input_length=[stop - first],
            attention_mask=mask,
        )
        assert logits.shape == (1, tokens, CODES)
        found.append(logits[0, stop - first - 1])
    return np.stack(found)


def test_codes_follow_each_other_as_in_the_published_class(oracle, package):
    folder, limit = package
    conditions = np.random.default_rng(3).standard_normal((PROMPT + SAID, WIDTH)).astype(np.float16)
    codes = np.random.default_rng(4).integers(0, CODES, (SAID + 1) * GROUP).tolist()
    with torch.no_grad():
        want = scores(oracle, torch.tensor(conditions, dtype=torch.float32), codes)
        others = scores(oracle, torch.tensor(conditions, dtype=torch.float32), [START] * len(codes))
    got = speak(folder, conditions, codes)
    # Rows of the host are float16 in every package, of 11 bits.
    assert_close(got, want, limit or 2**-11, "scores of codes")
    assert np.abs(want - others)[1:].max(axis=1).min() > 0.01  # a code that is not read shows


def test_graphs_have_the_inputs_of_the_vendors(package):
    folder, _ = package
    caches = {
        f"past_{kind}_cache_{layer}": (1, 2, ROWS, CRQ["head_dim"]) for kind in ("key", "value") for layer in (0, 1)
    }
    for stage, tokens in (("prefill", ROWS), ("decode", 1)):
        module = rt.load(folder / f"{NAME}_audio_decoder_{stage}.hmm")
        assert list(ports(module).items()) == [
            ("crq_inputs_embeds", (1, tokens, WIDTH)),
            ("past_seq_length", (1,)),
            ("current_input_length", (1,)),
            ("attention_mask", (tokens, ROWS)),
            *caches.items(),
        ]
        assert [module.get_output_name(i) for i in range(module.get_num_outputs())] == ["speech_logits"]


def test_a_pair_shares_the_caches_of_codes(package):
    folder, _ = package
    paths = [folder / f"{NAME}_audio_decoder_{stage}.hmm" for stage in ("prefill", "decode")]
    prefill, decode = load_pair(*paths, rt.WeightManager(0))
    names = [name for name in ports(prefill) if "cache" in name]
    assert cache_names(decode) == names
    assert names
    for number, name in enumerate(names):
        shape = prefill.get_input_info(name).shape
        prefill.set_input(name, np.full(shape, number + 1, prefill.get_input_info(name).dtype))
        assert (decode.get_dev_input(name).numpy() == number + 1).all()
    with pytest.raises(ValueError, match="no lengths for each of its slots, so it is not that of a language model"):
        load_pair(*[folder / f"{NAME}_audio_tower.hmm"] * 2, rt.WeightManager(0))
    with pytest.raises(ValueError, match="no input is a KV cache or a state, so it is not"):
        load_pair(*[folder / f"{NAME}_audio_encoder.hmm"] * 2, rt.WeightManager(0))


def test_the_linear_of_the_host_is_a_state_dict_of_float16(oracle, package):
    folder, _ = package
    made = torch.load(folder / "hmquant" / "audio_decoder_pre_matching.pt", weights_only=True)
    assert list(made) == ["weight", "bias"]
    for name, tensor in oracle.pre.state_dict().items():
        assert torch.equal(made[name], tensor.half()), name


def test_a_head_of_its_own_is_taken(oracle, tmp_path):
    """The head is the table of codes unless the checkpoint has another one."""
    folder = oracle.save(tmp_path / "hf")
    tensors = load_file(folder / "model.safetensors")
    table = tensors["audio_tower.embed_tokens.weight"]
    conditions = np.random.default_rng(5).standard_normal((PROMPT, WIDTH)).astype(np.float16)
    found = {}
    for factor in (1, 2):
        save_file({**tensors, "audio_invert_tower.lm_head.weight": table * factor}, folder / "model.safetensors")
        if factor == 2:
            with pytest.warns(CompileWarning, match="lm_head.weight differs"):
                package = compiled(folder, tmp_path / "two", quant="float32")
        else:
            package = compiled(folder, tmp_path / "one", quant="float32")
        found[factor] = speak(package, conditions, [0] * (GROUP - 1))
    assert np.array_equal(found[2], 2 * found[1])


@pytest.mark.parametrize("changes", [{"crq_transformer_config": None}, {"enable_audio_invert_tower": False}])
def test_a_checkpoint_that_does_not_speak_has_no_decoder(oracle, tmp_path, changes):
    package = compiled(oracle.save(tmp_path / "hf", **changes), tmp_path / "out")
    assert (package / f"{NAME}_audio_tower.hmm").exists()
    assert not list(package.rglob("*audio_decoder*"))


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"crq_transformer_config": "qwen3"}, CompileError, "crq_transformer_config must be an object, got 'qwen3'"),
        ({"crq_transformer_config": {**CRQ, "hidden_act": "relu"}}, CompileError, "hidden_act='relu'"),
        ({"crq_transformer_config": {**CRQ, "hidden_size": 192}}, CheckpointError, "input_matching.weight"),
        ({"group_size": 3}, CheckpointError, "pre_matching.weight"),
    ],
)
def test_what_does_not_fit_is_refused(oracle, tmp_path, changes, error, message):
    folder = oracle.save(tmp_path / "hf", **changes)
    with pytest.raises(error, match=message):
        compile_checkpoint(CompileOptions(checkpoint=folder, output=tmp_path / "out", audio_frames=CHUNKS * FRAMES))
    assert not (tmp_path / "out").exists()
