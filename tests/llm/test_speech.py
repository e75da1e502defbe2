"""Whisper: its graphs against transformers, through the example's own host code."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from isas import printed_by_isa
from speech_host import answered, example
from whisper_models import SIZES, bound, compiled, random_model, sound

import tcim_lite.runtime as rt
from tcim_lite.bench import measure_network, measure_package, model_package
from tcim_lite.errors import ArgumentError, UnsupportedError
from tcim_lite.hmm import read
from tcim_lite.llm.sounds import log_mel

pytestmark = pytest.mark.oracle
torch = pytest.importorskip("torch", reason="the oracle")
transformers = pytest.importorskip("transformers", reason="the oracle")

# Least cosine of all logits; their float32 bound is that of docs/numerics.md section 9.
COSINES = {"float16": 0.99999, "w8a8h1_sefp": 0.999, "w4a8h0_ssfp": 0.97, "mxfp4a8": 0.95}


@pytest.fixture(scope="module", params=SIZES)
def made(request, tmp_path_factory):
    """A model of transformers and its folder."""
    model, folder = random_model(**SIZES[request.param]), tmp_path_factory.mktemp(request.param)
    model.save_pretrained(folder)
    return model, folder


@pytest.fixture(scope="module")
def even(tmp_path_factory):
    model, folder = random_model(), tmp_path_factory.mktemp("model")
    model.save_pretrained(folder)
    return model, folder


def expected(model, features: np.ndarray, tokens: list[int]) -> tuple[list[np.ndarray], np.ndarray]:
    with torch.no_grad():
        given = torch.tensor(features)
        hidden, sounds = model.model.encoder(given).last_hidden_state, []
        for layer in model.model.decoder.layers:
            attention = layer.encoder_attn
            for project in (attention.k_proj, attention.v_proj):
                heads = project(hidden).unflatten(2, (attention.num_heads, attention.head_dim))
                sounds.append(heads.transpose(1, 2).numpy())
        logits = model(input_features=given, decoder_input_ids=torch.tensor([tokens])).logits
    return sounds, logits[0].numpy()


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    a, b = a.astype(np.float64).ravel(), b.astype(np.float64).ravel()
    return a @ b / np.linalg.norm(a) / np.linalg.norm(b)


def test_float32_agrees_with_transformers(made, tmp_path):
    model, folder = made
    sounds, logits, tokens = answered(compiled(folder, tmp_path, quant="float32"), sound(model.config))
    wanted, reference = expected(model, sound(model.config), tokens)
    for got, want in zip([*sounds, logits], [*wanted, reference], strict=True):
        assert got.shape == want.shape
        assert np.abs(got - want).max() <= bound(model.config) * np.abs(want).max()


@pytest.mark.parametrize("quant", COSINES)
def test_other_formats_are_near_transformers(even, tmp_path, quant):
    model, folder = even
    _, logits, tokens = answered(compiled(folder, tmp_path, quant=quant), sound(model.config))
    assert cosine(logits, expected(model, sound(model.config), tokens)[1]) > COSINES[quant]


def test_inputs_and_outputs_are_the_vendors(even, tmp_path):
    _, folder = even
    package = compiled(folder, tmp_path)
    encoder, prefill, decode = (rt.load(tmp_path / f"whisper_{stage}.hmm") for stage in ("encode", "prefill", "decode"))

    def ports(module, way):
        count = getattr(module, f"get_num_{way}s")()
        infos = [getattr(module, f"get_{way}_info")(getattr(module, f"get_{way}_name")(i)) for i in range(count)]
        return [(tuple(info.shape), np.dtype(info.dtype).name) for info in infos]

    cross, own = ((1, 2, 50, 64), "float16"), ((1, 2, 1024, 64), "float16")
    assert ports(encoder, "input") == [((1, 80, 100), "float16")]
    assert ports(encoder, "output") == [cross] * 4
    names = [encoder.get_output_name(i) for i in range(4)]
    assert names == ["key_state_0", "value_state_0", "key_state_1", "value_state_1"]
    for module, tokens in ((prefill, 4), (decode, 1)):
        ids, length = ((1, tokens), "int32"), ((1,), "int32")
        masks = [((1, 2, tokens, 1024), "float16"), ((1, 1, 1, 50), "float16")]
        assert ports(module, "input") == [ids, ids, length, length, *masks, *[own] * 4, *[cross] * 4]
        assert ports(module, "output") == [((1, tokens, 320), "float16"), *[own] * 4]
        assert [module.get_output_name(i) for i in range(5)] == [
            "logits",
            *(f"new{kind}_cache_{layer}" for kind in "kv" for layer in range(2)),
        ]
    message = json.loads(read(package.decode_path).custom_msg)
    assert (message["model_type"], message["prefill_length"], message["context_length"]) == ("whisper", 4, 1024)


def test_caches_have_as_many_rows_as_the_vendors(tmp_path):
    """Its program of large-v3-turbo, with hidden states of 1280, makes masks of 1280 columns."""
    wide = {**SIZES["even"], "d_model": 1280, "encoder_layers": 1, "decoder_layers": 1, "model_type": "whisper"}
    (tmp_path / "config.json").write_text(json.dumps({**wide, "architectures": ["WhisperForConditionalGeneration"]}))
    for context, rows in ((2048, 1280), (96, 96)):
        compiled(tmp_path, tmp_path / "out", random_weights=True, context_length=context)
        decode = rt.load(tmp_path / "out" / "whisper_decode.hmm")
        assert decode.get_input_info("mask_attn").shape == (1, 2, 1, rows)
        assert decode.get_input_info("k_cache_0").shape[2] == rows


def test_prefill_and_decode_share_their_weights(even, tmp_path):
    _, folder = even
    package, weights = compiled(folder, tmp_path), rt.WeightManager(0)
    weight_bytes = [entry.name for entry in read(package.prefill_path).weights]
    shared = {entry.name for entry in read(package.decode_path).weights} & set(weight_bytes)
    assert len(weight_bytes) - len(shared) <= 1  # which token is which
    for path in (package.prefill_path, package.decode_path):
        rt.load(path, option=rt.Option(weights))


def test_a_token_sees_what_its_mask_shows_and_padding_writes_nothing(even, tmp_path):
    """A prefill of one live token is decode's; what lies in hidden rows does not matter."""
    model, folder = even
    package = compiled(folder, tmp_path, quant="float32", context_length=256)
    host = example("speech_recognition").SpeechModel(package)
    host.hear(sound(model.config))
    alone = host.run(host.decode, [5], 0)[0].copy()
    name = host.prefill.get_output_name(1)
    before = host.prefill.get_output(name).numpy().copy()
    host.run(host.prefill, [5, 6, 6, 6], 0)
    whole = host.prefill.get_output(name).numpy().copy()
    assert (whole[:, :, 1:4] != before[:, :, 1:4]).all()
    host.decode.set_input(host.names[6], np.full(before.shape, -65504, np.float32))
    host.prefill.set_input(host.names[3], np.array([1], np.int32))
    host.prefill.run()
    host.prefill.sync()
    after = host.prefill.get_output(name).numpy()
    assert (after[:, :, 1:] == -65504).all()
    np.testing.assert_array_equal(after[:, :, 0], whole[:, :, 0])
    np.testing.assert_array_equal(host.prefill.get_output("logits").numpy()[0, 0], alone)


_BITS = """
import sys, hashlib, numpy as np
tests, llm, folder, features = sys.argv[1:]
sys.path[:0] = [tests, llm]
from tcim_lite.llm import Package
import speech_host
sounds, logits, tokens = speech_host.answered(Package.open(folder), np.load(features), 6)
print(hashlib.sha256(b"".join(part.tobytes() for part in [*sounds, logits])).hexdigest())
"""


@pytest.mark.slow
@pytest.mark.parametrize("quant", ["w8a8h1_sefp", "float16", "float32"])
def test_bits_do_not_depend_on_instruction_sets_or_threads(even, tmp_path, quant):
    model, folder = even
    compiled(folder, tmp_path / "out", quant=quant, context_length=256)
    np.save(tmp_path / "features.npy", sound(model.config))
    here = Path(__file__).parent
    assert len(printed_by_isa(_BITS, here.parent, here, tmp_path / "out", tmp_path / "features.npy")) == 1


@pytest.mark.parametrize("rows", [4, 100])
def test_caches_may_be_shorter_than_a_chunk_of_language_models(even, tmp_path, rows):
    model = example("speech_recognition").SpeechModel(compiled(even[1], tmp_path, context_length=rows))
    assert model.rows == rows


def test_graphs_of_another_model_of_the_name_go(even, tmp_path):
    """They would stand beside weights that are not theirs."""
    names = (
        "a_verify.hmm",
        "a_visual.hmm",
        "a_visual.hmw",
        "a_encode.hmw",
        "a_encoder.hmm",
        "a_prefill_mtp.hmm",
        "a_draft.hmw",
    )
    for name in (*names, "b_verify.hmm", "ab.hmw"):
        (tmp_path / name).touch()
    compiled(even[1], tmp_path, name="a")
    ours = {"a_encode.hmm", "a_encode_keys_first.hmm", "a_prefill.hmm", "a_decode.hmm", "a.hmw"}
    assert {path.name for path in tmp_path.glob("*.hm[mw]")} == ours | {"b_verify.hmm", "ab.hmw"}


def test_features_of_another_length_are_refused(even, tmp_path):
    package = compiled(even[1], tmp_path)
    host = example("speech_recognition").SpeechModel(package)
    with pytest.raises(ValueError, match=r"100"):
        host.hear(np.zeros((1, 80, 99), np.float16))


def test_random_weights_need_a_config_alone(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "whisper", **SIZES["even"]}))
    package = compiled(tmp_path / "config.json", tmp_path / "out", random_weights=True)
    assert np.isfinite(answered(package, np.zeros((1, 80, 100), np.float32), 2)[1]).all()


def test_log_mel_is_that_of_transformers():
    rng = np.random.default_rng(4)
    for bins, length in ((80, 70000), (128, 500000), (80, 0)):
        samples = rng.standard_normal(length).astype(np.float32) * 0.1
        extractor = transformers.WhisperFeatureExtractor(feature_size=bins)
        want = extractor(samples, sampling_rate=16000, return_tensors="np").input_features
        got = log_mel(samples, bins, 3000)
        assert got.shape == want.shape
        assert np.abs(got - want).max() < 1e-4


def test_bench_measures_one_graph_at_a_time(even, tmp_path, known_limits):
    compiled(even[1], tmp_path)
    for measure in (measure_package, model_package):
        with pytest.raises((ArgumentError, UnsupportedError), match=r"such as PACKAGE/whisper_encode\.hmm"):
            measure(tmp_path)
    for stage in ("encode", "prefill", "decode"):
        assert measure_network(tmp_path / f"whisper_{stage}.hmm", quick=True).timings[0].seconds > 0
