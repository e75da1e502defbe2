"""The stand-ins for `hmatc.utils` and `hmatc.python.smi`; the rest of `hmatc.python` is in the suite, C-23."""

from __future__ import annotations

import importlib
import logging
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hmatc.python import smi
from hmatc.utils import perf_infomations
from hmatc.utils.perf_infomations import PERFTYPE, InferenceMetrics, InferencePerformanceTracker
from hmatc.utils.utils import (
    first_not_none,
    get_file_from_jfrog,
    get_houmo_version,
    get_model_configs,
    get_package_version,
    hmatc_get_file,
    parse_context_length,
)

import tcim_lite.runtime as rt
from tcim_lite.dev_ctrl.monitor import snapshot


def test_smi_shows_a_device_over_all_processes(monkeypatch, add_model, capsys):
    monkeypatch.setenv("TCIM_LITE_DEVICE_NUM", "2")
    model = rt.load(add_model)
    memory = smi.SmiInfo().get_mem_info()
    assert (memory.total, memory.free) == (snapshot().devices[0].memory_total >> 20, memory.total - memory.used)
    assert 0 < memory.used < memory.total
    assert 0 <= smi.SmiInfo(1).get_ipu_use_rate() <= 1
    assert smi.SmiInfo(device_id=1).get_temperature() > 25  # that of the air around it
    nobodys = 999999  # other tests that run meanwhile may have more than two devices
    with pytest.raises(IndexError, match=rf"device {nobodys} does not exist; there are \[0, 1"):
        smi.SmiInfo(nobodys).get_mem_info()

    monitor = smi.DeviceMonitor(device_id=0, interval=5)
    monitor.stop()  # not started
    monitor.start()
    with pytest.raises(RuntimeError, match="is running"):
        monitor.start()
    more = model.get_dev_input("a").clone(True)
    monitor.stop()
    monitor.stop()
    assert more.mem_size > 0
    printed = capsys.readouterr().out
    assert re.fullmatch(r"device 0, highest: \d\.\d{3} busy, \d+\.\d C, [1-9]\d* MB of memory used\n", printed)
    with pytest.raises(RuntimeError, match="ids start at 0"):
        smi.DeviceMonitor(-1)
    with pytest.raises(IndexError, match=f"device {nobodys}"):
        smi.DeviceMonitor(nobodys).start()


@pytest.fixture
def clock(monkeypatch):
    """`clock(seconds)` passes time."""
    now = [100.0]
    monkeypatch.setattr(perf_infomations.time, "perf_counter", lambda: now[0])

    def wait(seconds):
        now[0] += seconds

    return wait


def timed(tracker, clock, kind, seconds):
    tracker.perf_start(kind)
    clock(seconds)
    tracker.perf_end(kind)


def request(tracker, clock, steps=4):
    """Tokenizes 1 s, embeds 2 s, infers 5 s, of 10 s of prefill; steps of 3 s, of which 2 s infer, 0.5 s apart."""
    tracker.perf_start(PERFTYPE.PREFILL_TOTAL_TIME)
    timed(tracker, clock, PERFTYPE.PREFILL_TOKEN_TIME, 1)
    timed(tracker, clock, PERFTYPE.PREFILL_EMBED_TIME, 2)
    timed(tracker, clock, PERFTYPE.PREFILL_INFER_TIME, 5)
    clock(2)
    tracker.perf_end(PERFTYPE.PREFILL_TOTAL_TIME)
    for _ in range(steps):
        clock(0.5)
        tracker.perf_start(PERFTYPE.DECODE_TOTAL_TIME)
        timed(tracker, clock, PERFTYPE.DECODE_INFER_TIME, 2)
        clock(1)
        tracker.perf_end(PERFTYPE.DECODE_TOTAL_TIME)


def test_the_figures_are_those_of_the_definitions(clock, capsys):
    tracker = InferencePerformanceTracker()
    timed(tracker, clock, PERFTYPE.PREFILL_LOAD_TIME, 7)
    clock(50)  # nobody asks
    request(tracker, clock)
    tracker.set_basic_info(batch_size=2, input_seq_length=20, output_seq_length=4)
    clock(9)
    tracker.show_summary()
    metrics = tracker.current_metrics
    assert isinstance(metrics, InferenceMetrics)
    assert (metrics.prefill_load_time, metrics.ttft, metrics.tpot, metrics.e2e_time) == (7000, 10000, 3000, 24)
    assert metrics.e2e_tps == 2 * (4 + 1) / 24
    prefill, decode = metrics.prefill_perf_infos, metrics.decode_perf_infos
    assert (prefill.tokenizer_time, prefill.embedding_time, prefill.total_time) == (1000, 2000, 10000)
    assert (prefill.total_speed, prefill.infer_speed) == (2 * 20 / 10, 2 * 20 / 5)
    assert (decode.total_time, decode.total_speed, decode.infer_speed) == (12000, 2 * 4 / 12, 2 * 4 / 8)
    printed = capsys.readouterr().out
    assert "batch 2, for each sequence 20 tokens in and 5 out" in printed
    for words in ("TTFT                      10000.00 ms", "TPOT                       3000.00 ms", "0.67 tokens/s"):
        assert words in printed
    assert "vision" not in printed


def test_a_second_request_starts_from_nothing(clock, capsys):
    tracker = InferencePerformanceTracker()
    timed(tracker, clock, PERFTYPE.DECODE_LOAD_TIME, 1)
    for reset in (tracker.reset_perf_time, lambda: None):  # the demos differ in this
        request(tracker, clock)
        tracker.set_basic_info(1, 20, 4)
        tracker.show_summary()
        clock(1000)  # the user types
        reset()
        assert tracker.current_metrics.decode_load_time == 1000
    request(tracker, clock, steps=0)
    tracker.set_basic_info(1, 20, 0)
    tracker.show_summary()
    metrics = tracker.current_metrics
    assert (metrics.ttft, metrics.tpot, metrics.e2e_time, metrics.decode_perf_infos.total_time) == (10000, 0, 10, 0)


def test_images_count_into_the_first_token(clock, capsys):
    tracker = InferencePerformanceTracker()
    timed(tracker, clock, PERFTYPE.VISION_PREPROCESS_TIME, 1)
    timed(tracker, clock, PERFTYPE.VISION_TOTAL_TIME, 4)
    request(tracker, clock)
    timed(tracker, clock, PERFTYPE.PREFILL_TOTAL_TIME, 1)  # another sequence joins later
    tracker.set_basic_info(1, 20, 4, num_images=8)
    tracker.show_summary()
    assert tracker.current_metrics.ttft == 15000
    assert tracker.current_metrics.vision_perf_infos.vision_total_time == 4000
    assert tracker.current_metrics.vision_perf_infos.vision_preprocess_time == 1000
    assert "2.00 images/s" in capsys.readouterr().out


def test_sound_counts_by_chunks(clock, capsys):
    tracker = InferencePerformanceTracker()
    timed(tracker, clock, PERFTYPE.AUDIO_LOAD_TIME, 3)
    for chunks, rate in ((0, "0.50 chunks/s"), (8, "2.00 chunks/s")):
        timed(tracker, clock, PERFTYPE.AUDIO_PREPROCESS_TIME, 1)
        timed(tracker, clock, PERFTYPE.AUDIO_TOTAL_TIME, 4)
        request(tracker, clock)
        tracker.set_basic_info(1, 20, 4, num_audios=2, num_audio_chunks=chunks)
        tracker.show_summary()
        metrics = tracker.current_metrics
        assert (metrics.ttft, metrics.audio_load_time) == (15000, 3000)
        assert metrics.audio_perf_infos.audio_total_time == 4000
        assert metrics.audio_perf_infos.audio_preprocess_time == 1000
        printed = capsys.readouterr().out
        assert rate in printed
        assert "2 recordings" in printed


def test_the_parts_stand_for_a_stage_that_was_not_timed_as_a_whole(clock):
    tracker = InferencePerformanceTracker()
    for _ in range(2):
        timed(tracker, clock, PERFTYPE.DECODE_INPUT_TIME, 1)
        timed(tracker, clock, PERFTYPE.DECODE_INFER_TIME, 3)
    tracker.set_basic_info(1, 1, 2)
    tracker.calculate_metrics()
    assert tracker.current_metrics.tpot == 4000
    assert tracker.current_metrics.decode_perf_infos.total_speed == 0.25


def test_misuse_of_the_tracker_is_named(clock):
    tracker = InferencePerformanceTracker()
    with pytest.warns(UserWarning, match=r"perf_end\(PREFILL_INFER_TIME\) without perf_start"):
        tracker.perf_end(PERFTYPE.PREFILL_INFER_TIME)
    with pytest.raises(ValueError, match="PERFTYPE"):
        tracker.perf_start(4711)
    with pytest.raises(ValueError, match="batch_size=0: expected at least 1"):
        tracker.set_basic_info(0, 1, 1)
    tracker.show_summary()  # of nothing


def test_every_type_of_the_vendors_demos_exists():
    llm = ("LOAD", "TOTAL", "TOKEN", "EMBED", "INPUT", "INFER", "OUTPUT")
    names = {f"{stage}_{part}_TIME" for stage in ("PREFILL", "DECODE") for part in llm}
    media = ("LOAD", "PREPROCESS", "TOTAL", "INPUT", "INFER", "OUTPUT")
    names |= {f"{stage}_{part}_TIME" for stage in ("VISION", "AUDIO") for part in media}
    assert {kind.name for kind in PERFTYPE} == names


def test_configurations_are_read(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text(
        "default_model_size: 8b\ndefault_model_name: qwen3\nmodel_configs:\n  qwen3:\n    8b:\n      batch: 4\n"
    )
    size, name, configs = get_model_configs(path)
    assert (size, name, configs[name][size]) == ("8b", "qwen3", {"batch": 4})


@pytest.mark.parametrize(
    ("text", "words"),
    [("a: [", "no YAML"), ("- a", "expected a mapping"), ("model_configs: 3", "expected a mapping"), (None, "no such")],
)
def test_a_bad_configuration_is_named(tmp_path, text, words):
    path = tmp_path / "config.yaml"
    if text is not None:
        path.write_text(text)
    with pytest.raises((ValueError, OSError), match=f"config.yaml: {words}"):
        get_model_configs(path)


def test_context_lengths_are_read():
    assert [parse_context_length(text) for text in (4096, "4096", "256k", "8K", "1m")] == [
        4096, 4096, 262144, 8192, 1048576,
    ]  # fmt: skip
    for text in ("", "k", "-1k", "1.5k", "0", "12g"):
        with pytest.raises(ValueError, match="expected a number of tokens"):
            parse_context_length(text)


def test_first_not_none():
    assert (first_not_none(None, 0, 1), first_not_none(None)) == (0, None)


def test_downloads_are_refused_with_the_route():
    with pytest.raises(RuntimeError, match=r"tcim-lite compile HF_DIR -o out"):
        get_file_from_jfrog("models/qwen3.tar.xz", "downloads", "out")


def test_the_installed_stand_in_yields_to_a_real_hmatc(tmp_path):
    """The installed .pth puts the shims behind everything else; the suite tries both orders (C-23)."""
    (tmp_path / "hmatc").mkdir()
    (tmp_path / "hmatc" / "__init__.py").write_text("real = True\n")
    code = f"import sys; sys.path.append({str(tmp_path)!r}); import hmatc; print(hmatc.real)"
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"
    assert importlib.import_module("hmatc").__spec__.origin is None  # a namespace


def test_scripts_that_fetch_models_are_told_to_compile(monkeypatch):
    monkeypatch.delenv("HOUMO_VERSION", raising=False)
    cfgs = {"target": "xh2", "version": get_houmo_version(), "model_type": "llm", "model_name": "qwen3"}
    assert cfgs["version"] == "v1.4.0"
    with pytest.raises(RuntimeError, match=r"'qwen3 \(hmm\)' is not downloaded.* tcim-lite compile HF_DIR -o output"):
        hmatc_get_file(cfgs, "hmm", ".", "output")
    with pytest.raises(RuntimeError, match=r"'qwen3 \(raw\)' is not downloaded.* -o output/xh2 "):
        hmatc_get_file(cfgs, "raw", ".")
    monkeypatch.setenv("HOUMO_VERSION", "1.3.0")
    assert get_houmo_version() == "v1.3.0"
    monkeypatch.setenv("HOUMO_VERSION", "latest")
    with pytest.raises(ValueError, match="HOUMO_VERSION='latest': expected a version such as"):
        get_houmo_version()
    assert get_package_version("numpy")[0].isdigit()
    assert get_package_version("no-such-package") == "N/A"


def test_scripts_that_fetch_models_find_those_compiled_there(tmp_path, monkeypatch, capsys, add_model):
    monkeypatch.chdir(tmp_path)
    cfgs = {"target": "xh2", "model_name": "qwen3"}
    for extract_dir, folder in ((None, "output/xh2"), ("models", "models")):
        Path(folder).mkdir(parents=True, exist_ok=True)
        Path(folder, "qwen3_a.hmm").write_bytes(b"of the vendor's compiler" * 99)
        with pytest.raises(RuntimeError, match="is not downloaded"):
            hmatc_get_file(cfgs, "hmm", "", extract_dir)
        shutil.copy(add_model, Path(folder, "qwen3_b.hmm"))
        found, answer = hmatc_get_file(cfgs, "hmm", "", extract_dir)
        assert (found, answer["ret"]) == (folder, True)
        assert capsys.readouterr().out == f"{folder} has compiled models; nothing is downloaded.\n"


def test_what_else_the_vendors_module_has_is_named_as_missing():
    code = "from hmatc.utils.utils import hmatc_get_file, _extract_files"
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True)
    assert "ImportError: cannot import '_extract_files': of the vendor's hmatc.utils.utils there are" in done.stderr
    assert not hasattr(importlib.import_module("hmatc.utils.utils"), "__path__")


def test_the_logger_prints_to_stdout_and_leaves_other_loggers_alone(capsys, caplog):
    from hmatc.utils import logger

    root = logging.getLogger()
    before = list(root.handlers), root.level
    logger.info("loaded %s", "net.hmm")
    logger.debug("not shown")
    logger.setLevel(logging.DEBUG)
    try:
        logger.debug("now shown")
    finally:
        logger.setLevel(logging.INFO)
    logger.fatal("broken")  # ends nothing
    lines = [line.split(" ", 2)[2] for line in capsys.readouterr().out.splitlines()]
    assert lines == ["INFO loaded net.hmm", "DEBUG now shown", "CRITICAL broken"]
    assert (list(root.handlers), root.level) == before
    assert caplog.text == ""
    assert logger.isEnabledFor(logging.WARNING)
    assert logger.name == "hmatc"
    with pytest.raises(AttributeError, match="no attribute 'success'"):
        logger.success("of loguru")


def test_a_second_import_of_the_logger_adds_no_handler(capsys):
    from hmatc.utils import logger

    logger.info("once")
    importlib.reload(logger).info("again")
    assert len(capsys.readouterr().out.splitlines()) == 2
