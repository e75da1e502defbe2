"""One GGUF file of a package: what the package `gguf` reads in it, and graphs that run from where they lie."""

from __future__ import annotations

import json
import os
import shutil
import struct
import sys

import numpy as np
import pytest
from llm_packages import DEMO_CHECKPOINT, compile_package

import tcim_lite.runtime as tcim
from tcim_lite import hmm
from tcim_lite.cli import main
from tcim_lite.llm import Package
from tcim_lite.models.families import FAMILIES

gguf = pytest.importorskip("gguf", reason="the oracle")


@pytest.fixture(scope="module")
def packed(tmp_path_factory):
    """A package, and the GGUF file of it."""
    folder = tmp_path_factory.mktemp("pack")
    package = compile_package(DEMO_CHECKPOINT, folder / "package", quant="w8a8h1_sefp", self_contained=True)
    file = folder / "model.gguf"
    assert main(["pack", str(package.folder), "-o", str(file)]) == 0
    return package, file


def test_the_reader_of_gguf_finds_every_file(packed):
    package, file = packed
    config = json.loads((package.tokenizer_folder / "config.json").read_text())
    found = gguf.GGUFReader(file)
    about = {name: field.contents() for name, field in found.fields.items() if not name.startswith("GGUF.")}
    assert about == {
        "general.architecture": "qwen3",
        "general.name": package.name,
        "general.alignment": 4096,
        "is_hmm": True,
        "target": "xh2",
        "core_num": hmm.read(package.prefill_path).ncore,
        "qwen3.block_count": config["num_hidden_layers"],
        "qwen3.embedding_length": config["hidden_size"],
        "qwen3.context_length": json.loads(hmm.read(package.prefill_path).custom_msg)["context_length"],
    }
    stored = {tensor.name: tensor for tensor in found.tensors}
    assert all(tensor.tensor_type == gguf.GGMLQuantizationType.I8 for tensor in stored.values())
    assert all(tensor.data_offset % 4096 == 0 for tensor in stored.values())
    assert stored["prefill.hmm"].data.tobytes() == package.prefill_path.read_bytes()
    assert stored["decoder.hmm"].data.tobytes() == package.decode_path.read_bytes()
    table = stored["quant_embedding.bin"].data.tobytes()
    assert struct.unpack("<IIII", table[:16]) == (2, config["vocab_size"], config["hidden_size"], 1)
    assert table[16:] == (package.folder / "hmquant" / "quant_embedding.bin").read_bytes()
    tokenizer = json.loads(stored["tokenizer_config.json"].data.tobytes())
    assert tokenizer.pop("chat_template") == (package.tokenizer_folder / "chat_template.jinja").read_text()
    assert tokenizer == json.loads((package.tokenizer_folder / "tokenizer_config.json").read_text())
    others = {path.name for path in package.tokenizer_folder.iterdir()}
    assert set(stored) == others | {"prefill.hmm", "decoder.hmm", "quant_embedding.bin"}
    for name in others - {"tokenizer_config.json"}:
        assert stored[name].data.tobytes() == (package.tokenizer_folder / name).read_bytes()


@pytest.mark.parametrize(
    ("family", "architecture"), [("qwen3_5", "qwen35"), ("gpt_oss", "gpt-oss"), ("qwen2_5_vl", "qwen2_5_vl")]
)
def test_the_architecture_has_llama_cpps_name_where_there_is_one(tiny_package, tmp_path, family, architecture):
    package = tiny_package(family, quant="float16", self_contained=True)
    assert main(["pack", str(package.folder), "-o", str(tmp_path / "model.gguf")]) == 0
    fields = gguf.GGUFReader(tmp_path / "model.gguf").fields
    assert fields["general.architecture"].contents() == architecture
    config = FAMILIES[family].tiny_config
    layers = config.get("text_config", config)["num_hidden_layers"]
    assert fields[f"{architecture}.block_count"].contents() == layers


@pytest.mark.parametrize(
    "config",
    [
        {"model_type": "qwen3_5_text", "num_hidden_layers": 4},
        {"model_type": "qwen3_5", "text_config": {"model_type": "qwen3_5_text", "num_hidden_layers": 4}},
    ],
    ids=["the language model alone", "nested"],
)
def test_sizes_are_found_in_every_form_of_a_config(tiny_package, tmp_path, config):
    package = tiny_package("qwen3_5", quant="float16", self_contained=True)
    folder = shutil.copytree(package.folder, tmp_path / "package", symlinks=False)
    Package.open(folder).tokenizer_folder.joinpath("config.json").write_text(json.dumps(config))
    assert main(["pack", str(folder), "-o", str(tmp_path / "model.gguf")]) == 0
    fields = gguf.GGUFReader(tmp_path / "model.gguf").fields
    assert fields["general.architecture"].contents() == "qwen35"
    assert fields["qwen35.block_count"].contents() == 4


def test_graphs_run_from_where_they_lie(packed):
    """Prefill owns the caches, decode borrows them, and both give what the package's own files give, to the bit."""
    package, file = packed
    lies = {t.name: (int(t.data_offset), int(t.n_bytes)) for t in gguf.GGUFReader(file).tensors}

    def answer(paths) -> list[np.ndarray]:
        manager = tcim.WeightManager(0)
        options = []
        for _, place in paths:
            option = tcim.Option(manager)
            options.append(option.set_model_offset(*place) if place else option)
        prefill = tcim.load(str(paths[0][0]), option=options[0])
        caches = [n for i in range(prefill.get_num_inputs()) if "cache" in (n := prefill.get_input_name(i))]
        decode = tcim.load(str(paths[1][0]), option=options[1].set_dummy_tensors(caches))
        for name in caches:
            decode.set_input(name, prefill.get_dev_input(name))
        rng = np.random.default_rng(4)
        outputs = []
        for module, valid, current in ((prefill, 0, 9), (decode, 9, 1)):
            shape = module.get_input_info("input_1").shape
            module.set_input("input_1", rng.normal(0, 0.1, shape).astype(np.float16))
            module.set_input("valid_length", np.int32([valid]))
            module.set_input("current_length", np.int32([current]))
            module.run()
            module.sync()
            outputs.append(module.get_output("logits").numpy())
        return outputs

    own = answer([(package.prefill_path, None), (package.decode_path, None)])
    ours = answer([(file, lies["prefill.hmm"]), (file, lies["decoder.hmm"])])
    assert all(np.array_equal(a, b) for a, b in zip(own, ours, strict=True))
    assert not np.array_equal(own[0], own[1])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "keeps its weights in qwen3.hmw"),
        ({"quant": "float32", "self_contained": True}, "is not one table in float16"),
        ({"ndevice": 2, "single_device": False, "self_contained": True}, "holds prefill and decode for one device"),
    ],
    ids=["weights-apart", "float32", "two-devices"],
)
def test_what_does_not_fit_is_refused(tiny_package, tmp_path, capsys, options, message):
    package = tiny_package(**options)
    file = tmp_path / "model.gguf"
    file.write_bytes(b"an earlier file")
    assert main(["pack", str(package.folder), "-o", str(file)]) == 2
    assert message in capsys.readouterr().err
    assert file.read_bytes() == b"an earlier file"
    assert [path.name for path in tmp_path.iterdir()] == ["model.gguf"]


def test_a_missing_library_is_named(packed, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "gguf", None)
    assert main(["pack", str(packed[0].folder), "-o", str(tmp_path / "model.gguf")]) == 2
    assert "pip install 'tcim-lite[gguf]'" in capsys.readouterr().err


def test_the_file_is_no_checkpoint_and_takes_no_folders_place(packed, tmp_path, capsys):
    package, file = packed
    assert main(["compile", str(file), "-o", str(tmp_path / "out")]) == 2
    assert "holds compiled graphs, which programs load with Option.set_model_offset" in capsys.readouterr().err
    with pytest.raises(RuntimeError, match=r"say where they lie, with Option\.set_model_offset"):
        tcim.load(str(file))
    assert main(["inspect", str(file)]) == 2
    assert "say where they lie, with Option.set_model_offset" in capsys.readouterr().err
    assert main(["pack", str(package.folder), "-o", str(tmp_path)]) == 2
    assert f"{tmp_path} is a folder; expected the file to write" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("package/qwen3_prefill.hmm", "among the files that are packed"),
        ("package/tokenizer/model.gguf", "among the files that are packed"),
        ("package/hmquant/quant_embedding.bin", "among the files that are packed"),
        ("fifo", "is a device; expected the file to write"),
    ],
)
def test_no_file_of_the_package_and_no_device_is_replaced(packed, capsys, place, message):
    folder = packed[0].folder.parent
    if place == "fifo" and not (folder / place).exists():
        os.mkfifo(folder / place)
    before = sorted((path, path.stat().st_size) for path in folder.rglob("*"))
    assert main(["pack", str(packed[0].folder), "-o", str(folder / place)]) == 2
    assert message in capsys.readouterr().err
    assert sorted((path, path.stat().st_size) for path in folder.rglob("*")) == before


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("config.json", b"[]", "config.json: expected a JSON object, found a list"),
        ("config.json", b"[" * 100_000, "config.json: is not JSON"),
        ("tokenizer_config.json", b"1", "tokenizer_config.json: expected a JSON object, found a int"),
        ("tokenizer_config.json", b"{", "tokenizer_config.json: is not JSON"),
        ("chat_template.jinja", b"\xff", "chat_template.jinja is not UTF-8 text"),
        (None, b"", "tokenizer is missing; copy the whole package folder"),
    ],
)
def test_a_damaged_tokenizer_is_named(packed, tmp_path, capsys, name, content, message):
    package = tmp_path / "package"
    shutil.copytree(packed[0].folder, package)
    if name is None:
        shutil.rmtree(package / "tokenizer")
    else:
        (package / "tokenizer" / name).write_bytes(content)
    assert main(["pack", str(package), "-o", str(tmp_path / "model.gguf")]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "model.gguf").exists()


def test_a_package_without_a_head_has_its_whole_table(tmp_path):
    options = {"quant": "w8a8h1_sefp", "self_contained": True, "hidden_states": -1}
    package = compile_package(DEMO_CHECKPOINT, tmp_path / "package", **options)
    assert main(["pack", str(package.folder), "-o", str(tmp_path / "model.gguf")]) == 0
    (table,) = [t for t in gguf.GGUFReader(tmp_path / "model.gguf").tensors if t.name == "quant_embedding.bin"]
    assert table.data.tobytes()[16:] == (package.folder / "hmquant" / "quant_embedding.bin").read_bytes()
    assert struct.unpack("<II", table.data.tobytes()[4:12]) == (1536, 256)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("config.json", '{"num_hidden_layers": -1}', "num_hidden_layers is -1; expected a positive whole number"),
        ("config.json", '{"num_hidden_layers": 4294967296}', "num_hidden_layers is 4294967296; expected"),
        ("config.json", '{"text_config": {"num_hidden_layers": true}}', "num_hidden_layers is True; expected"),
        ("config.json", '{"model_type": null}', "model_type is None; expected a name"),
        ("config.json", '{"model_type": "\\ud800"}', "model_type is '\\ud800'; expected a name"),
        ("prefill.hmm", "x", "has a file prefill.hmm, a name that"),
    ],
)
def test_odd_files_beside_the_tokenizer_are_refused(packed, tmp_path, capsys, name, content, message):
    folder = shutil.copytree(packed[0].folder, tmp_path / "package", symlinks=False)
    file = Package.open(folder).tokenizer_folder / name
    file.unlink(missing_ok=True)
    file.write_text(content)
    assert main(["pack", str(folder), "-o", str(tmp_path / "model.gguf")]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "model.gguf").exists()


@pytest.mark.parametrize(
    ("family", "projector", "basename", "pattern"),
    [
        ("qwen3_vl", "qwen3vl_merger", None, None),
        ("qwen3_5", "qwen3vl_merger", "Qwen3.5", None),
        ("qwen2_5_vl", "qwen2.5vl_merger", None, 2),
    ],
)
def test_a_vision_graph_has_a_file_of_its_own(tiny_package, tmp_path, family, projector, basename, pattern):
    tower = FAMILIES[family].vision.tiny
    side = 4 * tower["patch_size"]
    config = {"vision_config": dict(tower)}
    package = tiny_package(family, config, quant="float16", self_contained=True, vision=f"{side}x{2 * side}")
    assert main(["pack", str(package.folder), "--vision", "-o", str(tmp_path / "mmproj.gguf")]) == 0
    found = gguf.GGUFReader(tmp_path / "mmproj.gguf")
    (tensor,) = found.tensors
    assert (tensor.name, tensor.tensor_type) == ("visual.hmm", gguf.GGMLQuantizationType.I8)
    assert tensor.data.tobytes() == package.graph("visual.hmm").read_bytes()
    about = {name: field.contents() for name, field in found.fields.items()}
    facts = json.loads(hmm.read(package.graph("visual.hmm")).custom_msg)
    assert about["general.architecture"] == "clip"
    assert about.get("general.basename") == basename
    assert (about["is_hmm"], about["clip.has_vision_encoder"], about["clip.projector_type"]) == (True, True, projector)
    vision = {name.removeprefix("clip.vision."): value for name, value in about.items() if "clip.vision." in name}
    assert vision.pop("attention.layer_norm_epsilon") == np.float32(1e-6)
    assert vision.pop("n_wa_pattern", None) == pattern
    for key in ("image_mean", "image_std"):
        assert vision.pop(key) == np.float32(facts[key]).tolist()
    assert vision == {
        "image_size": 2 * side,
        "embedding_length": tower["hidden_size"],
        "feed_forward_length": tower["intermediate_size"],
        "block_count": tower["depth"],
        "attention.head_count": tower["num_heads"],
        "projection_dim": tower["out_hidden_size"],
        "patch_size": tower["patch_size"],
        "spatial_merge_size": 2,
    }


def test_a_vision_graph_that_is_not_there_or_in_parts_is_refused(tiny_package, packed, tmp_path, capsys):
    def refused(package) -> str:
        assert main(["pack", str(package.folder), "--vision", "-o", str(tmp_path / "mmproj.gguf")]) == 2
        assert list(tmp_path.iterdir()) == []
        return capsys.readouterr().err

    assert "'qwen3'; files of vision graphs are known of Qwen2.5-VL, Qwen3-VL and Qwen3.5" in refused(packed[0])
    assert "a graph for images of one size" in refused(tiny_package("qwen3_vl", quant="float16"))
    assert "keeps its weights in" in refused(
        tiny_package(
            "qwen3_vl", {"vision_config": dict(FAMILIES["qwen3_vl"].vision.tiny)}, quant="float16", vision="64x64"
        )
    )
