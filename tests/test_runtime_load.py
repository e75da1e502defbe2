"""Loading: files, weights and their sharing."""

import gc
import json
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest
from graph_maker import linear_file

import tcim_lite.runtime as rt
from tcim_lite import _core, hmm
from tcim_lite.hmm.__main__ import main as hmm_main


def run_linear(module, tokens):
    x = np.arange(tokens * 8, dtype=np.float32).reshape(1, tokens, 8) / 8
    module.set_input("x", x)
    module.run()
    return x, module.get_output("y").numpy()


def memory():
    gc.collect()
    return _core.device_memory_used(0)


def test_load_reports_what_the_file_says(add_model):
    module = rt.Module.load(add_model)
    assert module.get_custom_msg() == '{"kind": "add"}'
    assert module.get_core_num() == 2
    assert module.get_backend_name() == "Xh2HalBackend"
    assert module.get_model_version() == "V1.0"
    assert (module.get_num_inputs(), module.get_num_outputs()) == (4, 1)


def test_the_description_of_a_file_is_json_with_the_keys_that_the_vendors_engine_reads(add_model, linear_pair):
    found = json.loads(rt.load_model_info(add_model))
    assert json.loads(found["info"].pop("custom_msg")) == {"kind": "add"}
    assert found["info"].pop("producer")
    assert found["info"] == {"name": "add", "version": "V1.0", "target": "xh2", "ncore": 2, "ndevice": 1}
    assert [item["name"] for item in found["input"]] == ["a", "b", "image", "length"]
    first = {"name": "a", "shape": [2, 3], "dtype": "FLOAT16", "format": "ND"}
    assert (found["input"][0], len(found["output"])) == (first, 1)
    found = json.loads(rt.load_model_info(linear_pair[0]))
    weights = linear_pair[0].with_name(found["weights"]["file"])
    assert found["weights"]["count"] == 1
    assert 0 < found["weights"]["bytes"] <= weights.stat().st_size
    assert json.loads(rt.load_model_info(weights))["input"] == []


def test_managers_share_across_files_by_content(linear_pair, linear_bytes):
    manager = rt.WeightManager()
    first = rt.load(linear_bytes, rt.Option(manager))
    before = memory()
    second = rt.load(linear_bytes, rt.Option(manager))
    third = rt.load(linear_pair[0], rt.Option(manager))
    shared = memory() - before
    separate = [rt.load(linear_bytes), rt.load(linear_pair[0])]
    assert memory() - before == 2 * shared + 2 * 512
    results = [run_linear(module, 4)[1] for module in (first, second, third, *separate)]
    for result in results[1:]:
        np.testing.assert_array_equal(result, results[0])


def test_models_load_from_memory_and_at_an_offset(tmp_path, linear_bytes):
    expected = run_linear(rt.load(linear_bytes), 4)[1]
    for offset in (0, 64, 4096, 13):
        data = b"x" * offset + linear_bytes + b"tail"
        (tmp_path / "bundle.bin").write_bytes(data)
        for source in (tmp_path / "bundle.bin", data, bytearray(data), memoryview(data)):
            module = rt.load(source, rt.Option().set_model_offset(offset, len(linear_bytes)))
            np.testing.assert_array_equal(run_linear(module, 4)[1], expected)
    with pytest.raises(rt.ArgumentError, match="lie outside a buffer"):
        rt.load(linear_bytes, rt.Option().set_model_offset(10, len(linear_bytes)))
    short = rt.Option().set_model_offset(13, 1000)
    for source in (tmp_path / "bundle.bin", data):
        with pytest.raises(rt.HmmFormatError, match=r"\(1000 bytes at 13, as set_model_offset says\): 1000 bytes are"):
            rt.load(source, short)


def test_missing_or_foreign_weights_are_named(linear_pair, tmp_path):
    data = linear_pair[0].read_bytes()
    with pytest.raises(rt.HmmFormatError, match=r"'linear\.hmw'"):
        rt.load(data)
    weights = tmp_path / "linear.hmw"
    os.rename(weights, tmp_path / "kept")
    with pytest.raises(rt.HmmFormatError, match=r"linear\.hmw is missing"):
        rt.load(linear_pair[0])
    with hmm.WeightsWriter(weights) as writer:
        writer.add("w", "float32", "linear_f32", (16, 8), np.ones((8, 16), np.float32))
    expected = hmm.read(linear_pair[0]).sibling.id.hex()
    with pytest.raises(rt.HmmFormatError, match=f"{writer.id.hex()}, expected {expected}"):
        rt.load(linear_pair[0])
    with pytest.raises(rt.HmmFormatError, match="only weights"):
        rt.load(weights)
    weights.write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
    words = rf"{linear_pair[0].name} cannot use its weights file: .*linear\.hmw: .* a git-lfs pointer"
    with pytest.raises(rt.HmmFormatError, match=words):
        rt.load(linear_pair[0])


def test_the_weights_of_a_linked_model_are_found(linear_pair, tmp_path, reference_weight):
    folder = tmp_path / "links"
    folder.mkdir()
    (folder / "again").symlink_to(linear_pair[0])
    (folder / "linked.hmm").symlink_to("again")
    x, y = run_linear(rt.load(folder / "linked.hmm"), 4)
    np.testing.assert_allclose(y, x @ reference_weight.T, rtol=1e-5)
    assert hmm_main([str(folder / "linked.hmm"), "--verify"]) == 0
    # What lies beside the link comes first.
    shutil.copy(linear_pair[0], folder / "linear.hmw")
    with pytest.raises(rt.HmmFormatError, match=r"links/linear\.hmw is not the weights file"):
        rt.load(folder / "linked.hmm")


def flip(path, weight):
    with open(path, "r+b") as file:
        file.seek(weight.offset + 5)
        byte = file.read(1)[0]
        file.seek(weight.offset + 5)
        file.write(bytes([byte ^ 1]))


def test_a_flipped_bit_is_an_error(linear_pair, monkeypatch):
    weights = linear_pair[0].with_name("linear.hmw")
    flip(weights, hmm.read(weights).weights[0])
    for _ in range(2):
        with pytest.raises(rt.HmmFormatError, match="weight 'w' is damaged"):
            rt.load(linear_pair[0])
    monkeypatch.setenv("TCIM_LITE_VERIFY", "off")
    rt.load(linear_pair[0])
    monkeypatch.setenv("TCIM_LITE_VERIFY", "sometimes")
    with pytest.raises(rt.ArgumentError, match="TCIM_LITE_VERIFY"):
        rt.load(linear_pair[0])


def test_large_weights_are_verified_in_pieces(tmp_path):
    rng = np.random.default_rng(0)
    data = rng.standard_normal((1100, 3200)).astype(np.float32)  # several pieces and a rest
    path = tmp_path / "big.hmm"
    path.write_bytes(linear_file((1, 1, 1100), "float32", (3200, 1100), "linear_f32", w=data))
    rt.load(path)
    damaged = tmp_path / "damaged.hmm"
    shutil.copy(path, damaged)
    flip(damaged, hmm.read(damaged).weights[0])
    with pytest.raises(rt.HmmFormatError, match="weight 'w' is damaged"):
        rt.load(damaged)


@pytest.mark.parametrize(
    ("there", "asked", "option"), [("m.hmm", "m.hmms", "--ndevice N"), ("m.hmms", "m.hmm", "without --no-single")]
)
def test_a_missing_model_whose_twin_is_there_names_both_ways_out(tmp_path, there, asked, option):
    (tmp_path / there).touch()
    with pytest.raises(rt.HmmFormatError, match=rf"/{asked}: cannot be read .*/{there}, the model for .*{option}"):
        rt.load(tmp_path / asked)


@pytest.mark.parametrize("level", ["info", "warn"])
def test_the_log_says_at_level_info_what_was_loaded_where(add_model, tmp_path, level):
    text = f"import tcim_lite.runtime as rt; rt.load({str(add_model)!r}, rt.Option(5))"
    environment = {**os.environ, "TCIM_LITE_DEVICE_NUM": "6", "TCIM_LITE_LOG": level}
    done = subprocess.run(
        [sys.executable, "-c", text], env=environment, cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert (f"loaded {add_model} on device 5\n" in done.stderr) == (level == "info")
