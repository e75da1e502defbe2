"""The mask inputs of the vendor's gpt-oss and Laguna: made by tcim_lite.llm they change no bit; others are honoured."""

import json

import numpy as np
import pytest
from llm_packages import LoadedPackage, compile_package
from test_equivalence import bits, prompt

import tcim_lite.runtime as rt
from tcim_lite.llm import Generator, attention_mask, load_pair, mask_names, run_graph, takes_masks
from tcim_lite.llm.engine.slots import Slots
from tcim_lite.models.families import FAMILIES

SIZES = {"prefill_length": 16, "context_length": 64}
WINDOW = FAMILIES["gpt_oss"].tiny_config["sliding_window"]


@pytest.fixture(scope="module")
def plain(tiny_package):
    return tiny_package("gpt_oss", verify_length=5, **SIZES)


@pytest.fixture(scope="module")
def masked(tiny_package):
    return tiny_package("gpt_oss", verify_length=5, masks=True, **SIZES)


def test_the_contract_is_the_vendors(masked):
    loaded = LoadedPackage(masked)
    for module, tokens, columns in [(loaded.prefill_module, 16, 32), (loaded.decode_module, 1, 16)]:
        names = [module.get_input_name(index) for index in range(6)]
        assert names[1:5] == ["valid_length", "current_length", "local_attention_mask", "global_attention_mask"]
        assert names[5] == "model_layers_0_self_attn_kcache_input"
        info = [module.get_input_info(name) for name in names[3:5]]
        assert [i.shape for i in info] == [(1, 1, tokens, columns), (1, 1, tokens, 64)]
        assert {i.dtype for i in info} == {np.float16}
        assert json.loads(module.get_custom_msg())["sliding_window"] == WINDOW
        assert mask_names(module) == names[3:5]
    assert loaded.context_length == 64


def test_the_mask_of_the_released_shapes():
    """The vendor's shapes: P 256, W 128."""
    mask = attention_mask(300, 200, 256, 384, 128)[0, 0]
    assert mask.dtype == np.float16
    for row in (0, 5, 199):
        seen = np.flatnonzero(mask[row] == 0)
        assert (seen[0], seen[-1], len(seen)) == (row, row + 127, 128)
    assert (mask[200:] == -65504).all()
    assert np.flatnonzero(attention_mask(5, 1, 1, 128, 128)[0, 0, 0] == 0).tolist() == list(range(6))
    assert np.flatnonzero(attention_mask(5, 2, 2, 64)[0, 0, 1] == 0).tolist() == list(range(7))


def test_a_mask_for_layers_with_a_window_alone_has_the_vendors_shapes(tiny_package):
    sizes = {"prefill_length": 256, "context_length": 1024, "masks": True}
    loaded = LoadedPackage(tiny_package("laguna", {"sliding_window": 512}, **sizes))
    for module, tokens, columns in [(loaded.prefill_module, 256, 768), (loaded.decode_module, 1, 512)]:
        names = [module.get_input_name(index) for index in range(5)]
        assert names[1:4] == ["valid_length", "current_length", "sliding_attention_mask"]
        assert names[4] == "model_layers_0_self_attn_kcache_input"
        assert module.get_input_info(names[3]).shape == (1, 1, tokens, columns)
        assert mask_names(module) == names[3:4]


def test_what_the_only_mask_hides_is_not_seen(tiny_package):
    """Of layers with a window; the others go by the lengths."""
    loaded = LoadedPackage(tiny_package("laguna", quant="float32", masks=True, **SIZES))
    module, tokens = loaded.decode_module, prompt(30)
    loaded.prefill(tokens[:-1])
    module.set_input("input_1", loaded._embedding[tokens[-1]].reshape(1, 1, -1))
    module.set_input("valid_length", np.array([29], np.int32))
    mask = attention_mask(29, 1, 1, 16, FAMILIES["laguna"].tiny_config["sliding_window"])
    mask[..., :4] = -65504  # rows 20 to 23

    def decode():
        module.set_input("sliding_attention_mask", mask)
        module.run(sync=True)
        return module.get_output("logits").numpy().copy()

    hidden = decode()
    changed = {layer: f"model_layers_{layer}_self_attn_vcache_input" for layer in (0, 1)}
    caches = {layer: loaded.prefill_module.get_dev_input(name) for layer, name in changed.items()}
    for layer in (1, 0):  # the first has the whole context
        values = caches[layer].numpy().copy()
        values[:, :, 20:24] += 1
        loaded.prefill_module.set_input(changed[layer], values)
        assert (bits(decode()) == bits(hidden)) == (layer == 1)


@pytest.mark.parametrize("quant", ["w4a8h0_ssfp", "float32"])
@pytest.mark.parametrize("family", ["gpt_oss", "laguna"])
def test_masks_of_the_lengths_change_no_bit(tiny_package, family, quant):
    packages = [tiny_package(family, quant=quant, masks=masks, **SIZES) for masks in (False, True)]
    without, given = (LoadedPackage(package) for package in packages)
    tokens = prompt(50)
    for split in (1, 9, 16, 30, 49):
        assert bits(given.prefill(tokens[:split])) == bits(without.prefill(tokens[:split]))
        for position in range(split, min(split + 12, len(tokens))):
            want = bits(without.decode(tokens[position], position))
            assert bits(given.decode(tokens[position], position)) == want, (split, position)
    for ours, theirs in zip(given.caches(), without.caches(), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_verify_takes_masks(plain, masked):
    tokens, rows = prompt(30), []
    for package in (plain, masked):
        manager = rt.WeightManager(0)
        prefill, verify = load_pair(package.prefill_path, package.graph("verify.hmm"), manager)
        embedding = package.embedding_for(prefill)
        generator_tokens = embedding[tokens].astype(np.float32)
        padded = np.zeros((1, 16, embedding.shape[1]), np.float32)
        for begin, count in ((0, 16), (16, 9)):
            padded[0, :count] = generator_tokens[begin : begin + count]
            run_graph(prefill, padded, begin, count)
        rows.append(bits(run_graph(verify, generator_tokens[None, 25:30], 25, 5)))
    assert rows[0] == rows[1]


@pytest.mark.parametrize("family", ["gpt_oss", "laguna"])
def test_every_slot_has_masks_of_its_own(tiny_package, monkeypatch, family):
    """Slots of several lengths at work and idle; also on two devices and in pipeline stages."""
    monkeypatch.setenv("TCIM_LITE_DEVICE_NUM", "2")
    options = {"batch": 3, "pipeline": 2, "ndevice": 2, **SIZES}
    plain, masked = (tiny_package(family, masks=masks, **options) for masks in (False, True))
    for how in ({}, {"devices": (0, 1)}, {"devices": (0, 1), "pipeline": True}):
        answers = []
        for package in (plain, masked):
            slots = Slots.open(package, **how)
            found = [slots.prefill(0, prompt(14)), slots.prefill(2, prompt(3))]
            for step in range(6):
                work = {0: 5 + step} if step % 3 == 0 else {0: 5 + step, 2: 9, 1: 1 + step}
                logits = slots.decode(work)
                found += [logits[slot] for slot in work]
            answers.append([bits(each) for each in found])
        assert answers[0] == answers[1], how


def test_generation_is_that_of_the_maskless_package(plain, masked):
    answers = [list(LoadedPackage(package).generate(prompt(20), max_new_tokens=20)) for package in (plain, masked)]
    assert answers[0] == answers[1]


def test_another_mask_changes_what_it_hides(masked):
    """A row that the global mask hides might as well not be there; a row that both hide is not read at all."""
    loaded = LoadedPackage(masked)
    module, tokens = loaded.decode_module, prompt(30)
    loaded.prefill(tokens[:-1])
    usual = loaded.decode(tokens[-1], 29)
    rows = loaded._embedding[tokens[-1]].reshape(1, 1, -1)
    whole = attention_mask(29, 1, 1, 64)
    whole[..., :8] = -65504

    def decode(mask):
        inputs = {module.get_input_name(0): rows, "valid_length": np.array([29]), "global_attention_mask": mask}
        for name, value in inputs.items():
            module.set_input(name, value)
        module.run(sync=True)
        return module.get_output(module.get_output_name(0)).numpy().reshape(-1)

    hidden = decode(whole)
    assert bits(hidden) != bits(usual)
    for name in ("k", "v"):  # layer 1 is the full one; layer 0 sees the last WINDOW rows
        cache = f"model_layers_1_self_attn_{name}cache_input"
        values = loaded.prefill_module.get_dev_input(cache).numpy().copy()
        values[:, :, :8] = np.nan
        loaded.prefill_module.set_input(cache, values)
    assert bits(decode(whole)) == bits(hidden)
    with pytest.raises(rt.ArgumentError, match="holds NaN in row 0"):
        decode(attention_mask(29, 1, 1, 64))


@pytest.mark.oracle
def test_odd_masks_are_those_of_transformers(tmp_path):
    """Holes, weights between 0 and hidden, and rows of the demo's own window mask that see themselves alone."""
    torch = pytest.importorskip("torch", reason="the oracle")
    pytest.importorskip("transformers", reason="the oracle")
    from oracle import assert_close, logit_bound, random_model

    model = random_model(FAMILIES["gpt_oss"].tiny, "gpt_oss")
    model.save_pretrained(tmp_path / "hf")
    count, window = 40, FAMILIES["gpt_oss"].tiny_config["sliding_window"]
    sizes = {"prefill_length": 48, "context_length": 64, "all_logits": True, "masks": True}
    package = compile_package(tmp_path / "hf", tmp_path / "out", quant="float32", **sizes)
    loaded = LoadedPackage(package)
    module, tokens = loaded.prefill_module, np.random.default_rng(0).integers(0, model.config.vocab_size, count)
    random = np.random.default_rng(1)
    masks = {}
    for name, kind, width in [("local", "sliding", window), ("global", "full", None)]:
        columns = module.get_input_info(f"{name}_attention_mask").shape[3]
        mask = attention_mask(0, count, 48, columns, width)
        seen = mask[0, 0] == 0
        mask[0, 0][seen & (random.random(seen.shape) < 0.3)] = -65504
        mask[0, 0][seen & (random.random(seen.shape) < 0.2)] = -1.5
        rows = np.arange(count)
        mask[0, 0, rows, rows] = 0
        mask[0, 0, 30:36, :] = -65504
        mask[0, 0, rows[30:36], rows[30:36]] = 0
        masks[f"{kind}_attention"] = torch.tensor(mask[:, :, :count, :count].astype(np.float32))
        module.set_input(f"{name}_attention_mask", mask)
    with torch.no_grad():
        want = model(torch.tensor(tokens[None]), attention_mask=masks, use_cache=False).logits[0].numpy()
        usual = model(torch.tensor(tokens[None]), use_cache=False).logits[0].numpy()
    embedded = np.zeros((1, 48, model.config.hidden_size), np.float32)
    embedded[0, :count] = loaded._embedding[tokens]
    for name, value in {"input_1": embedded, "valid_length": [0], "current_length": [count]}.items():
        module.set_input(name, np.asarray(value, np.float32 if name == "input_1" else np.int32))
    module.run(True)
    found = module.get_output("logits").numpy()[0]
    for position in range(count):
        assert_close(found[position], want[position], logit_bound(model.config), f"position {position}")
    assert np.abs(want - usual).max() > 0.05 * np.abs(usual).max()


def test_masks_that_do_not_fit_are_refused(masked):
    module = LoadedPackage(masked).decode_module
    with pytest.raises(rt.TcimError, match="global_attention_mask"):
        module.set_input("global_attention_mask", np.zeros((1, 1, 1, 63), np.float16))
    with pytest.raises(rt.TcimError, match="local_attention_mask"):
        module.set_input("local_attention_mask", np.zeros((1, 1, 1, 16), np.complex64))


def test_a_package_without_masks_takes_none(plain):
    loaded = LoadedPackage(plain)
    assert not takes_masks(loaded.prefill_module)
    assert mask_names(loaded.decode_module) == []
    assert isinstance(loaded, Generator)
