"""States of linear attention in the forms that options choose change no bit, and have their names and order."""

from __future__ import annotations

import numpy as np
import pytest
from llm_packages import LoadedPackage, compile_package

pytestmark = pytest.mark.oracle
pytest.importorskip("safetensors.torch", reason="writes checkpoints")
pytest.importorskip("torch", reason="the oracle")
pytest.importorskip("transformers", reason="the oracle")
from engine_tools import run
from hybrid_models import random_model, states_of, tokens_of

from tcim_lite import layers
from tcim_lite.cli import main
from tcim_lite.llm import Package, Sampler, lanes_of
from tcim_lite.llm.engine import Engine, SamplingParams, Slots


@pytest.mark.parametrize("in_place", [False, True])
def test_dump_of_a_recording_has_the_states_before_each_run(forms, tmp_path, capsys, in_place):
    """The states lie over the inputs; the results of a dump's inputs are its outputs."""
    package = forms("float32", **({"recurrent_in_place": True} if in_place else {}))
    recording = tmp_path / "run.tcimrec"
    layers.enable("record", file=recording, data="inputs")
    try:
        list(LoadedPackage(package).generate(tokens_of(20), Sampler(), 3, ()))
    finally:
        layers.disable("record")
    dump = str(tmp_path / "dump")
    assert main(["dump", str(package.folder), "-o", dump, "--recording", str(recording)]) == 0
    assert main(["golden", str(package.folder), dump]) == 0
    printed = capsys.readouterr().out
    # Two chunks, two steps; logits and six states, of which prefill returns three where it updates the others.
    assert printed.count("equal") == 4 * 7 - (2 * 3 if in_place else 0), printed


@pytest.fixture(scope="module")
def forms(tmp_path_factory):
    """One checkpoint in every form of states."""
    folder = tmp_path_factory.mktemp("forms")
    random_model(folder / "hf", {})

    def make(quant, **options):
        name = "-".join([quant, *options])
        if not (folder / name).exists():
            compile_package(folder / "hf", folder / name, quant=quant, prefill_length=16, context_length=64, **options)
        return Package.open(folder / name)

    return make


FORMS = [{"split_conv": True}, {"recurrent_in_place": True}, {"split_conv": True, "recurrent_in_place": True}]


@pytest.mark.parametrize("quant", ["float32", "float16", "w4a8h0_ssfp"])
@pytest.mark.parametrize("form", FORMS, ids="-".join)
def test_forms_of_states_change_no_bit(forms, form, quant):
    usual, loaded = LoadedPackage(forms(quant)), LoadedPackage(forms(quant, **form))
    for prompt in (tokens_of(20, 1), tokens_of(3, 2), tokens_of(33, 3)):
        for one in (usual, loaded):
            one.cached_tokens = []
        want = [usual.prefill(prompt), *(usual.decode(7, len(prompt) + i) for i in range(4))]
        got = [loaded.prefill(prompt), *(loaded.decode(7, len(prompt) + i) for i in range(4))]
        np.testing.assert_array_equal(got, want)
        found = {name: loaded.prefill_module.get_dev_input(name).numpy() for name in carried_of(loaded)}
        for name, state in zip(carried_of(usual), states_of(usual)[2:], strict=True):
            if form.get("split_conv") and "conv" in name:
                parts = [found[name.replace("cache_", f"cache_{part}_")] for part in "qkv"]
                np.testing.assert_array_equal(np.concatenate(parts, axis=1), state)
            else:
                np.testing.assert_array_equal(found[name], state)


def carried_of(loaded):
    return lanes_of(loaded.prefill_module)[0].carried


def test_names_and_order_of_the_forms(forms):
    loaded = LoadedPackage(forms("float32", split_conv=True, recurrent_in_place=True))
    split = [f"{part}_{index}" for index in range(3) for part in "qkv"]
    assert list(carried_of(loaded)) == [
        *(f"past_conv_cache_{name}" for name in split),
        *(f"past_recurrent_state_{index}" for index in range(3)),
    ]
    for module, states in ((loaded.prefill_module, []), (loaded.decode_module, range(3))):
        outputs = [module.get_output_name(index) for index in range(module.get_num_outputs())]
        convs = [f"conv_cache_out_{name}" for name in split]
        assert outputs == ["logits", *convs, *(f"recurrent_state_out_{index}" for index in states)]
    assert loaded.prefill_module.get_input_info("past_conv_cache_v_1").shape == (1, 4 * 48, 4)


@pytest.mark.parametrize("form", FORMS, ids="-".join)
def test_engine_answers_in_every_form(forms, form, strict_mode):
    answers = []
    for options in ({}, form):
        engine = Engine(Slots.open(forms("float16", **options)))
        for index, prompt in enumerate([tokens_of(20, 1), tokens_of(3, 3)]):
            engine.add(prompt, SamplingParams(max_tokens=6), request_id=str(index))
        answers.append(run(engine)[0])
    assert answers[0] == answers[1]
