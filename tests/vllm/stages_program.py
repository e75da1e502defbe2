"""stages_program.py PACKAGE BACKEND RANK < PROMPTS > RESULT: answers with two stages, kills one, and starts again.

A program of its own, because it may run in another network namespace than the test.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path

os.environ.update(VLLM_PLUGINS="tcim_lite", HF_HUB_OFFLINE="1", VLLM_ALLOW_INSECURE_SERIALIZATION="1")


def identity(worker) -> tuple[int, str]:
    """Process and machine of a worker."""
    return os.getpid(), os.environ.get("GLOO_SOCKET_IFNAME", "")


def shared_memory(pid: int) -> set[str]:
    """What a process has mapped of vLLM's queues; the rest in /dev/shm is Ray's, which goes with its node."""
    lines = Path(f"/proc/{pid}/maps").read_text().split("\n")
    return {line.split(maxsplit=5)[5].removesuffix(" (deleted)") for line in lines if "/dev/shm/psm_" in line}


def main(package: str, backend: str, rank: int) -> dict:
    from vllm import LLM, SamplingParams

    greedy = SamplingParams(temperature=0, max_tokens=16, ignore_eos=True)
    asked = [{"prompt_token_ids": tokens} for tokens in json.load(sys.stdin)]

    def start() -> LLM:
        options = {"pipeline_parallel_size": 2, "distributed_executor_backend": backend}
        return LLM(model=package, seed=0, max_num_batched_tokens=48, **options)

    def answers(llm: LLM) -> list[list[int]]:
        return [list(out.outputs[0].token_ids) for out in llm.generate(asked, greedy, use_tqdm=False)]

    llm = start()
    result: dict = {"before": answers(llm)}
    workers = llm.collective_rpc(identity)
    result["interfaces"] = [interface for _, interface in workers]
    pids = [pid for pid, _ in workers]
    memory = set().union(*map(shared_memory, pids))
    begin = time.monotonic()
    os.kill(pids[rank], signal.SIGKILL)
    try:
        answers(llm)
        result["error"] = None
    except Exception as error:
        result["error"] = f"{type(error).__name__}: {error}"
    result["seconds"] = time.monotonic() - begin
    llm.llm_engine.engine_core.shutdown()
    while any(os.path.exists(f"/proc/{pid}") for pid in pids) and time.monotonic() < begin + 60:
        time.sleep(0.1)
    result["left"] = [pid for pid in pids if os.path.exists(f"/proc/{pid}")]
    llm = start()
    result["after"] = answers(llm)
    workers = llm.collective_rpc(identity)
    result["memory"] = sorted(memory.union(*(shared_memory(pid) for pid, _ in workers)))
    llm.llm_engine.engine_core.shutdown()
    return result


if __name__ == "__main__":
    channel = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # vLLM prints to standard output
    json.dump(main(sys.argv[1], sys.argv[2], int(sys.argv[3])), channel)
    channel.close()
