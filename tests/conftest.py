"""Tiny hand-built models and unused devices for the runtime tests."""

from __future__ import annotations

import gc
import itertools
import re
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

from tcim_lite import hmm
from tcim_lite.bench import MachineLimits
from tcim_lite.dev_ctrl import HalDevice, HalDeviceFactory

sys.path.insert(0, str(Path(__file__).parent))

import warm_python
from cpp_programs import cpp_examples, sdk  # noqa: F401
from faulty_device import adder, no_faults_left  # noqa: F401
from tiny_graphs import add_graph, attention_graph, linear_graph, linear_weight

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # So a shell starts jobs in the background, and so would be every program that a test starts and interrupts.
    signal.signal(signal.SIGINT, signal.default_int_handler)

# How long an example takes says more about what else the machine does than about the code.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")

_unused_devices = itertools.count(2000)

# Files that run in the process of another one, whose node cases of ONNX take ten seconds to build.
_TOGETHER = {"test_hostile_models.py": "test_node_cases.py"}


def pytest_configure(config: pytest.Config) -> None:
    """Keeps the files of a folder together: pytest 9.1 has no fixtures of one that the command line comes back to."""
    config.args.sort()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Does not import a file whose tests their marker leaves out: every process would import torch for nothing."""
    if " or " in config.option.markexpr or collection_path.suffix != ".py":
        return None
    marks = re.findall(
        r"^pytestmark = \[?pytest\.mark\.(\w+)", collection_path.read_text(encoding="utf-8"), re.MULTILINE
    )
    return True if any(f"not {mark}" in config.option.markexpr for mark in marks) else None


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks tests that compile against the SDK or link the package again as `build`, and says what runs together.

    With pytest-xdist a file's tests share a process, and so do all that build: they use the same folders. xdist does
    that by adding "@GROUP" to the ids of tests, which pytest 9.2 no longer shows it. It starts groups in the order of
    their first tests (--no-loadscope-reorder): the longest come first, so that none is left alone at the end.
    """
    groups: dict[str, list[pytest.Item]] = {}
    for item in items:
        if {"sdk", "static_package"} & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.build)
        file = _TOGETHER.get(item.path.name, item.path.name)
        group = "build" if item.get_closest_marker("build") else file
        groups.setdefault(group, []).append(item)
        if item.config.pluginmanager.hasplugin("xdist"):
            item.add_marker(pytest.mark.xdist_group(group))
    if items and getattr(items[0].config.option, "loadgroup", False):  # so in the processes of pytest-xdist

        def cost(group: str) -> tuple[bool, int, int]:
            slow = sum(any(map(item.get_closest_marker, ("slow", "oracle"))) for item in groups[group])
            return group == "build", slow, len(groups[group])

        items[:] = [item for group in sorted(groups, key=cost, reverse=True) for item in groups[group]]


def pytest_collection_finish() -> None:
    """Leaves what is there by now out of later garbage collections, each of which takes up to 0.3 s with it."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def no_leftovers() -> None:
    """Deletes modules that earlier tests left in cycles: a listener would hear of them whenever they are collected."""
    gc.collect()


@pytest.fixture
def add_model(tmp_path: Path) -> Path:
    hmm.write_model(tmp_path / "add.hmm", add_graph(), [], custom_msg='{"kind": "add"}', ncore=2)
    return tmp_path / "add.hmm"


@pytest.fixture
def write_add(tmp_path: Path) -> Callable[..., Path]:
    def write(shape: tuple[int, ...], dtype: str = "float32") -> Path:
        hmm.write_model(tmp_path / "add_shaped.hmm", add_graph(shape, dtype), [])
        return tmp_path / "add_shaped.hmm"

    return write


@pytest.fixture
def linear_pair(tmp_path: Path) -> tuple[Path, Path]:
    """Two graphs that share `linear.hmw`."""
    with hmm.WeightsWriter(tmp_path / "linear.hmw") as weights:
        entry = weights.add("w", "float32", "linear_f32", (16, 8), np.ascontiguousarray(linear_weight().T))
    sibling = hmm.Sibling("linear.hmw", weights.id)
    paths = tmp_path / "prefill.hmm", tmp_path / "decode.hmm"
    for path, tokens in zip(paths, (4, 1), strict=True):
        hmm.write_model(path, linear_graph(tokens, path.stem), [entry], sibling=sibling)
    return paths


@pytest.fixture
def linear_bytes() -> bytes:
    """A model that contains its weights."""
    data = np.ascontiguousarray(linear_weight().T)
    return hmm.model_bytes(linear_graph(4), [hmm.WeightData("w", "float32", "linear_f32", (16, 8), data)])


@pytest.fixture
def attention_pair(tmp_path: Path) -> tuple[Path, Path]:
    """Prefill of four tokens, and decode."""
    paths = tmp_path / "attention_prefill.hmm", tmp_path / "attention_decode.hmm"
    for path, tokens in zip(paths, (4, 1), strict=True):
        hmm.write_model(path, attention_graph(tokens), [])
    return paths


@pytest.fixture
def reference_weight() -> np.ndarray:
    return linear_weight()


@pytest.fixture
def run_script(tmp_path: Path) -> Callable[..., str]:
    """Runs Python text in a process away from the source folder, and returns what it printed.

    `fresh`: in one that has nothing yet, whose memory has no parts left over either.
    """

    def run(text: str, *arguments: str, fresh: bool = False) -> str:
        script = tmp_path / "script.py"  # a file: child processes that do not fork read it again
        script.write_text(textwrap.dedent(text))
        if fresh:
            command = [sys.executable, script, *arguments]
            done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=tmp_path, check=False)
        else:
            done = warm_python.run(script, *arguments, timeout=120, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    return run


@pytest.fixture
def hal() -> HalDevice:
    return HalDeviceFactory.create("Xh2aHalBackend")


@pytest.fixture
def known_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the machine can do takes a benchmark seconds to measure; test_cli_bench.py does."""
    limits = MachineLimits(1, 1e9, 1e9, 1e9, 1e9, "", 0, 1e9, 1)
    for module in ("measure", "network"):
        monkeypatch.setattr(f"tcim_lite.bench.{module}.measure_limits", lambda _: limits)


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> int:
    """The id of a device that this process has not used yet."""
    device_id = next(_unused_devices)
    monkeypatch.setenv("TCIM_LITE_DEVICE_NUM", str(device_id + 1))
    return device_id
