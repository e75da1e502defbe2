"""What is said of a graph that is not there is a command that makes it, whichever option its package lacked."""

import json
import re
import shlex

import pytest

import tcim_lite.runtime as tcim
from tcim_lite.cli import main
from tcim_lite.models.families import FAMILIES

WHISPER = {"model_type": "whisper", "max_target_positions": 24, "decoder_start_token_id": 3} | {
    **{"d_model": 64, "vocab_size": 331, "num_mel_bins": 16, "max_source_positions": 20},
    **{f"{part}_layers": 1 for part in ("encoder", "decoder")},
    **{f"{part}_attention_heads": 2 for part in ("encoder", "decoder")},
    **{f"{part}_ffn_dim": 128 for part in ("encoder", "decoder")},
}
CASES = [
    ("qwen3", ["--verify-length", "5", "--pipeline", "2", "--ndevice", "2", "--draft", "CHECKPOINT"]),
    ("qwen3_5", ["--mtp", "--ndevice", "2"]),
    ("qwen3_5", ["--mtp", "--batch", "2", "--pipeline", "2"]),
    ("qwen3_5", ["--vision"]),
    ("qwen3_vl", ["--vision", "64x96"]),
    ("qwen2_vl", ["--vision", "64x96"]),
    ("glm_ocr", ["--vision", "64x96"]),
    ("paddleocr_vl", ["--vision", "64x96"]),
    ("paddleocr_vl", ["--vision", "64x64"]),
    ("minicpmv4_6", ["--vision"]),
    ("whisper", []),
]


def config_of(family):
    if family == "whisper":
        return WHISPER
    config, vision = dict(FAMILIES[family].tiny_config), FAMILIES[family].vision
    if family == "qwen3_5":
        config["layer_types"] = ["linear_attention", "full_attention"] * 2  # a cache for each of two stages
    if vision is not None:
        config["vision_config"] = {**vision.tiny, "out_hidden_size": config["hidden_size"]}
    return config


def command_for(path):
    there_is_none = re.escape(f"/{path.name}: cannot be read ")
    with pytest.raises(tcim.HmmFormatError, match=f"{there_is_none}.* or make it: ") as refused:
        tcim.load(path)
    return shlex.split(str(refused.value).partition(" or make it: tcim-lite ")[2])


@pytest.mark.parametrize(("family", "options"), CASES)
def test_the_command_that_is_named_makes_the_graph(tmp_path, family, options):
    checkpoint, whole = tmp_path / "hf", tmp_path / "whole"
    checkpoint.mkdir()
    (checkpoint / "config.json").write_text(json.dumps(config_of(family)))

    def run(command):
        at = {"CHECKPOINT": str(checkpoint), "HEIGHTxWIDTH": options[-1] if options else ""}
        sizes = [] if family == "whisper" else ["--prefill-length", "8", "--context-length", "32"]
        assert main([*(at.get(part, part) for part in command), *sizes, "--random-weights", "-q"]) == 0

    run(["compile", "CHECKPOINT", "-o", str(whole), "--name", "my [8b].1", *options])
    graphs = sorted(path.name for path in whole.iterdir() if re.search(r"\.hmms?$", path.name))
    folders = {}  # what a command wrote
    if "--mtp" in options:
        graphs = [graph for graph in graphs if "_verify" not in graph]  # of other models by --verify-length
    for graph in graphs:
        command = command_for(tmp_path / "none" / graph)
        folder = tmp_path / str(len(folders))
        if tuple(command) not in folders:
            command[command.index("-o") + 1] = str(folder)
            run(command)
            folders[tuple(command_for(tmp_path / "none" / graph))] = folder
        folder = folders[tuple(command_for(tmp_path / "none" / graph))]
        assert (folder / graph).is_file()


def test_what_the_folder_has_is_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for number in range(8):
        (tmp_path / f"m{number}.hmm").touch()
    with pytest.raises(tcim.HmmFormatError, match=re.escape(f"folder {tmp_path} has m0.hmm, m1.hmm, m2.hmm, ")) as it:
        tcim.load("resnet50.hmm")
    assert "m5.hmm and 2 more; check the path, or make it: tcim-lite compile NETWORK.onnx -o ." in str(it.value)
    with pytest.raises(tcim.HmmFormatError, match=re.escape(f"there is no folder a/b in {tmp_path}; check the path")):
        tcim.load("a/b/qwen3_decode.hmm")


@pytest.mark.parametrize(
    "name",
    [
        *("_decode.hmm", "a'b_decode.hmm", "a\nb.hmm", "-x_decode.hmm", "model.gguf"),
        *(".a_decode.hmm", "a\\b_visual.hmm"),  # --name takes none of these
        *("a.hmms", "a_visual.hmms", "a_decode_part0.hmms", "gemma_2b_prefill.hmms"),  # of one device alone
    ],
)
def test_no_command_is_made_of_what_is_no_name(tmp_path, name):
    with pytest.raises(tcim.HmmFormatError, match=r"has no models; check the path$"):
        tcim.load(tmp_path / name)
