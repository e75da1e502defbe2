"""Qwen3-Omni: each graph against the part of the model in transformers that it stands for."""

from __future__ import annotations

import numpy as np
import pytest
import warm_python

import tcim_lite.runtime as rt
from tcim_lite.llm import Package, load_pair

pytestmark = pytest.mark.oracle
torch = pytest.importorskip("torch", reason="the oracle")
pytest.importorskip("transformers.models.qwen3_omni_moe", reason="the oracle has no Qwen3-Omni")
from oracle import assert_close, logit_bound
from qwen3_omni_checkpoint import GROUPS, PREDICTOR, TALKER, TEXT, random_omni
from qwen3_omni_package import CHUNK, NAME, compiled, names, prompted, results

# The bound of docs/numerics.md for float32; of codes that of the encoder of Qwen3-ASR. In float16 all but the hidden
# states behind experts are within half of this.
QUANTS = [("float32", None), ("float16", 1e-2), ("w8a8h1_sefp", 0.1)]


@pytest.fixture(scope="module")
def model():
    return random_omni()


@pytest.fixture(scope="module")
def folder(model, tmp_path_factory):
    path = tmp_path_factory.mktemp("omni")
    model.save_pretrained(path)
    return path


@pytest.fixture(scope="module", params=QUANTS, ids=[quant for quant, _ in QUANTS])
def package(request, folder, tmp_path_factory):
    """A package, and the bound that its results keep."""
    quant, limit = request.param
    return compiled(folder, tmp_path_factory.mktemp(quant), quant=quant, head_quant=None), limit


@pytest.fixture(scope="module")
def prompt(model):
    return prompted(model)


def test_the_image(package, prompt):
    output, limit = package
    module = rt.load(output / f"{NAME}_visual.hmm")
    assert tuple(module.get_input_info(module.get_input_name(0)).shape) == prompt["pixels"].shape
    module.set_input(module.get_input_name(0), prompt["pixels"])
    module.run(True)
    found = results(module)
    assert [each.shape for each in found] == [(1, 16, 192)] * 4
    for got, want in zip(found, prompt["seen"], strict=True):
        assert_close(got[0], want, limit or 2e-5, "the image")


def test_the_sound_in_chunks(package, prompt):
    output, limit = package
    module = rt.load(output / f"{NAME}_audio.hmm")
    assert [(name, tuple(module.get_input_info(name).shape)) for name in names(module)] == [
        ("padded_feature", (1, 20, 100)),
        ("cu_seqlens", (2,)),
    ]
    found = []
    for start, count in ((0, 13), (100, 8)):
        chunk = np.zeros((1, 20, 100), np.float32)
        part = prompt["sound"][:, start : start + 100]
        chunk[0, :, : part.shape[1]] = part
        module.set_input("padded_feature", chunk)
        module.set_input("cu_seqlens", np.array([0, count], np.int32))
        module.run(True)
        (rows,) = results(module)
        assert rows.shape == (13, 192)
        found.append(rows[:count])
    assert_close(np.concatenate(found), prompt["heard"], limit or 2e-5, "the sound")


def test_the_thinker_also_returns_hidden_states_of_a_layer(package, prompt):
    output, limit = package
    prefill, decode = load_pair(output / f"{NAME}_prefill.hmm", output / f"{NAME}_decode.hmm", rt.WeightManager(0))
    limit = limit or logit_bound(type("Sizes", (), TEXT))
    lengths = ["input_1", "time_position_ids", "height_position_ids", "width_position_ids", "valid_length"]
    assert Package.open(output).prefill_path == output / f"{NAME}_prefill.hmm"
    assert names(prefill)[:9] == [*lengths, "current_length", *(f"deepstack_image_embed_{index}" for index in range(3))]
    assert names(prefill)[9] == "model_layers_0_self_attn_kcache_input"
    stacks = [np.zeros_like(prompt["rows"]) for _ in range(3)]
    for stack, features in zip(stacks, prompt["seen"][1:], strict=True):
        stack[prompt["image"]] = features
    count = len(prompt["rows"])
    for first, last in ((0, 32), (32, 59), *((at, at + 1) for at in range(59, count))):
        module = decode if first >= 59 else prefill
        width = 1 if module is decode else CHUNK

        def padded(values, first=first, last=last, width=width):
            part = values[first:last]
            return np.concatenate((part, np.zeros((width - len(part), *part.shape[1:]), part.dtype)))

        places = padded(np.arange(count, dtype=np.int32))
        inputs = [padded(prompt["rows"])[None], places, places, places, np.array([first], np.int32)]
        inputs += [np.array([last - first], np.int32), *(padded(stack)[None] for stack in stacks)]
        for name, values in zip(names(module), inputs, strict=False):
            module.set_input(name, values)
        module.run(True)
        logits, hidden = results(module)
        assert logits.shape == (1, 1, 331)
        assert hidden.shape == (1, width, 192)
        assert_close(logits[0, 0], prompt["logits"][last - 1], limit, f"logits at {last - 1}")
        assert_close(hidden[0, : last - first], prompt["hidden"][first:last], limit, f"hidden states from {first}")


class Part:
    """A prefill and a decode graph with shared caches, fed by place, as the vendor's program does."""

    def __init__(self, folder, part: str) -> None:
        self.prefill = rt.load(folder / f"{NAME}_{part}_prefill.hmm")
        self.decode = rt.load(folder / f"{NAME}_{part}_decode.hmm")
        for name in names(self.decode):
            if "cache" in name:
                self.decode.set_input(name, self.prefill.get_input(name))

    def run(self, rows: list[np.ndarray], valid: int) -> list[np.ndarray]:
        """`rows` are what each input before the lengths takes, [T, ..]; by one row, in decode."""
        count = len(rows[0])
        module = self.decode if count == 1 else self.prefill
        for index, values in enumerate(rows):
            name = module.get_input_name(index)
            whole = np.zeros(module.get_input_info(name).shape, np.float32)
            whole[0, :count] = values
            module.set_input(name, whole)
        module.set_input(module.get_input_name(len(rows)), np.array([valid], np.int32))
        module.set_input(module.get_input_name(len(rows) + 1), np.array([count], np.int32))
        module.run(True)
        return results(module)


def drawn(seed: int, *shape: int) -> torch.Tensor:
    return (torch.randn(*shape, generator=torch.Generator().manual_seed(seed)) * 0.3).half().float()


def test_the_talker_chooses_between_projections_and_rows(package, model):
    output, limit = package
    limit = limit or logit_bound(type("Sizes", (), TALKER))
    part, talker, count = Part(output, "talker"), model.talker, 45
    assert names(part.prefill)[:6] == [
        *("hidden_state", "role_mask", "bypass_embeds", "bypass_mask", "valid_length", "current_length")
    ]
    source, handed = drawn(1, count, 192), drawn(2, count, 128)
    role, bypass = (torch.tensor(np.random.default_rng(seed).integers(0, 2, (count, 1))).float() for seed in (3, 4))
    bypass[-3:] = 1
    with torch.no_grad():
        made = torch.where(role > 0, talker.text_projection(source), talker.hidden_projection(source))
        rows = torch.where(bypass > 0, handed, made)
        hidden = talker.model(inputs_embeds=rows[None]).last_hidden_state
        want = talker.codec_head(hidden)[0].numpy(), hidden[0].numpy()
    inputs = [each.numpy() for each in (source, role, handed, bypass)]
    for first, last in ((0, 32), (32, 42), (42, 43), (43, 44), (44, 45)):
        got = part.run([each[first:last] for each in inputs], first)
        assert [each.shape for each in got] == [(1, 1, 131), (1, 1, 128)]
        for what, each, whole in zip(("logits", "hidden state"), got, want, strict=True):
            assert_close(each[0, 0], whole[last - 1], limit, f"{what} of row {last - 1}")


def test_the_predictor_adds_up_its_heads_and_hands_its_input_on(package, model):
    output, limit = package
    limit = limit or logit_bound(type("Sizes", (), PREDICTOR))
    part, predictor = Part(output, "talker_prediction"), model.talker.code_predictor
    assert names(part.prefill)[:4] == ["input_1", "head_mask", "valid_length", "current_length"]
    rows = drawn(5, GROUPS, 128)
    with torch.no_grad():
        hidden = predictor.model(inputs_embeds=rows[None]).last_hidden_state[0]
        heads = torch.stack([head(hidden) for head in predictor.lm_head], dim=1)  # [T, heads, V]
    masks = np.zeros((GROUPS, GROUPS - 1, 1), np.float32)
    for step in range(GROUPS - 1):
        masks[1 + step, step] = 1
    masks[GROUPS - 1, 0] = -0.5  # and a mask that is not one of ones
    masks[0] = 7  # that of a row without logits
    want = (heads.numpy() * masks).sum(1)
    for first, last in ((0, 2), *((at, at + 1) for at in range(2, GROUPS))):
        logits, handed = part.run([rows.numpy()[first:last], masks[first:last]], first)
        assert logits.shape == (1, 1, PREDICTOR["vocab_size"])
        assert_close(logits[0, 0], want[last - 1], limit, f"logits of row {last - 1}")
        assert np.array_equal(handed[0, 0], rows.numpy()[last - 1])


def test_text_is_projected_in_rows(package, model):
    output, limit = package
    module = rt.load(output / f"{NAME}_text_projection.hmm")
    rows = drawn(6, 1, CHUNK, 192)
    with torch.no_grad():
        want = model.talker.text_projection(rows)
    module.set_input(module.get_input_name(0), rows.numpy())
    module.run(True)
    assert_close(results(module)[0], want.numpy(), limit or 2e-5, "projected text")


def test_codes_become_a_sound(package, model):
    output, limit = package
    module = rt.load(output / f"{NAME}_code2wav.hmm")
    assert tuple(module.get_input_info(module.get_input_name(0)).shape) == (1, GROUPS, 256)
    codes = np.random.default_rng(7).integers(0, 67, (1, GROUPS, 256)).astype(np.int32)
    codes[0, 0, :3] = 80  # behind the part of its group, which the class reads as well
    with torch.no_grad():
        want = model.code2wav(torch.tensor(codes)).numpy()
    module.set_input(module.get_input_name(0), codes)
    module.run(True)
    (got,) = results(module)
    assert got.shape == want.shape
    assert_close(got, want, 2e-5 if limit is None else 2e-2, "the sound")


def test_embeddings_are_those_that_the_program_loads(package, model):
    output, _ = package
    hmquant = output / "hmquant"
    text, talker = (torch.load(hmquant / f"quant_embedding{end}.pt", weights_only=False) for end in ("", "_talker"))
    codes = torch.load(hmquant / "quant_embedding_codec.pt", weights_only=False)
    predictor = model.talker.code_predictor.get_input_embeddings()
    want = [model.thinker.get_input_embeddings(), model.talker.get_input_embeddings(), *predictor]
    found = [text["weight"], talker.weight.data, *codes["codec_embeddings"]]
    assert isinstance(text, dict)
    assert list(codes) == ["codec_embeddings"]
    for got, module in zip(found, want, strict=True):
        assert torch.equal(got.half(), module.weight.half())


TWO_DEVICES = """
import sys
import numpy as np
import tcim_lite.runtime as rt
found = []
for devices, end in (([0], "hmm"), ([0, 1], "hmms")):
    module = rt.load(f"{sys.argv[1]}_prefill.{end}", rt.Option(rt.DevManager(devices, "Xh2HalBackend")))
    rng = np.random.default_rng(5)
    for index in range(9):
        name = module.get_input_name(index)
        info = module.get_input_info(name)
        module.set_input(name, rng.standard_normal(info.shape) if index in (0, 6, 7, 8) else np.zeros(info.shape, int))
    module.set_input("current_length", 20)
    module.run(True)
    found.append([module.get_output(module.get_output_name(at)).numpy() for at in range(2)])
(logits, hidden), (others, states) = found
assert logits.tobytes() == others.tobytes() and logits.any()
assert hidden[:, :20].tobytes() == states[:, :20].tobytes() and hidden.any()
"""


def test_two_devices_return_the_hidden_states_of_one(folder, tmp_path, monkeypatch):
    output = compiled(folder, tmp_path, ndevice=2)
    assert {path.name for path in output.glob("*.hmms")} == {f"{NAME}_prefill.hmms", f"{NAME}_decode.hmms"}
    monkeypatch.setenv("TCIM_LITE_DEVICE_NUM", "2")
    done = warm_python.run("-c", TWO_DEVICES, output / NAME)
    assert done.returncode == 0, done.stderr


def test_a_thinker_alone_has_no_voice(tmp_path):
    random_omni(enable_audio_output=False).save_pretrained(tmp_path / "hf")
    output = compiled(tmp_path / "hf", tmp_path / "out", quant="float16")
    names = {path.name.removeprefix(f"{NAME}_") for path in output.glob("*.hmm")}
    assert {name for name in names if not name.startswith("visual_")} == {
        f"{part}.hmm" for part in ("prefill", "decode", "visual", "audio")
    }
    module = rt.load(output / f"{NAME}_decode.hmm")
    assert module.get_num_outputs() == 1
