"""Stages that are killed, fail or lose their server; on one machine, and on the two hosts of a Ray cluster."""

import inspect
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("stages_program.py")
CHECKPOINT = Path(__file__).parents[2] / "examples" / "demo_checkpoint"
BIN = Path(sys.executable).parent
PROMPTS = [list(range(5, 5 + length)) for length in (3, 40, 70, 9, 1, 33)]
HOSTS = {"tcimhost1": "10.77.0.1", "tcimhost2": "10.77.0.2"}  # network namespaces, joined by a cable of their own
ENVIRONMENT = {
    **os.environ,
    "PATH": f"{BIN}:{os.environ['PATH']}",
    "VLLM_PLUGINS": "tcim_lite",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "1",
    "HF_HUB_OFFLINE": "1",
    "TCIM_LITE_DEVICE_NUM": "4",
    "RAY_USAGE_STATS_ENABLED": "0",
}


@pytest.fixture(scope="session")
def package(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("staged")
    options = ["-o", str(folder), "--batch", "4", "--prefill-length", "32", "--pipeline", "2", "-q"]
    subprocess.run([sys.executable, "-P", "-m", "tcim_lite", "compile", str(CHECKPOINT), *options], check=True)
    return folder


@pytest.fixture(scope="session")
def alone(package) -> list[list[int]]:
    """The greedy tokens of each prompt, in slot 0 of the whole package on one device."""
    from tcim_lite.llm.engine.slots import Slots

    slots, found = Slots.open(package), []
    for prompt in PROMPTS:
        slots.tokens[0] = []
        for begin in range(0, len(prompt), slots.chunk_length):
            logits = slots.prefill(0, prompt[begin : begin + slots.chunk_length])
        tokens = [int(logits.argmax())]
        while len(tokens) < 16:
            tokens.append(int(slots.decode({0: tokens[-1]})[0].argmax()))
        found.append(tokens)
    return found


def kill_and_restart(package: Path, backend: str, rank: int, before: tuple[str, ...] = (), **env: str) -> dict:
    """The result of `stages_program.py`; what it printed is in the failure of a test."""
    command = [*before, sys.executable, "-P", str(PROGRAM), str(package), backend, str(rank)]
    done = subprocess.run(command, input=json.dumps(PROMPTS), env=ENVIRONMENT | env, capture_output=True, text=True)
    print(done.stderr)
    assert done.returncode == 0
    result: dict = json.loads(done.stdout)
    return result


def check(result: dict, alone: list[list[int]]) -> None:
    assert result["before"] == alone
    assert result["error"].startswith("EngineDeadError")
    assert result["left"] == []
    assert result["after"] == alone
    assert result["memory"]
    assert [name for name in result["memory"] if os.path.exists(name)] == []


@pytest.mark.parametrize("rank", [0, 1])
def test_a_killed_stage_is_an_error_and_a_restart_works(package, alone, rank):
    check(kill_and_restart(package, "mp", rank), alone)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory) -> Iterator[tuple[str, ...]]:
    """Two Ray nodes with one M50 each, on hosts of their own; gives what runs a command on the first host."""
    pytest.importorskip("ray")
    names, folder = list(HOSTS), tmp_path_factory.mktemp("r")
    commands = [f"ip netns add {name}" for name in names] + [f"ip -n {name} link set lo up" for name in names]
    commands.append(f"ip link add cable1 netns {names[0]} type veth peer name cable2 netns {names[1]}")
    for number, (name, address) in enumerate(HOSTS.items(), 1):
        commands += [f"ip -n {name} addr add {address}/24 dev cable{number}", f"ip -n {name} link set cable{number} up"]
    ray = ["start", "--block", "--num-cpus", "1", "--disable-usage-stats", "--resources", '{"M50": 1}']
    head = ["--head", "--port", "6379", "--include-dashboard", "false", "--temp-dir", str(folder)]
    nodes = []
    try:
        for command in commands:
            if subprocess.run(command.split(), capture_output=True).returncode:
                pytest.skip("network namespaces need root and iproute2")
        for name, joins in zip(names, (head, ["--address", f"{HOSTS[names[0]]}:6379"]), strict=True):
            command = ["ip", "netns", "exec", name, str(BIN / "ray"), *ray, *joins, "--node-ip-address", HOSTS[name]]
            nodes.append(subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.DEVNULL, start_new_session=True))
            wait_for(lambda: ray_nodes(names[0]) == len(nodes), 120)
        yield ("ip", "netns", "exec", names[0])
    finally:
        for node in reversed(nodes):
            node.terminate()
            node.wait(60)
        for name in names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True)


def ray_nodes(host: str) -> int:
    """Nodes that the cluster's head knows to be alive; 0 while there is no head."""
    command = ["ip", "netns", "exec", host, str(BIN / "ray"), "status", "--address", f"{HOSTS[host]}:6379"]
    return subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True).stdout.count(" 1 node_")


def wait_for(what, seconds: float) -> None:
    until = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < until
        time.sleep(0.5)


def test_what_is_overridden_for_ray_exists_in_the_pinned_vllm():
    ray_stages = pytest.importorskip("tcim_lite.vllm.ray_stages")
    bases = {ray_stages.StageProc: ray_stages.StageProc.__base__, ray_stages.RayStages: ray_stages.RayStages.__base__}
    for ours, base in bases.items():
        assert base.__module__ == "vllm.v1.executor.ray_executor_v2"
        for name, member in vars(ours).items():
            if inspect.isfunction(member):
                assert list(inspect.signature(member).parameters) == list(
                    inspect.signature(getattr(base, name)).parameters
                ), name
    assert "self.response_mqs" in inspect.getsource(ray_stages.RayStages.__base__._init_executor)


def test_stages_on_two_hosts_of_a_ray_cluster_give_the_tokens_of_one_device(package, alone, cluster):
    result = kill_and_restart(package, "ray", 1, cluster, RAY_ADDRESS=f"{HOSTS['tcimhost1']}:6379")
    check(result, alone)
    assert result["interfaces"] == ["cable1", "cable2"]
