"""The model of the chip's time: what a run costs by the profile, its file, and the fit to published figures."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from graph_maker import GraphMaker
from imported import imported
from tiny_graphs import attention_graph, heads_graphs, linear_graph

from tcim_lite import _core, hmm
from tcim_lite.bench.device_time import device_seconds, pipeline_seconds
from tcim_lite.cli import main
from tcim_lite.errors import ArgumentError
from tcim_lite.models.families import FAMILIES

ROOT = Path(__file__).parent.parent
PROFILE = (ROOT / "csrc/runtime/m50.toml").read_text()


def changed(**values: float) -> str:
    lines = PROFILE.splitlines()
    return "\n".join(
        next((f"{key} = {values[key]}" for key in values if line.startswith(f"{key} =")), line) for line in lines
    )


def seconds(graph: hmm.Graph, depth: int = 0, **values: float) -> float:
    return _core.run_seconds([_core.graph_cost(hmm.encode_graph(graph))], depth, changed(**values))


def test_an_op_takes_the_longer_of_reading_and_computing_and_its_own_time():
    graph = linear_graph(5)  # 5 rows of 8 times [16, 8] in float32
    slow_reading = {"read_gb": 1e-6, "linear_int8_tops": 1000.0, "op_us": 7.0}
    assert seconds(graph, **slow_reading) == pytest.approx(16 * 8 * 4 / 1e3 + 7e-6)
    slow_computing = {"linear_int8_tops": 1e-9, "conv_int8_tops": 20.0, "conv_float_tops": 10.0, "op_us": 7.0}
    assert seconds(graph, **slow_computing) == pytest.approx(2 * 5 * 16 * 8 / 500 + 7e-6)


def test_attention_reads_and_computes_the_rows_that_tokens_see():
    graph, heads, head_dim = attention_graph(4), 2, 64
    extra = {"op_us": 1e-9}
    row_bytes = 2 * heads * head_dim * 2
    reading = [seconds(graph, depth, read_gb=1e-6, **extra) for depth in (0, 9)]
    assert reading == pytest.approx([row_bytes * rows / 1e3 for rows in (4, 13)])
    computing = [seconds(graph, depth, attention_tops=1e-9, **extra) for depth in (0, 9)]
    pairs = [sum(depth + token + 1 for token in range(4)) for depth in (0, 9)]
    assert computing == pytest.approx([4 * heads * head_dim * count / 1e3 for count in pairs])


def test_views_take_no_time():
    maker = GraphMaker("views")
    y = maker.op("Reshape", [maker.input("x", (1, 4, 8))], "y", (1, 4, 2, 4))
    assert seconds(maker.graph(maker.op("Add", [y, y], "z", (1, 4, 2, 4))), op_us=7.0) == pytest.approx(7e-6)


def test_a_window_limits_what_is_computed():
    extra = {"attention_tops": 1e-9, "op_us": 1e-9}
    near = seconds(attention_graph(2, window=10), 30, **extra)
    assert near == pytest.approx(seconds(attention_graph(2, window=10), 10, **extra))
    assert near < seconds(attention_graph(2), 30, **extra) / 2


def test_half_the_clock_doubles_computing_and_not_reading():
    cost = [_core.graph_cost(hmm.encode_graph(linear_graph(5)))]
    computing, reading = changed(linear_int8_tops=1e-9, op_us=1e-9), changed(read_gb=1e-6, op_us=1e-9)
    assert _core.run_seconds(cost, 0, computing, 0.5) == pytest.approx(2 * _core.run_seconds(cost, 0, computing))
    assert _core.run_seconds(cost, 0, reading, 0.5) == _core.run_seconds(cost, 0, reading)


def test_the_slowest_device_decides():
    split = hmm.Split([-1, -1, -1, 1, 1], [-1])
    parts = hmm.read(hmm.model_bytes(heads_graphs(4, (2, 1)), split=split))
    costs = [_core.graph_cost(hmm.encode_graph(graph)) for graph in parts.graphs]
    alone = [_core.run_seconds([cost], 7, changed(read_gb=1e-3)) for cost in costs]
    assert alone[0] > alone[1]
    assert device_seconds([parts], 7, changed(read_gb=1e-3)) == [max(alone)]


def test_runs_follow_one_another_through_a_pipeline():
    assert pipeline_seconds([[1.0, 1.0, 1.0]], 0.0) == 3
    assert pipeline_seconds([[1.0, 1.0, 1.0], [1.0, 1.0, 1.0]], 0.0) == 4
    assert pipeline_seconds([[1.0, 1.0, 1.0], [2.0, 2.0, 2.0]], 0.5) == pytest.approx(1.5 + 3 * 2.5)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("read_gb =", "read_mb =", r"profile:\d+: there is no key 'fitted.read_mb'"),
        ("op_us =", "op_us = -1 #", r"profile:\d+: op_us is wrong, expected a number above 0"),
        ("op_us =", "op_us = inf #", r"profile:\d+: "),
        ("cores = 2", "cores = 0", r"profile:\d+: cores is wrong, expected an integer from 1"),
        ('name = "M50"', "", "profile: there is no chip.name"),
        ("idle_watts = 10.0", "idle_watts = 99.0", "busy_watts is 15.2, expected idle_watts, 99, or more"),
        ("[power]", "[[power]]", "is there twice"),
        ("[thermal]", "[weather]", "there is no key 'weather.ambient_c'"),
    ],
)
def test_a_wrong_profile_is_refused(old, new, message):
    assert old in PROFILE
    with pytest.raises(ArgumentError, match=message):
        _core.chip_profile(PROFILE.replace(old, new))


@pytest.fixture(scope="module")
def fit():
    return imported(ROOT / "benchmarks/fit_m50.py")


def parameters(fit) -> dict[str, float]:
    lines = (line.split("#")[0].split("=") for line in PROFILE.splitlines() if "=" in line)
    return {key.strip(): float(value) for key, value in lines if key.strip() in fit.START}


def test_every_fitted_row_is_within_15_percent_and_the_page_shows_what_the_profile_gives(fit):
    model = fit.Model(parameters(fit))
    page = (ROOT / "docs" / "clock.md").read_text()
    for row in fit.ROWS:
        predicted = row.predict(model)
        if not row.why_not:
            assert abs(predicted / row.seconds - 1) < 0.15, row.title
        assert f"| {row.title} | {row.seconds * 1e3:.2f} | {predicted * 1e3:.2f} | " in page


def test_the_profile_is_where_the_fit_ends(fit):
    """No parameter can be moved by a hundredth for a smaller error, limits aside."""
    rows = [row for row in fit.ROWS if not row.why_not]

    def loss(values: dict[str, float]) -> float:
        return sum((row.predict(fit.Model(values)) / row.seconds - 1) ** 2 for row in rows)

    at = parameters(fit)
    best = loss(at)
    for key, value in at.items():
        for factor in (0.99, 1.01):
            if value * factor <= fit.LIMITS.get(key, float("inf")):
                assert loss({**at, key: value * factor}) > best - 1e-6, key


def test_bench_prints_modelled_times_of_every_graph(tmp_path, capsys):
    (tmp_path / "config.json").write_text(json.dumps(FAMILIES["qwen3"].tiny_config))
    sizes = ["--prefill-length", "16", "--context-length", "64", "--verify-length", "3"]
    several = ["--pipeline", "2", "--ndevice", "2", "--name", "p"]
    assert (
        main(["compile", str(tmp_path), "-o", str(tmp_path / "out"), "--random-weights", "-q", *sizes, *several]) == 0
    )
    capsys.readouterr()
    assert main(["bench", str(tmp_path / "out"), "--device-time"]) == 0
    text = capsys.readouterr().out
    assert "modelled" in text.splitlines()[0]
    assert [line[:30].strip() for line in text.splitlines()[3:]] == [
        "prefill 16",
        "verify 3",
        "decode at 0",
        "decode at 32",
        "prefill 16, 2 devices",
        "verify 3, 2 devices",
        "decode, 2 devices at 0",
        "decode, 2 devices at 32",
        "prefill 16, 2 stages",
        "verify 3, 2 stages",
        "decode, 2 stages at 0",
        "decode, 2 stages at 32",
    ]
    assert main(["bench", str(tmp_path / "out"), "--device-time", "--json", "--depth", "5"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert content["modelled"] is True
    by_title = {(each["title"], each["depth"]): each["seconds"] for each in content["timings"]}
    decode = hmm.read(tmp_path / "out" / "p_decode.hmm")
    assert by_title["decode", 5] == device_seconds([decode], 5)[0]
    assert by_title["decode, 2 stages", 5] > 2 * _core.chip_profile()["stage_ms"] * 1e-3
    assert main(["bench", str(tmp_path / "out"), "--device-time", "--depth", "64"]) == 2
