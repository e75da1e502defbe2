"""Fun-Audio-Chat: its graphs from speech to text against Qwen3 and layers of Whisper, with the same weights."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tcim_lite.runtime as rt
from tcim_lite.llm import load_pair, mask_names, run_graph
from tcim_lite.models.common.errors import CompileError
from tcim_lite.models.compiler import CompileOptions, compile_checkpoint

pytestmark = pytest.mark.oracle
torch = pytest.importorskip("torch", reason="the oracle")
pytest.importorskip("transformers", reason="the oracle")
from funaudiochat import CHUNK, CHUNKS, FRAMES, HIDDEN, NAME, QUANTS, ROWS, TEXT, WIDTH, Oracle, compiled, ports, run
from oracle import assert_close, logit_bound


@pytest.fixture(scope="module")
def oracle():
    return Oracle()


@pytest.fixture(scope="module", params=QUANTS, ids=[quant for quant, _ in QUANTS])
def package(request, oracle, tmp_path_factory):
    folder = tmp_path_factory.mktemp("chat")
    quant, limit = request.param
    return compiled(oracle.save(folder / "hf"), folder / "out", quant=quant), limit


def test_the_language_model_returns_all_rows_and_what_the_head_read(oracle, package):
    folder, limit = package
    limit = limit or logit_bound(oracle.language.config)
    prefill, decode = (rt.load(folder / f"{NAME}_{stage}.hmm") for stage in ("prefill", "decode"))
    caches = [name for name in ports(prefill) if "model_layers" in name]
    for name in caches:
        decode.set_dev_input(name, prefill.get_dev_input(name))
    rows = torch.tensor(np.random.default_rng(1).standard_normal((1, 14, WIDTH)) * 0.2, dtype=torch.float32)
    with torch.no_grad():
        out = oracle.language(inputs_embeds=rows, output_hidden_states=True)
    for first, stop in ((0, 11), (11, 12), (12, 13), (13, 14)):
        module, tokens = (decode, 1) if first else (prefill, CHUNK)
        given = np.zeros((1, tokens, WIDTH), np.float32)
        given[0, : stop - first] = rows[0, first:stop]
        mask = np.zeros((1, 1, tokens, ROWS))
        mask[..., stop:] = HIDDEN
        logits, hidden = run(
            module, input_1=given, attention_mask=mask, valid_length=[first], current_length=[stop - first]
        )
        assert logits.shape == (1, tokens, TEXT["vocab_size"])
        assert hidden.shape == (1, tokens, WIDTH)
        assert_close(logits[0, : stop - first], out.logits[0, first:stop].numpy(), limit, f"logits from {first}")
        want = out.hidden_states[-1][0, first:stop].numpy()
        assert_close(hidden[0, : stop - first], want, limit, f"hidden states from {first}")
    assert [decode.get_output_name(i) for i in range(2)] == ["logits", "last_hidden_state"]


def language(folder: Path) -> tuple[rt.Module, rt.Module]:
    """The graphs of a package, with one set of caches."""
    return load_pair(
        folder / f"{NAME}_prefill.hmm", folder / f"{NAME}_decode.hmm", rt.WeightManager(rt.DevManager([0]))
    )


def say(pair: tuple[rt.Module, rt.Module], rows: np.ndarray, masks: np.ndarray) -> np.ndarray:
    """Logits of all `rows` [1, n, H], the last two in runs of their own; `masks` [n, ROWS] of what each hides."""
    found, last = [], rows.shape[1]
    for first, stop in ((0, last - 2), (last - 2, last - 1), (last - 1, last)):
        module, tokens = (pair[1], 1) if first else (pair[0], CHUNK)
        given, mask = np.zeros((1, tokens, WIDTH)), np.zeros((1, 1, tokens, ROWS))
        given[0, : stop - first], mask[0, 0, : stop - first] = rows[0, first:stop], masks[first:stop]
        lengths = {"valid_length": [first], "current_length": [stop - first]}
        found.append(run(module, input_1=given, attention_mask=mask, **lengths)[0][0, : stop - first])
    return np.concatenate(found)


def test_the_mask_hides_besides_the_lengths(oracle, package):
    """Rows that a token does not see, and one that counts less, besides those behind it."""
    folder, limit = package
    limit = limit or logit_bound(oracle.language.config)
    random = np.random.default_rng(8)
    rows = random.standard_normal((1, 14, WIDTH)) * 0.2
    mask = np.where(random.random((14, ROWS)) < 0.4, HIDDEN, 0.0)
    mask[:, 3] = -1.5
    np.fill_diagonal(mask, 0.0)
    behind = np.triu(np.full((14, 14), HIDDEN), 1)
    of_torch = torch.tensor(np.where(behind < 0, HIDDEN, mask[:, :14])[None, None], dtype=torch.float32)
    with torch.no_grad():
        given = torch.tensor(rows, dtype=torch.float32)
        want, without = (
            oracle.language(inputs_embeds=given, attention_mask=given_mask, use_cache=False).logits[0].numpy()
            for given_mask in (of_torch, None)
        )
    pair = language(folder)
    assert_close(say(pair, rows, mask), want, limit, "with a mask")
    assert np.abs(want - without)[1:].max(axis=1).min() > 0.01  # a mask that is not read shows
    plain = say(pair, rows, np.zeros((14, ROWS)))
    assert_close(plain, without, limit, "with a mask of nothing")
    # As the demo's: rows behind the prompt are hidden, later tokens of the prompt are not.
    demo = np.zeros((14, ROWS))
    for token in range(14):
        demo[token, max(token + 1, 12) :] = HIDDEN
    assert say(pair, rows, demo).tobytes() == plain.tobytes()


def test_the_masks_of_tcim_lite_llm_hide_nothing_more(oracle, package):
    folder, _ = package
    rows = np.random.default_rng(9).standard_normal((1, 9, WIDTH)).astype(np.float32)
    prefill, _ = pair = language(folder)
    assert mask_names(prefill) == ["attention_mask"]
    padded = np.concatenate([rows, np.zeros((1, CHUNK - 9, WIDTH), np.float32)], 1)
    found = run_graph(prefill, padded.astype(prefill.get_input_info("input_1").dtype), 0, 7)[0, :7]
    assert found.astype(np.float32).tobytes() == say(pair, rows, np.zeros((9, ROWS)))[:7].tobytes()


@pytest.mark.parametrize("frames", [CHUNKS * FRAMES, 97, 40])
def test_the_encoder_hears_chunks_one_by_one(oracle, package, frames):
    """As the demo fills it: what is behind a sound is hidden as a key and multiplied by 0."""
    folder, limit = package
    module = rt.load(folder / f"{NAME}_audio_encoder.hmm")
    half, codes = FRAMES // 2, CHUNKS * FRAMES // 4
    assert ports(module) == {
        "speech_ids": (1, codes),
        "audio_inputs_embeds": (1, codes, WIDTH),
        "padded_input_features": (CHUNKS, 20, FRAMES),
        "chunk_padded_mask": (CHUNKS, 1, FRAMES),
        "aftercnn_valid_mask": (CHUNKS, half, 1),
        "audio_attention_mask": (1, 1, CHUNKS * half, CHUNKS * half),
        "continuous_audio_valid_mask": (1, codes, 1),
    }
    sound = torch.tensor(np.random.default_rng(2).standard_normal((20, frames)), dtype=torch.float32)
    chunks = list(sound.split(FRAMES, dim=1))
    features, of_frames = np.zeros((CHUNKS, 20, FRAMES)), np.zeros((CHUNKS, 1, FRAMES))
    of_rows, of_codes = np.zeros((CHUNKS, half, 1)), np.zeros((1, codes, 1))
    mask = np.full((1, 1, CHUNKS * half, CHUNKS * half), HIDDEN)
    for index, chunk in enumerate(chunks):
        count = chunk.shape[1]
        rows = (count + 1) // 2
        features[index, :, :count], of_frames[index, :, :count], of_rows[index, :rows] = chunk, 1, 1
        mask[..., index * half : index * half + rows, index * half : index * half + rows] = 0
        of_codes[:, index * half // 2 : index * half // 2 + rows // 2] = 1
    with torch.no_grad():
        heard = oracle.hear(chunks)
        padded = torch.zeros(codes, WIDTH)
        padded[: len(heard)] = heard  # only the last chunk is not full
        want = oracle.of_sound(padded.reshape(-1, 5, WIDTH).mean(1)).numpy()
    (got,) = run(
        module,
        padded_input_features=features,
        chunk_padded_mask=of_frames,
        aftercnn_valid_mask=of_rows,
        audio_attention_mask=mask,
        continuous_audio_valid_mask=of_codes,
    )
    assert got.shape == (1, codes // 5, WIDTH)
    assert_close(got[0], want, limit or 2e-5, f"{frames} frames")


def test_a_group_of_codes_becomes_a_row(oracle, package):
    folder, limit = package
    ids = np.array([[3, 66, 0, 3, 12]])
    with torch.no_grad():
        want = oracle.of_codes(oracle.codes(torch.tensor(ids)).mean(1)).numpy()
    (got,) = run(rt.load(folder / f"{NAME}_audio_tower.hmm"), speech_ids=ids)
    assert got.shape == (1, 1, WIDTH)
    assert_close(got[0], want, limit or 2e-5, "the row")


def test_tables_are_those_that_programs_read(oracle, package):
    folder, _ = package
    tables = {"quant_embedding": oracle.language.model.embed_tokens, "quant_audio_embedding": oracle.codes}
    for name, table in tables.items():
        got = torch.load(folder / "hmquant" / f"{name}.pt", weights_only=False)["weight"]
        assert torch.equal(got.half(), table.weight.detach().half()), name


@pytest.mark.parametrize(
    ("changes", "options", "message"),
    [
        ({"activation_function": "relu"}, {}, "activation_function='relu' is not supported"),
        ({"encoder_attention_heads": 3}, {}, "d_model=128 is not a multiple of encoder_attention_heads=3"),
        ({"output_dim": 192}, {}, "output_dim=192 must be the hidden_size=128 of text_config"),
        ({"n_window": 15}, {}, "n_window=15 must be even"),
        ({"encoder_layers": 3}, {}, "continuous_audio_tower.layers.2"),
        ({}, {"audio_frames": 60}, "--audio-frames 60: expected whole chunks of 40 frames"),
        ({"group_size": 7}, {}, "--audio-frames 120: expected whole chunks"),
        ({}, {"batch": 2}, "the graphs of Fun-Audio-Chat are those of the vendor, for one sequence"),
        ({}, {"vision": "448x448"}, "the graphs of Fun-Audio-Chat are those of the vendor"),
    ],
)
def test_what_cannot_be_is_refused(oracle, tmp_path, changes, options, message):
    folder = oracle.save(tmp_path / "hf", **changes)
    sizes = {"prefill_length": CHUNK, "context_length": ROWS, "audio_frames": CHUNKS * FRAMES}
    with pytest.raises(CompileError, match=message):
        compile_checkpoint(CompileOptions(checkpoint=folder, output=tmp_path / "out", **{**sizes, **options}))
    assert not (tmp_path / "out").exists()
