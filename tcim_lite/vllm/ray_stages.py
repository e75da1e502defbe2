"""Stages on the machines of a Ray cluster: vLLM's executor for Ray, told how a machine's M50 are named.

A machine declares them with `ray start --resources '{"M50": 2}'`. Ray counts a resource that it does not know, but
gives its units no ids; vLLM asks for these. So a worker takes a device by its number among the workers of its machine.
Gloo listens where a machine's name points to, which often is the loopback, unless it is told the interface.
"""

from __future__ import annotations

import os
import time
import weakref
from typing import Any

import psutil
import ray
from vllm.v1.executor import ray_executor_v2

from .ending import end_with_starters

# What says which devices there are is each machine's own business.
_OF_A_MACHINE = ("HOUMO_VISIBLE_DEVICES", "TCIM_LITE_DEVICES", "TCIM_LITE_DEVICE_NUM")


class StageProc(ray_executor_v2.RayWorkerProc):
    """The actor of a stage."""

    def get_node_and_physical_gpu_ids(self) -> tuple[str, list[int]]:
        """The machine; no ids of devices, see above."""
        return ray.get_runtime_context().get_node_id(), []

    def initialize_worker(
        self,
        local_rank: int,
        env_vars: dict[str, str],
        distributed_init_method: str,
        driver_env_vars: dict[str, str] | None = None,
        assigned_physical_gpu_ids: list[int] | None = None,
    ) -> None:
        """As vLLM's; the stages talk over the interface that Ray uses, unless `GLOO_SOCKET_IFNAME` says another."""
        name = "GLOO_SOCKET_IFNAME"
        if name not in (driver_env_vars or {}) and (interface := _interface(ray.util.get_node_ip_address())):
            os.environ.setdefault(name, interface)
        super().initialize_worker(
            local_rank, env_vars, distributed_init_method, driver_env_vars, assigned_physical_gpu_ids
        )

    def run(self) -> None:
        """As vLLM's. Ray ends an actor by SIGKILL, so the memory of its answers, open by now, loses its name."""
        buffer = getattr(self.worker_response_mq, "buffer", None)
        if buffer is not None and buffer.is_creator:
            buffer.shared_memory.unlink()
            buffer.is_creator = False
        super().run()


class RayStages(ray_executor_v2.RayExecutorV2):
    """`--distributed-executor-backend ray`; the platform puts this class in its place."""

    response_mqs: list[Any]

    def _init_executor(self) -> None:
        end_with_starters()  # no worker here would notice that the server was killed; Ray ends actors of a driver
        ray_executor_v2.WORKER_SPECIFIC_ENV_VARS.update(_OF_A_MACHINE)
        ray_executor_v2.RayWorkerProc = StageProc
        super()._init_executor()
        self.response_mqs = [_Answers(queue, self) for queue in self.response_mqs]

    def _build_runtime_env(self) -> dict[str, Any]:
        """An actor imports vLLM, and so chooses a platform, before vLLM hands it the driver's variables."""
        runtime_env: dict[str, Any] = super()._build_runtime_env()
        if "VLLM_PLUGINS" in os.environ:
            runtime_env.setdefault("env_vars", {})["VLLM_PLUGINS"] = os.environ["VLLM_PLUGINS"]
        return runtime_env


class _Answers:
    """A worker's answers: vLLM would wait five minutes for those of a worker on another machine that has ended."""

    def __init__(self, queue: Any, executor: RayStages):
        self._queue, self._executor = queue, weakref.ref(executor)

    def dequeue(self, timeout: float | None = None) -> Any:
        """As `MessageQueue.dequeue`; RuntimeError once the executor knows that a worker has ended."""
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            left = 1.0 if until is None else min(1.0, until - time.monotonic())
            try:
                return self._queue.dequeue(timeout=max(0.0, left))
            except TimeoutError:
                if (executor := self._executor()) is None or executor.is_failed:
                    raise RuntimeError("the process of a stage has ended") from None
                if until is not None and time.monotonic() >= until:
                    raise

    def shutdown(self) -> None:
        """As `MessageQueue.shutdown`."""
        self._queue.shutdown()


def _interface(address: str) -> str | None:
    """The network interface that has an address."""
    interfaces = psutil.net_if_addrs().items()
    return next((name for name, given in interfaces if address in [each.address for each in given]), None)
