"""MiniCPM-o 2.6: all its graphs against models of transformers and blocks with the same weights."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import numpy as np
import pytest

import tcim_lite.runtime as rt
from tcim_lite.models.checkpoints.checkpoint import Checkpoint
from tcim_lite.models.common.errors import CompileError, CompileWarning
from tcim_lite.models.compiler import CompileOptions, compile_checkpoint
from tcim_lite.models.onnx import onnx_bytes
from tcim_lite.models.speech import minicpmo_networks as networks

pytestmark = pytest.mark.oracle
torch = pytest.importorskip("torch", reason="the oracle")
transformers = pytest.importorskip("transformers", reason="the oracle")
from minicpm import places_of, positions_of
from minicpmo_checkpoint import AUDIO, CODES, HEADS, QUERIES, SPEECH, TEXT_TOKENS, TOWER, VOCABULARY, WIDTH, Oracle
from oracle import assert_close, logit_bound

NAME, CHUNK, ROWS, PATCHES = "minicpmo-7b", 16, 64, 64
# The bound of docs/numerics.md for float32; the others are those of the encoder of Qwen3-ASR.
QUANTS = [("float32", None), ("float16", 5e-3), ("w8a8h1_sefp", 0.1)]
HIDDEN = -65504.0


@pytest.fixture(scope="module")
def oracle():
    return Oracle()


@pytest.fixture(scope="module")
def checkpoint(oracle, tmp_path_factory):
    return oracle.save(tmp_path_factory.mktemp("omni"))


def compiled(checkpoint: Path, output: Path, **options) -> Path:
    options = {"name": NAME, "prefill_length": CHUNK, "context_length": ROWS, "vision": str(PATCHES), **options}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*tokenizer")
        compile_checkpoint(CompileOptions(checkpoint=checkpoint, output=output, **options))
    return output


@pytest.fixture(scope="module", params=QUANTS, ids=[quant for quant, _ in QUANTS])
def package(request, checkpoint, tmp_path_factory):
    """A package and the bound of what its graphs give."""
    quant, limit = request.param
    options = {"vision_quant": quant} if quant == "float32" else {}
    return compiled(checkpoint, tmp_path_factory.mktemp("package"), quant=quant, **options), limit


class Pair:
    """A prefill and a decode graph with shared caches, as the vendor's demo calls them."""

    def __init__(self, folder: Path, part: str) -> None:
        manager = rt.WeightManager(0)
        self.prefill = rt.load(folder / f"{NAME}_{part}_prefill.hmm", rt.Option(manager))
        caches = [name for name, _ in ports(self.prefill)[0] if "cache" in name]
        option = rt.Option(manager)
        option.set_dummy_tensors(caches)
        self.decode = rt.load(folder / f"{NAME}_{part}_decode.hmm", option)
        for name in caches:
            self.decode.set_input(name, self.prefill.get_input(name))
        self.decode.set_input("current_length", np.array([1], np.int32))

    def run(self, rows: np.ndarray, valid: int, mask: np.ndarray | None = None) -> list[np.ndarray]:
        """By prefill where there are several rows."""
        module = self.decode if rows.shape[1] == 1 else self.prefill
        padded = np.zeros(module.get_input_info("input_1").shape, np.float32)
        padded[:, : rows.shape[1]] = rows
        given = {"input_1": padded, "valid_length": np.array(valid, np.int32)}
        if rows.shape[1] > 1:
            given["current_length"] = np.array(rows.shape[1], np.int32)
        if mask is not None:
            given["attention_mask"] = mask
        return run(module, **given)


def run(module: rt.Module, **inputs: np.ndarray) -> list[np.ndarray]:
    for name, values in inputs.items():
        module.set_input(name, values.astype(np.dtype(module.get_input_info(name).dtype)))
    module.run(True)
    return [module.get_output(name).numpy().astype(np.float32) for name, _ in ports(module)[1]]


def ports(module: rt.Module) -> tuple[list, list]:
    """Names and shapes of inputs and outputs."""
    inputs = [module.get_input_info(module.get_input_name(at)) for at in range(module.get_num_inputs())]
    outputs = [module.get_output_info(module.get_output_name(at)) for at in range(module.get_num_outputs())]
    return tuple([(info.name, tuple(info.shape)) for info in infos] for infos in (inputs, outputs))


def drawn(seed: int, *shape: int) -> torch.Tensor:
    """Numbers that float16 holds."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).half().float()


def test_graphs_and_tables_are_those_that_the_demo_opens(oracle, checkpoint, tmp_path):
    folder = compiled(checkpoint, tmp_path, quant="float16")
    width, layers = SPEECH["hidden_size"], range(SPEECH["num_hidden_layers"])
    lengths = [("valid_length", (1,)), ("current_length", (1,))]

    def caches(count, *shape):
        return [(f"model_layers_{i}_self_attn_{kind}cache_input", (1, *shape)) for kind in "kv" for i in range(count)]

    expected = {}
    for stage, rows in (("prefill", CHUNK), ("decode", 1)):
        inputs = [("input_1", (1, rows, WIDTH)), *lengths, *caches(2, 2, ROWS, 64)]
        outputs = [("logits", (1, 1, VOCABULARY)), ("hidden_state", (1, rows, width))]
        expected[f"llm_{stage}"] = (inputs, outputs)
    for stage, rows in (("prefill", 12), ("decode", 1)):
        mask = ("attention_mask", (1, 1, 1, 2048))
        inputs = [("input_1", (1, rows, width)), *lengths, mask, *caches(len(layers), 2, 2048, 64)]
        expected[f"tts_{stage}"] = (inputs, [("logits", (1, 1, CODES, HEADS))])
    strip = [("pixel_values", (1, 3, 6, 6 * PATCHES)), ("position_ids", (1, PATCHES))]
    masks = [("resampler_pos_embed", (PATCHES, 1, WIDTH)), ("resampler_key_padding_mask", (1, PATCHES))]
    strip = [*strip, ("attention_mask", (1, 1, PATCHES, PATCHES)), *masks]
    expected["visual"] = (strip, [("hidden_state", (1, QUERIES, WIDTH))])
    heard = [("input_features", (1, 20, 80)), ("audio_attention_mask", (1, 1, 40, 40))]
    expected["audio"] = (heard, [("audio_embeds", (1, 20, WIDTH))])
    expected["dvae_part1"] = ([("indice", (1, 4, 1024))], [("feature", (1, 16, 1024, 2))])
    mask = ("mask", (1, 1, 2048))
    expected["dvae_part2"] = ([("feature", (1, 16, 2048)), mask], [("output", (1, 10, 2048))])
    spectrum = [(name, (1, 9, 2048)) for name in ("x", "y", "mag")]
    expected["vocos"] = ([("features", (1, 10, 2048)), mask], spectrum)
    found = {path.stem.removeprefix(f"{NAME}_"): ports(rt.load(path)) for path in folder.glob("*.hmm")}
    assert found == expected

    tables = {"": oracle.language.model.embed_tokens, "_tts": oracle.text}
    tables |= {f"_tts_code_{number}": table for number, table in enumerate(oracle.codes)}
    for name, table in tables.items():
        got = torch.load(folder / "hmquant" / f"quant_embedding{name}.pt", weights_only=False)
        assert torch.equal(got, table.weight.detach().half()), name


def test_the_language_model_is_a_qwen2_that_also_says_in_which_voice(oracle, package):
    folder, limit = package
    pair, limit = Pair(folder, "llm"), limit or logit_bound(oracle.language.config)
    rows = drawn(1, 1, 40, WIDTH) * 0.2
    with torch.no_grad():
        out = oracle.language(inputs_embeds=rows, output_hidden_states=True)
        voices = torch.nn.functional.normalize(oracle.speaker(out.hidden_states[-1]), dim=-1)[0].numpy()
    for first, stop in ((0, 16), (16, 32), (32, 35), *((at, at + 1) for at in range(35, 40))):
        logits, hidden = pair.run(rows[:, first:stop].numpy(), first)
        assert_close(logits[0, 0], out.logits[0, stop - 1].numpy(), limit, f"logits of row {stop - 1}")
        assert_close(hidden[0, : stop - first], voices[first:stop], limit, f"rows {first} to {stop}")


def test_the_model_of_speech_sees_what_the_mask_says(oracle, package):
    """As in the demo: text comes by and by, ten tokens at a time that see each other, and codes lie far behind it."""
    folder, limit = package
    limit = limit or logit_bound(oracle.speech.config)
    behind, reserved = 60, 50
    steps = [(0, 12), *((at, at + 1) for at in range(behind, behind + 3)), (12, 22), (behind + 3, behind + 4), (22, 25)]
    steps += [(behind + 4, behind + 5)]
    rows, positions, seen = [], [], []
    written: list[int] = []
    for number, (first, stop) in enumerate(steps):
        rows.append(drawn(number, 1, stop - first, SPEECH["hidden_size"]) * 0.3)
        written += range(first, stop)
        is_text = stop - first > 1
        # A code does not see the token before the first code, not even that token itself.
        visible = [at for at in written if at < stop and (at < reserved or (not is_text and at != behind))]
        seen += [visible] * (stop - first)
        positions += range(first, stop)
    order = np.array(positions)
    mask = np.full((len(order), len(order)), HIDDEN)
    for row, visible in enumerate(seen):
        mask[row, np.isin(order, visible)] = 0
    with torch.no_grad():
        given = torch.tensor(mask[None, None], dtype=torch.float32)
        want = oracle.speak(torch.cat(rows, 1), torch.tensor(order)[None], given).numpy()
    pair, done = Pair(folder, "tts"), 0
    for (first, stop), part in zip(steps, rows, strict=True):
        own = np.full((1, 1, 1, 2048), HIDDEN)
        own[..., seen[done]] = 0
        (logits,) = pair.run(part.numpy(), first, own)
        done += stop - first
        assert_close(logits[0, 0], want[done - 1], limit, f"tokens {first} to {stop}")


def test_the_encoder_of_sounds_is_whispers_behind_a_mask(oracle, package):
    folder, limit = package
    features, length = drawn(3, 1, 20, 80), 30
    chunks = np.arange(40) // 10
    mask = np.where((chunks[None] <= chunks[:, None]) & (np.arange(40) < length), 0.0, -np.inf)[None, None]
    with torch.no_grad():
        want = oracle.hear(features, torch.tensor(mask, dtype=torch.float32)).numpy()
    (got,) = run(rt.load(folder / f"{NAME}_audio.hmm"), input_features=features.numpy(), audio_attention_mask=mask)
    assert_close(got[0, : length // 2], want[: length // 2], limit or 2e-5, "rows of the sound")
    assert_close(got[0], want, limit or 2e-5, "all rows")


@pytest.mark.parametrize(("rows", "columns"), [(8, 8), (4, 12), (7, 3)])
def test_the_tower_takes_masks_as_torchs_attention_does(oracle, package, rows, columns):
    folder, limit = package
    count = rows * columns
    pixels = drawn(rows, 3, 6 * rows, 6 * columns).clamp(-1, 1)
    with torch.no_grad():
        want = oracle.resampler([oracle.tower(pixels)], [(rows, columns)], [None]).numpy()
    strip = np.zeros((1, 3, 6, PATCHES, 6), np.float32)
    strip[0, :, :, :count] = (
        pixels.numpy().reshape(3, rows, 6, columns, 6).transpose(0, 2, 1, 3, 4).reshape(3, 6, count, 6)
    )
    live = np.arange(PATCHES) < count
    ids = np.zeros((1, PATCHES))
    ids[0, :count] = positions_of(rows, columns, TOWER["image_size"] // TOWER["patch_size"])
    places = np.zeros((PATCHES, 1, WIDTH))
    places[:count, 0] = places_of(rows, columns, WIDTH)
    (got,) = run(
        rt.load(folder / f"{NAME}_visual.hmm"),
        pixel_values=strip.reshape(1, 3, 6, -1),
        position_ids=ids,
        attention_mask=np.broadcast_to(np.where(live, 0.0, HIDDEN), (1, 1, PATCHES, PATCHES)),
        resampler_pos_embed=places,
        resampler_key_padding_mask=np.where(live, 0.0, -np.inf)[None],
    )
    assert_close(got[0], want, limit or 1e-4, "tokens of the image")


@pytest.mark.parametrize(("quant", "limit"), [("float32", 2e-5), ("float16", 2e-2)])
@pytest.mark.parametrize("length", [24, 9])
def test_codes_become_sound(oracle, checkpoint, quant, limit, length):
    """Frames behind the sound are masked, so it is as if they were not there."""
    frames, tensors = 24, Checkpoint(checkpoint)
    makers = (networks.features_of_codes, networks.mel_of_features)
    first, second = (rt.load(onnx_bytes(make(tensors, frames), quant)) for make in makers)
    third = rt.load(onnx_bytes(networks.spectrum_of_mel(Checkpoint(checkpoint / "assets/vocos"), frames), quant))
    codes = torch.randint(0, 625, (1, 4, length), generator=torch.Generator().manual_seed(length))
    with torch.no_grad():
        features, mel = oracle.dvae.features(codes), oracle.dvae(codes)
        spectrum = oracle.vocos(mel)
    mask = (np.arange(2 * frames) < 2 * length).astype(np.float32)[None, None]

    def padded(x):
        return np.pad(x, ((0, 0), (0, 0), (0, 2 * frames - x.shape[2])))

    given = np.zeros((1, 4, frames))
    given[..., :length] = codes.numpy()
    (found,) = run(first, indice=given)
    assert_close(found[:, :, :length], features.numpy(), limit, "features")
    flat = features.flatten(2).numpy()
    (found,) = run(second, feature=padded(flat), mask=mask)
    assert_close(found[..., : 2 * length], mel.numpy(), limit, "mel features")
    found = run(third, features=padded(mel.numpy()), mask=mask)
    for name, got, want in zip(("x", "y", "mag"), found, spectrum, strict=True):
        assert_close(got[..., : 2 * length], want.numpy(), limit, name)


def test_a_checkpoint_without_its_vocoder_gives_the_other_graphs(oracle, tmp_path):
    folder = oracle.save(tmp_path / "hf", vocoder=False)
    with pytest.warns(CompileWarning, match=r"vocos does not exist, so minicpmo-7b_vocos.hmm is left out; save"):
        compiled(folder, tmp_path / "out", quant="float16")
    assert not (tmp_path / "out" / f"{NAME}_vocos.hmm").exists()
    assert len(list((tmp_path / "out").glob("*.hmm"))) == 8
    oracle.save(folder)
    compiled(folder, tmp_path / "out", quant="float16", self_contained=True, vision=None)
    assert not list((tmp_path / "out").glob("*.hmw"))
    assert len(list((tmp_path / "out").glob("*.hmm"))) == 8  # the vocoder, and no tower


@pytest.mark.parametrize(
    ("changes", "options", "message"),
    [
        ({"version": 4.5}, {}, "version=4.5 is not supported; of MiniCPM-o this compiler takes 2.6"),
        ({"tts_config": None}, {}, "tts_config must be an object, got None"),
        ({"tts_config": {"num_vq": 8}}, {}, "num_vq=8 is not supported; the model of speech of MiniCPM-o"),
        ({"audio_config": 3}, {}, "audio_config must be an object, got 3"),
        ({"audio_config": {**AUDIO, "encoder_attention_heads": 3}}, {}, "d_model=128 is not a multiple of"),
        ({"audio_pool_step": 3}, {}, "audio_pool_step=3 does not divide the 40 rows"),
        ({"tie_word_embeddings": True}, {}, "tie_word_embeddings=True is not supported; MiniCPM-o"),
        ({}, {"batch": 2}, "--batch: the graphs of MiniCPM-o are those of the vendor, for one sequence"),
        ({"tts_config": {"num_text_tokens": TEXT_TOKENS}}, {}, r"expected \[768"),
    ],
)
def test_what_cannot_be_is_refused(checkpoint, tmp_path, changes, options, message):
    config = {**json.loads((checkpoint / "config.json").read_text()), **changes}
    for path in checkpoint.glob("*.safetensors"):
        (tmp_path / path.name).symlink_to(path)
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(CompileError, match=message):
        compiled(tmp_path, tmp_path / "out", **options)
