"""Multi-token prediction of hybrid families: states after each token, the layer's arithmetic, the vendor's flow."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from llm_packages import LoadedPackage, compile_package

pytestmark = pytest.mark.oracle
pytest.importorskip("safetensors.torch", reason="writes checkpoints")
torch = pytest.importorskip("torch", reason="the oracle")
pytest.importorskip("transformers", reason="the oracle")
from hybrid_models import bound_of, tokens_of
from mtp_checkpoints import SIZES, checkpoint
from oracle import assert_close

import tcim_lite.runtime as rt
from tcim_lite import layers
from tcim_lite.bench import measure_package, model_package
from tcim_lite.errors import ArgumentError, StrictError
from tcim_lite.llm import Sampler, lanes_of
from tcim_lite.llm.engine import Slots
from tcim_lite.llm.engine.mtp_layer import MtpLayer

FAMILIES_WITH_MTP = ("qwen3_5", "qwen3_5_moe", "qwen3_next")
T = 5


def oracle(layer, own, embeddings, hidden):
    """Logits and hidden states of the layer: norms of both, side by side, a Linear, a layer, a norm, the head."""
    eps = layer.config.rms_norm_eps

    def norm(x, weight):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * (1 + weight)

    with torch.no_grad():
        parts = [
            norm(torch.tensor(embeddings), own["mtp.pre_fc_norm_embedding.weight"]),
            norm(torch.tensor(hidden), own["mtp.pre_fc_norm_hidden.weight"]),
        ]
        joined = torch.cat(parts, -1) @ own["mtp.fc.weight"].T
        out = layer(inputs_embeds=joined[None], output_hidden_states=True, use_cache=False)
    return out.logits[0].numpy(), out.hidden_states[-1][0].numpy()


@pytest.fixture(scope="module", params=FAMILIES_WITH_MTP)
def made(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("mtp")
    _, layer, own = checkpoint(folder, request.param)
    package = compile_package(folder / "hf", folder / "out", quant="float32", mtp=True, **SIZES)
    return layer, own, package


@pytest.fixture(scope="module")
def example(tmp_path_factory):
    import sys
    from pathlib import Path

    sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
    try:
        import qwen3_5_mtp
    finally:
        sys.path.pop(0)
    return qwen3_5_mtp


def test_names_order_and_shapes(made):
    package = made[2]
    name = package.name
    draft = rt.load(str(package.folder / f"{name}_prefill_mtp.hmm"))
    inputs = [draft.get_input_name(i) for i in range(draft.get_num_inputs())]
    assert inputs == [
        "next_token_embedding", "post_norm_hidden", "past_seq_length", "current_input_length", "past_key_cache",
        "past_value_cache",
    ]  # fmt: skip
    assert [draft.get_output_name(i) for i in range(2)] == ["logits", "post_norm_out"]
    assert draft.get_output_info("post_norm_out").shape == (1, 16, 192)
    assert draft.get_input_info("valid_length").shape == (1,)  # by the compiled name as well
    verify = rt.load(str(package.decode_path))
    outputs = [verify.get_output_name(i) for i in range(verify.get_num_outputs())]
    states = [f"{kind}_out_{n}_{t}" for kind in ("conv_cache", "recurrent_state") for n in range(3) for t in range(T)]
    assert outputs == ["logits", *states, "post_norm_hidden"]
    assert verify.get_input_info("input_1").shape == (1, T, 192)
    prefill = rt.load(str(package.prefill_path))
    assert prefill.get_output_info("logits").shape == (1, 16, 331)
    assert prefill.get_output_name(prefill.get_num_outputs() - 1) == "post_norm_hidden"


def test_the_layer_agrees_with_its_definition(made, example):
    layer, own, package = made
    model = example.MtpModel(package)
    random = np.random.default_rng(3)
    tokens = tokens_of(40, 4)
    hidden = random.normal(0, 1, (40, 192)).astype(np.float32)
    logits, out = oracle(layer, own, model.embedding[tokens], hidden)
    bound = bound_of(layer.config)
    for begin, end in ((0, 16), (16, 29)):
        part = slice(begin, end)
        got = model.run_draft(model.draft_prefill, tokens[part], hidden[part], begin)
        assert_close(got[0][0], logits[end - 1], bound, f"logits of a chunk to {end}")
        np.testing.assert_allclose(got[1][: end - begin], out[part], rtol=2e-4, atol=2e-4)
        assert (got[1][end - begin :] == 0).all()
    for position in range(29, 40):
        got = model.run_draft(model.draft, [tokens[position]], hidden[position : position + 1], position)
        assert_close(got[0][0], logits[position], bound, f"logits of token {position}")


def states_after(loaded):
    (lane,) = lanes_of(loaded.prefill_module)
    return [loaded.prefill_module.get_dev_input(name).numpy().copy() for name in lane.carried]


@pytest.mark.parametrize("quant", ["float32", "float16", "w8a8h1_sefp", "w4a8h0_ssfp"])
def test_verify_is_decode_token_by_token(tmp_path, example, quant):
    """To the bit in every profile: the state after each token is rounded as between two runs."""
    checkpoint(tmp_path)
    package = compile_package(tmp_path / "hf", tmp_path / "out", quant=quant, mtp=True, **SIZES)
    loaded = LoadedPackage(compile_package(tmp_path / "hf", tmp_path / "plain", quant=quant, **SIZES))
    model = example.MtpModel(package)
    prompt, rest = tokens_of(20, 1), tokens_of(T, 2)
    for count in (T, 3, 1):
        model.start(prompt)
        loaded.prefill(prompt)
        logits, hidden = model.run_target(model.verify, rest[:count])
        assert np.isfinite(hidden).all()
        assert hidden.any(-1).all()
        for step in range(T):
            if step < count:
                want = loaded.decode(rest[step], len(prompt) + step)
                np.testing.assert_array_equal(logits[step], want)
            names = [name for name in model.verify.outputs if name.endswith(f"_{step}") and "_out_" in name]
            found = [model.verify.module.get_output(name).numpy() for name in names]
            for got, want in zip(found, states_after(loaded), strict=True):  # padding leaves them as they are
                np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("name", FAMILIES_WITH_MTP)
@pytest.mark.parametrize("quant", ["float32", "w4a8h0_ssfp"])
def test_answers_are_those_of_plain_decode(tmp_path, example, name, quant):
    """The layer's own guesses, and guesses of which the first ones are right, so that every count is accepted."""
    checkpoint(tmp_path, name)
    package = compile_package(tmp_path / "hf", tmp_path / "out", quant=quant, mtp=True, **SIZES)
    loaded = LoadedPackage(compile_package(tmp_path / "hf", tmp_path / "plain", quant=quant, **SIZES))
    model = example.MtpModel(package)
    prompts = [tokens_of(20, 1), tokens_of(16, 2), tokens_of(1, 3), tokens_of(33, 4)]
    for prompt in prompts:
        want = list(loaded.generate(prompt, Sampler(), None, ()))
        loaded.cached_tokens = []
        stats = {"runs": 0, "proposed": 0, "accepted": 0}
        assert list(model.generate(prompt, (), None, stats)) == want
        assert stats["runs"] > 0
    token, _ = model.start(prompts[0])
    want = list(loaded.generate(prompts[0], Sampler(), 30, ()))
    answer = [token]
    for right in itertools.cycle((4, 0, 2, 1, 3)):
        at = len(answer)
        if at + T > len(want):
            break
        proposed = [*want[at : at + right], *((guess + 1) % 331 for guess in want[at + right : at + 4])]
        accepted, token, _ = model.judge(answer[-1], proposed)
        assert accepted == right
        answer += [*proposed[:accepted], token]
    assert answer == want[: len(answer)]


def test_the_example_takes_packages_of_several_slots(tmp_path, example):
    checkpoint(tmp_path)
    answers = []
    for batch in (1, 2):
        model = example.MtpModel(
            compile_package(tmp_path / "hf", tmp_path / f"{batch}", quant="float16", mtp=True, batch=batch, **SIZES)
        )
        stats = {"runs": 0, "proposed": 0, "accepted": 0}
        answers.append([*model.generate(tokens_of(20, 1), (), 20, stats), stats])
    assert answers[0] == answers[1]


@pytest.mark.parametrize("form", [{"split_conv": True}, {"split_conv": True, "recurrent_in_place": True}], ids="-".join)
def test_other_forms_of_states_give_the_same_answers(tmp_path, example, form):
    checkpoint(tmp_path)
    options = {"quant": "float16", "mtp": True, **SIZES}
    usual = compile_package(tmp_path / "hf", tmp_path / "usual", **options)
    other = compile_package(tmp_path / "hf", tmp_path / "other", **options, **form)
    answers = []
    for package in (usual, other):
        model, stats = example.MtpModel(package), {"runs": 0, "proposed": 0, "accepted": 0}
        answers.append([list(model.generate(tokens_of(n, n), (), 20, stats)) for n in (20, 33)] + [stats])
    assert answers[0] == answers[1]
    assert "conv_cache_out_v_2_4" in model.verify.outputs
    assert ("recurrent_state_out_0" in model.prefill.outputs) == ("recurrent_in_place" not in form)


@pytest.mark.parametrize("form", [{}, {"split_conv": True, "recurrent_in_place": True}], ids=["usual", "other"])
def test_strict_mode_knows_which_state_goes_on(tmp_path, example, form):
    """It is silent in the example's flow, and reports the state after another token than the last accepted one."""
    checkpoint(tmp_path)
    package = compile_package(tmp_path / "hf", tmp_path / "out", quant="float32", mtp=True, **SIZES, **form)
    loaded = LoadedPackage(compile_package(tmp_path / "hf", tmp_path / "plain", quant="float32", **SIZES))
    want = list(loaded.generate(tokens_of(20, 1), Sampler(), 20, ()))
    layers.enable("strict", mode="error")
    try:
        model = example.MtpModel(package)
        for _ in range(2):
            token, hidden = model.start(tokens_of(20, 1))
            at = 1
            for right in (4, 0, 2):
                model.propose(token, hidden, 4)  # writes the layer's rows; what it guesses does not matter
                proposed = [*want[at : at + right], *[(want[at + right] + 1) % 331] * (4 - right)]
                accepted, token, hidden = model.judge(token, proposed)
                assert accepted == right
                at += 1 + accepted
        model.verify.take_states(model.verify, "_4")
        with pytest.raises(StrictError, match=r"S-208.* holds the state after 31 tokens, but 'valid_length' is 29"):
            model.judge(token, want[at : at + 4])
    finally:
        layers.disable("strict")
        layers.take_findings()


@pytest.mark.parametrize("quant", ["float32", "w4a8h0_ssfp"])
def test_a_generator_answers_as_without_the_layer(tmp_path, quant):
    """Also where a conversation goes on: behind an answer, and with another prompt."""
    checkpoint(tmp_path)
    with_layer = LoadedPackage(compile_package(tmp_path / "hf", tmp_path / "out", quant=quant, mtp=True, **SIZES))
    plain = LoadedPackage(compile_package(tmp_path / "hf", tmp_path / "plain", quant=quant, **SIZES))
    first, second = tokens_of(20, 1), tokens_of(9, 2)
    for model in (with_layer, plain):
        model.answers = [list(model.generate(first, Sampler(), 7, ()))]
        model.answers.append(list(model.generate([*first, *model.answers[0][:-1], *second], Sampler(), 7, ())))
        assert model.stats.reused_tokens == 26
        model.answers.append(list(model.generate(second, Sampler(), 7, ())))
        assert model.stats.reused_tokens == 0
    assert with_layer.answers == plain.answers


def test_the_layer_guesses_as_the_example_does(made, example):
    """Until guesses are accepted: the example keeps their rows, the engine writes them again with true states."""
    model, slots = example.MtpModel(made[2]), Slots.open(made[2])
    layer = MtpLayer.open(made[2], slots)
    layer.margin = 0
    for seed in (1, 2):
        prompt = tokens_of(20, seed)
        token, hidden = model.start(prompt)
        slots.tokens[0] = []
        for begin in (0, 16):
            slots.prefill(0, prompt[begin : begin + 16])
        for _ in range(3):
            wanted = model.propose(token, hidden, T - 1)
            assert layer.propose([*slots.tokens[0], token], T - 1) == wanted
            wrong = [(guess + 1) % 331 for guess in wanted]
            slots.verify(0, [token, *wrong])
            _, following, hidden = model.judge(token, wrong)
            del slots.tokens[0][model.cached :]
            token = following


def test_bench_counts_tokens_of_decode_as_guesses(made, monkeypatch, known_limits):
    package = made[2]
    timings = measure_package(package.folder, quick=True).timings
    assert [timing.title for timing in timings] == ["prefill 16", f"verify {T}"]
    titles = [time.title for time in model_package(package.folder)]
    assert set(titles) == {"prefill 16", f"verify {T}"}
    monkeypatch.setenv("TCIM_LITE_STRICT", "error")
    with pytest.raises(ArgumentError, match="unset TCIM_LITE_STRICT"):
        measure_package(package.folder, quick=True)
