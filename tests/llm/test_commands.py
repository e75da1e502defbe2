"""Commands on packages of every family that has prefill and decode graphs, taken from the records."""

import json

import pytest
from family_forms import in_the_grid
from llm_packages import compile_package

from tcim_lite.bench.cost import cost_of, slot_count
from tcim_lite.bench.device_time import model_package
from tcim_lite.cli import main
from tcim_lite.hmm import read
from tcim_lite.models.families import FAMILIES

SIZES = {"prefill_length": 16, "context_length": 64}
LAYER_INPUTS = {"hidden_size_per_layer_input": 64, "vocab_size_per_layer_input": 331}
CASES = [in_the_grid(family, family, None, {}) for family in FAMILIES]
CASES += [(family, None, {"mtp": True}) for family in ("qwen3_5", "qwen3_5_moe", "qwen3_next")]
CASES += [("qwen3_5", None, {"split_conv": True, "recurrent_in_place": True}), ("gemma4", LAYER_INPUTS, {})]


@pytest.mark.parametrize(("family", "config", "options"), CASES)
def test_a_dump_gives_its_outputs_again(tiny_package, tmp_path, capsys, family, config, options):
    """Two chunks and two steps, with the states before each run, and what layers take of tokens."""
    package, tokens = tiny_package(family, config, **SIZES, **options), ",".join(map(str, range(5, 25)))
    dump = str(tmp_path / "dump")
    assert main(["dump", str(package.folder), "-o", dump, "--tokens", tokens, "--steps", "2"]) == 0
    graphs = [part for stage in ("prefill", "decode") for part in ("--graph", f"{package.name}_{stage}")]
    assert main(["golden", str(package.folder), dump, *graphs, "--cosine", "1"]) == 0
    assert "equal" in capsys.readouterr().out


@pytest.mark.parametrize("options", [{}, {"mtp": True}, {"split_conv": True, "recurrent_in_place": True}])
def test_diff_finds_nothing_in_a_package_itself(tiny_package, tmp_path, options):
    folder = str(tiny_package("qwen3_5", **SIZES, **options).folder)
    assert main(["diff", folder, folder, "-o", str(tmp_path / "d"), "--tokens", "3,4,5", "--steps", "2"]) == 0


def test_diff_finds_the_op_of_a_hybrid_that_differs(tiny_package, tmp_path, capsys):
    first, second = (tiny_package("qwen3_5", quant=quant, **SIZES) for quant in ("float32", "float16"))
    command = ["diff", str(first.folder), str(second.folder), "-o", str(tmp_path / "d"), "--tokens", "3,4,5"]
    assert main([*command, "--steps", "2", "--bound", "exact"]) == 1
    assert "first beyond its bound" in capsys.readouterr().out


@pytest.mark.parametrize("family", [in_the_grid(family) for family in FAMILIES])
def test_the_chips_time_and_a_drawing(tiny_package, tmp_path, capsys, family):
    package = tiny_package(family, **SIZES)
    assert main(["bench", str(package.folder), "--device-time"]) == 0
    assert main(["inspect", str(package.folder)]) == 0
    assert package.decode_path.name in capsys.readouterr().out
    assert main(["inspect", str(package.folder), "--graph", str(tmp_path / "graphs.html")]) == 0
    assert "<svg" in (tmp_path / "graphs.html").read_text()


def test_models_of_states_alone_are_measured_by_the_rows_of_their_input(tiny_package):
    package = tiny_package("mamba", batch=3, **SIZES)
    assert slot_count(read(package.decode_path)) == 3
    assert cost_of(read(package.decode_path), 0).tokens == 3
    times = {time.title: time for time in model_package(package.folder)}
    length = SIZES["prefill_length"]
    assert {name: time.tokens for name, time in times.items()} == {f"prefill {length}": length, "decode": 3}
    assert all(time.tokens_per_s > 0 for time in times.values())


@pytest.mark.parametrize("family", [*(name for name, record in FAMILIES.items() if record.other_values), "qwen3_5"])
def test_where_transformers_shows_other_values_it_is_no_oracle(tiny_package, tmp_path, capsys, family):
    """An op would be named that is right."""
    folder = tiny_package(family, **SIZES).folder
    command = ["diff", f"hf:{folder.parent}", str(folder), "-o", str(tmp_path / "d"), "--tokens", "3,4,5"]
    assert main(command) == 2
    why = "does not show past_conv_cache_0 before" if family == "qwen3_5" else f"modules of {family} in transformers"
    assert why in capsys.readouterr().err


def test_a_dump_of_whisper_says_that_it_is_no_language_model(tmp_path, capsys):
    sizes = {"d_model": 64, "vocab_size": 331, "num_mel_bins": 16, "max_source_positions": 20}
    for part in ("encoder", "decoder"):
        sizes |= {f"{part}_layers": 1, f"{part}_attention_heads": 2, f"{part}_ffn_dim": 128}
    config = {"model_type": "whisper", "max_target_positions": 24, "decoder_start_token_id": 3, **sizes}
    (tmp_path / "config.json").write_text(json.dumps(config))
    package = compile_package(tmp_path, tmp_path / "out", random_weights=True)
    assert main(["dump", str(package.folder), "-o", str(tmp_path / "dump"), "--tokens", "1,2"]) == 2
    assert "it is not that of a language model" in capsys.readouterr().err
