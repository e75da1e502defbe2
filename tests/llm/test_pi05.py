"""π0.5: its graphs against SigLIP and Gemma of transformers, and an expert in PyTorch, with the same weights."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import tcim_lite.runtime as rt
from tcim_lite.models.common.errors import CompileError
from tcim_lite.models.compiler import CompileOptions, compile_checkpoint
from tcim_lite.models.policies.action_networks import action_tensors, shapes
from tcim_lite.models.policies.pi05 import read_policy

pytestmark = pytest.mark.oracle
torch = pytest.importorskip("torch", reason="the oracle")
pytest.importorskip("transformers", reason="the oracle")
from oracle import assert_close, logit_bound
from pi05 import ACTIONS, CHUNK, CONFIG, HEAD_DIM, LAYERS, SIDE, TEXT, VOCABULARY, Oracle

IMAGES, ROWS, HIDDEN = 2, 1024, -2.382e38  # one of the cameras is empty; what programs hide rows with
PREFIX = IMAGES * (SIDE // 14) ** 2 + TEXT
CACHES = [f"model_layers_{n}_self_attn_{part}cache_input" for part in "kv" for n in range(LAYERS)]
# The bound of docs/numerics.md for float32; the others are those of Fun-Audio-Chat.
QUANTS = [("float32", None), ("float16", 5e-3), ("w8a8h1_sefp", 0.1)]


@pytest.fixture(scope="module")
def oracle():
    return Oracle()


@pytest.fixture(scope="module")
def checkpoint(oracle, tmp_path_factory):
    return oracle.save(tmp_path_factory.mktemp("pi05") / "hf")


@pytest.fixture(scope="module", params=QUANTS, ids=[quant for quant, _ in QUANTS])
def package(request, oracle, checkpoint, tmp_path_factory):
    quant, limit = request.param
    folder = tmp_path_factory.mktemp("package")
    compile_checkpoint(CompileOptions(checkpoint=checkpoint, output=folder, quant=quant))
    return folder, limit or logit_bound(oracle.language.config)


def run(module, **inputs):
    for name, values in inputs.items():
        module.set_input(name, np.asarray(values.detach() if isinstance(values, torch.Tensor) else values))
    module.run(sync=True)
    return module.get_output(module.get_output_name(0)).numpy().astype(np.float32)


def seen(rows, columns):
    """What a mask adds to the scores of rows that see `columns`, in float16, as programs make it."""
    mask = np.full((1, 1, rows, ROWS), HIDDEN, np.float64)
    mask[..., columns] = 0.0
    with np.errstate(over="ignore"):
        return mask.astype(np.float16)


def test_the_files_and_inputs_are_those_that_programs_open(package):
    folder, _ = package
    names = ["siglip", "gemma_2b_prefill", "gemma_expert_300m_decode", "action_in_proj", "action_out_proj", "time_mlp"]
    modules = {name: rt.load(folder / f"{name}.hmm") for name in names}
    for name in names:  # --name is refused
        with pytest.raises(rt.HmmFormatError, match=r"make it: tcim-lite compile CHECKPOINT -o \S+$"):
            rt.load(folder / "none" / f"{name}.hmm")
    lengths = ["input_1", "valid_length", "current_length"]
    inputs = {
        "siglip": ["pixel_values"],
        "gemma_2b_prefill": [*lengths, "attention_mask", *CACHES],
        "gemma_expert_300m_decode": [*lengths, "cond", "attention_mask", *CACHES],
        "action_in_proj": ["action_in"],
        "action_out_proj": ["action_out"],
        "time_mlp": ["time_emb"],
    }
    outputs = ["image_features", "last_hidden_state", "last_hidden_state"]
    for (name, expected), output in zip(
        inputs.items(), [*outputs, *(f"{name}_out" for name in names[3:])], strict=True
    ):
        module = modules[name]
        assert [module.get_input_name(i) for i in range(module.get_num_inputs())] == expected, name
        assert [module.get_output_name(i) for i in range(module.get_num_outputs())] == [output], name
    prefill, decode = modules["gemma_2b_prefill"], modules["gemma_expert_300m_decode"]
    assert prefill.get_input_info("input_1").shape == (1, PREFIX, 128)
    assert prefill.get_input_info("attention_mask").shape == (1, 1, PREFIX, ROWS)
    assert decode.get_input_info("cond").shape == (1, 64)
    assert decode.get_input_info(CACHES[0]).shape == (1, 1, ROWS, HEAD_DIM)
    table = torch.load(folder / "embedding.pt", weights_only=True)
    torch.nn.Embedding(VOCABULARY, 128).load_state_dict(table)


def test_an_image_becomes_rows(oracle, package):
    folder, limit = package
    pixels = torch.randn(1, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        want = oracle.see(pixels).numpy()
    assert_close(run(rt.load(folder / "siglip.hmm"), pixel_values=pixels), want, limit, "rows of an image")


def test_actions_are_those_of_the_same_loop_in_pytorch(oracle, package):
    """A prompt with rows of padding and of an empty camera in its midst, and the steps of a flow."""
    folder, limit = package
    prefill, decode = (rt.load(folder / f"{name}.hmm") for name in ("gemma_2b_prefill", "gemma_expert_300m_decode"))
    for name in CACHES:
        decode.set_input(name, prefill.get_dev_input(name))
    into, out_of, time = (rt.load(folder / f"{name}.hmm") for name in ("action_in_proj", "action_out_proj", "time_mlp"))
    random = torch.Generator().manual_seed(3)
    rows = torch.randn(1, PREFIX, 128, generator=random)
    live = np.ones(PREFIX, bool)
    live[4:8] = live[-3:] = False
    columns = np.flatnonzero(live)
    mask = seen(PREFIX, columns)
    mask[:, :, ~live] = -np.inf
    of_torch = torch.zeros(1, 1, PREFIX, PREFIX).masked_fill(torch.tensor(~live), HIDDEN)
    behind = torch.zeros(1, 1, CHUNK, PREFIX + CHUNK).masked_fill(torch.tensor([*~live, *[False] * CHUNK]), HIDDEN)
    with torch.no_grad():
        hidden, caches = oracle.read(rows, of_torch)
        got = run(prefill, input_1=rows, valid_length=[0], current_length=[PREFIX], attention_mask=mask)
        assert got.shape == (1, PREFIX, 128)
        assert_close(got[0, columns], hidden[0, columns].numpy(), limit, "hidden states of the prompt")
        found = wanted = torch.randn(1, CHUNK, ACTIONS, generator=random)
        lengths = {"valid_length": [PREFIX], "current_length": [CHUNK]}
        over = seen(CHUNK, [*columns, *range(PREFIX, PREFIX + CHUNK)])
        for step in range(3):
            waves = torch.sin(torch.arange(64) * (1 - step / 3))[None]
            condition = oracle.condition(waves)
            made = run(time, time_emb=waves)
            assert_close(made, condition.numpy(), limit, "condition")
            out = oracle.act(oracle.into(wanted), behind, caches, condition)
            wanted = wanted - oracle.out_of(out) / 3
            got = run(decode, input_1=run(into, action_in=found), cond=made, attention_mask=over, **lengths)
            assert_close(got, out.numpy(), 2 * limit, f"expert, step {step}")
            found = found - torch.tensor(run(out_of, action_out=got)) / 3
    assert_close(found.numpy(), wanted.numpy(), 2 * limit, "actions")


def test_rows_that_nothing_sees_change_nothing(oracle, package):
    folder, _ = package
    prefill = rt.load(folder / "gemma_2b_prefill.hmm")
    rows = np.random.default_rng(4).standard_normal((1, PREFIX, 128)).astype(np.float16)
    mask = seen(PREFIX, np.arange(5, PREFIX))
    lengths = {"valid_length": [0], "current_length": [PREFIX], "attention_mask": mask}
    first = run(prefill, input_1=rows, **lengths)
    rows[:, :5] *= -2
    again = run(prefill, input_1=rows, **lengths)
    assert again[:, 5:].tobytes() == first[:, 5:].tobytes()
    assert again[:, :5].tobytes() != first[:, :5].tobytes()
    everything = run(prefill, input_1=rows, **{**lengths, "attention_mask": seen(PREFIX, np.arange(PREFIX))})
    assert np.abs(everything - again)[:, 5:].max() > 0.01  # a mask that is not read shows


def openpi(name):
    """What other writers call a tensor: without the outermost module, with the embedding under its own name."""
    for own, other in (
        ("model.", ""),
        ("paligemma.lm_head.", "paligemma.model.language_model.embed_tokens."),
        ("vision_tower.", "vision_tower.vision_model."),
    ):
        name = name.replace(own, other, 1)
    return name


def test_other_names_of_tensors_and_files_of_an_earlier_compilation(oracle, checkpoint, tmp_path):
    other = oracle.save(tmp_path / "hf", openpi, type="hm_pi05")
    out, again = tmp_path / "out", tmp_path / "again"
    compile_checkpoint(CompileOptions(checkpoint=checkpoint, output=out, quant="float16"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # no tensor is left over
        compile_checkpoint(CompileOptions(checkpoint=other, output=again, quant="float16"))
    files = {path.name: path.read_bytes() for path in out.iterdir() if path.is_file()}
    assert files == {path.name: path.read_bytes() for path in again.iterdir() if path.is_file()}
    whole = CompileOptions(checkpoint=checkpoint, output=out, quant="float16", self_contained=True)
    compile_checkpoint(whole)
    assert {path.name for path in out.iterdir() if path.is_file()} == {n for n in files if not n.endswith(".hmw")}


def test_without_tensors_sizes_are_those_that_the_config_names(tmp_path):
    policy = read_policy(CONFIG, None)
    gemma, expert = policy.gemma(), policy.expert()
    assert (gemma.hidden_size, gemma.intermediate_size, gemma.num_layers) == (2048, 16384, 18)
    assert (expert.hidden_size, expert.condition_size, expert.head_dim) == (1024, 1024, 256)
    assert (policy.prefix, policy.context, policy.siglip["hidden_size"]) == (PREFIX, ROWS, 1152)
    draw = action_tensors(policy, shapes(ACTIONS, 1024), 0)
    assert draw("action_in_proj.weight").shape == (1024, ACTIONS)
    assert draw("time_mlp_in.bias").shape == (1024,)
    assert read_policy({**CONFIG, "input_features": {}, "empty_cameras": 0}, None).views == 3


@pytest.mark.parametrize(
    ("changes", "options", "message"),
    [
        ({}, {"name": "robot"}, "--name robot: programs of π0.5 open files of fixed names; leave it out"),
        ({}, {"prefill_length": 64}, "--prefill-length: the graphs of π0.5 have the lengths that its config says"),
        ({"image_resolution": [28, 42]}, {}, r"image_resolution=\[28, 42\] is not supported, expected two equal"),
        ({"image_resolution": [56, 56]}, {}, r"position_embedding.*has shape \[4, 64\], expected \[16, 64\]"),
        ({"action_expert_variant": "gemma_7b"}, {}, "action_expert_variant='gemma_7b' is not supported"),
        ({"input_features": [1]}, {}, r"input_features must be an object, got \[1\]"),
        ({"max_action_dim": 9}, {}, r"action_in_proj.weight.*has shape \[64, 10\], expected \[64, 9\]"),
        ({}, {"vision_quant": "mxfp4a8"}, "--vision-quant mxfp4a8 is not for vision towers; choose from"),
        ({"chunk_size": 0}, {}, "chunk_size must be a positive integer, got 0"),
    ],
)
def test_what_does_not_fit_is_refused(oracle, checkpoint, tmp_path, changes, options, message):
    folder = oracle.save(tmp_path / "hf", **changes) if changes else checkpoint
    with pytest.raises(CompileError, match=message):
        compile_checkpoint(CompileOptions(checkpoint=folder, output=tmp_path / "out", quant="float32", **options))
    assert not (tmp_path / "out").exists()


EXPERT, FC = "gemma_expert.model.layers", "vision_tower.encoder.layers.0.mlp.fc"


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (
            (f"{EXPERT}.1.", "gone."),
            "the expert has 1 layers with heads of 16, .* 2 with heads of 16",
        ),
        (
            (f"{EXPERT}.", "gone."),
            r"has no tensors model\..*\.gemma_expert\.model\.layers\.\*, those",
        ),
        ((f"{FC}1.weight", f"{FC}1.bias"), r"fc1\.weight' has shape \[100\], expected 2 axes"),
        ((f"{FC}1.weight", f"{FC}2.weight"), "the vision tower's rows of 100 are no multiple of its 16 heads"),
    ],
)
def test_tensors_that_do_not_fit_together_are_refused(oracle, tmp_path, names, message):
    def exchanged(name):
        one, other = names if names[0] in name else names[::-1]
        return name.replace(one, other)

    folder = oracle.save(tmp_path / "hf", exchanged)
    with pytest.raises(CompileError, match=message):
        compile_checkpoint(CompileOptions(checkpoint=folder, output=tmp_path / "out", quant="float32"))
