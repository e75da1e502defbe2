"""Replicas with devices of their own behind one server, and what is left of a server that was killed."""

import json
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
from live_fixtures import case_folder, compile_demo, devices_below, post, served


@pytest.fixture(scope="session")
def package(tmp_path_factory) -> Path:
    """As a whole, in two stages, and for two devices."""
    return compile_demo(tmp_path_factory.mktemp("replicas"), "--pipeline", "2", "--ndevice", "2")


def server_at(address: str) -> psutil.Process:
    """The process that `served` started."""
    port = address.rpartition(":")[2]
    return next(each for each in psutil.Process().children() if each.cmdline()[-2:] == ["--port", port])


def answers(address: str, model: Path, prompts: list[list[int]]) -> list[list[int]]:
    """Greedy tokens of all prompts, asked at once."""

    def ask(prompt: list[int]) -> list[int]:
        body = {"model": str(model), "prompt": prompt, "max_tokens": 16, "temperature": 0, "ignore_eos": True}
        reply = post(f"{address}/v1/completions", body | {"return_token_ids": True})
        return reply["choices"][0]["token_ids"]

    with ThreadPoolExecutor(len(prompts)) as pool:
        return list(pool.map(ask, prompts))


def check_that_nothing_outlives(server: psutil.Process) -> None:
    below = server.children(recursive=True)
    os.kill(server.pid, signal.SIGKILL)
    _, alive = psutil.wait_procs(below, timeout=60)
    left = [each.cmdline() for each in alive if each.is_running() and each.status() != psutil.STATUS_ZOMBIE]
    for each in alive:
        each.kill()
    assert left == []


@pytest.mark.parametrize(
    ("visible", "options", "used"),
    [
        ("0,1,2,3", {"devices": {"0": [0, 1], "1": [2, 3]}}, [{0, 1}, {2, 3}]),
        ("0,1,2,3", {"devices": {"0": [3], "1": [1]}}, [{1}, {3}]),
        ("2,0,1,3", {}, [{0}, {2}]),
    ],
    ids=["two devices each", "one device each", "no lists"],
)
def test_replicas_answer_on_devices_of_their_own(package, prompts, alone, visible, options, used):
    arguments = ["--data-parallel-size", "2", "--api-server-count", "1", "--additional-config", json.dumps(options)]
    with served(str(package), *arguments, HOUMO_VISIBLE_DEVICES=visible) as address:
        assert answers(address, package, prompts) == alone
        server = server_at(address)
        assert devices_below(server) == used
        check_that_nothing_outlives(server)


def test_replicas_of_a_case_folder_share_out_the_visible_devices(package, tmp_path, prompts, alone):
    folder = case_folder(tmp_path / "case", package, devices=2)
    with served(str(folder), "--data-parallel-size", "2", HOUMO_VISIBLE_DEVICES="3,1,0,2") as address:
        assert answers(address, folder, prompts) == alone
        server = server_at(address)
        assert devices_below(server) == [{0, 2}, {1, 3}]
        check_that_nothing_outlives(server)


@pytest.mark.parametrize(("arguments", "used"), [([], [{3}]), (["--pipeline-parallel-size", "2"], [{1}, {3}])])
def test_workers_end_with_a_server_that_was_killed(package, prompts, alone, arguments, used):
    with served(str(package), *arguments, HOUMO_VISIBLE_DEVICES="3,1") as address:
        assert answers(address, package, prompts) == alone
        server = server_at(address)
        assert devices_below(server) == used
        check_that_nothing_outlives(server)
