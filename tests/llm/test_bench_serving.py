"""The benchmark of serving counts what the specification's queue must take."""

import json
import xml.etree.ElementTree

import warm_python
from llm_packages import ROOT

SCRIPT = ROOT / "benchmarks" / "bench_serving.py"


def test_the_queue_of_32_takes_126_steps_and_396_static(tiny_package, tmp_path):
    package = tiny_package(batch=8, context_length=128, prefill_length=16)
    lengths, picture = tmp_path / "lengths.csv", tmp_path / "plot.svg"
    lengths.write_text("".join(f"{5 + i % 3},{100 if i % 8 == 0 else 10}\n" for i in range(32)))
    options = ["--lengths", lengths, "--rate", 0, "--chunks-per-step", 0, "--json", "--svg", picture]
    done = warm_python.run(SCRIPT, package.folder, *options)
    assert done.returncode == 0, done.stderr
    results = {result["mode"]: result for result in json.loads(done.stdout)["results"]}
    assert {mode: result["decode_steps"] for mode, result in results.items()} == {"continuous": 126, "static": 396}
    for result in results.values():
        assert result["tokens"] == 4 * 100 + 28 * 10
        for name in ("ttft", "between", "whole"):
            assert 0 < result[name]["p50"] <= result[name]["p90"] <= result[name]["p99"] <= result["seconds"]
    lines = xml.etree.ElementTree.parse(picture).getroot().findall("{http://www.w3.org/2000/svg}polyline")
    assert len(lines) == 6


def test_requests_arrive_at_the_rate_asked_for(tiny_package):
    package = tiny_package(batch=2, context_length=64, prefill_length=16)
    options = ["--rate", 40, "--requests", 20, "--prompt-tokens", 8, "--answer-tokens", 4, "--mode", "continuous"]
    done = warm_python.run(SCRIPT, package.folder, *options, "--json")
    assert done.returncode == 0, done.stderr
    (result,) = json.loads(done.stdout)["results"]
    assert result["seconds"] > 0.2  # 20 arrivals, 25 ms apart on average


def test_a_load_that_does_not_fit_is_refused(tiny_package, tmp_path):
    package = tiny_package(batch=2, context_length=64, prefill_length=16)
    (tmp_path / "lengths").write_text("60,10\n")
    done = warm_python.run(SCRIPT, package.folder, "--lengths", tmp_path / "lengths")
    assert done.returncode == 1
    assert done.stderr == "error: request 0 is longer than the context of 64 tokens\n"
