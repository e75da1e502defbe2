"""vLLM's worker: owns the devices of a package, and has vLLM's blocks be its slots."""

from __future__ import annotations

import os
from typing import Any

import torch
from vllm.distributed.kv_transfer import (
    ensure_kv_transfer_initialized,
    ensure_kv_transfer_shutdown,
    get_kv_transfer_group,
)
from vllm.distributed.parallel_state import (
    ensure_model_parallel_initialized,
    get_pp_group,
    init_distributed_environment,
)
from vllm.tokenizers import cached_tokenizer_from_config
from vllm.v1.kv_cache_interface import FullAttentionSpec
from vllm.v1.outputs import EMPTY_MODEL_RUNNER_OUTPUT
from vllm.v1.worker.worker_base import CompilationTimes, WorkerBase

import tcim_lite.runtime as tcim
from tcim_lite.llm import Package
from tcim_lite.llm.engine.slots import Slots

from .adapters import LoadedAdapters
from .case import Case
from .embedder import Embedder
from .ending import end_with_starters
from .images import SeenImages
from .parallel import named_devices, replica_devices, stage_device
from .runner import Runner
from .shape import Shape
from .stages import Link, load_stage


class TcimWorker(WorkerBase):
    """One process with a package, or with one stage of it; its devices are those that `parallel` says."""

    _images: SeenImages | None = None  # None: the package has no tower
    _adapters: LoadedAdapters | None = None  # None: without --enable-lora

    def init_device(self) -> None:
        """Torch's side; the package's devices are opened by `load_model`."""
        end_with_starters()
        self.device = torch.device("cpu")
        if "OMP_NUM_THREADS" not in os.environ:  # threads that wait for each other in every op of a sampler lose time
            torch.set_num_threads(1)
        parallel = self.parallel_config
        init_distributed_environment(
            parallel.world_size, self.rank, self.distributed_init_method, self.local_rank, "gloo"
        )
        ensure_model_parallel_initialized(1, parallel.pipeline_parallel_size)

    def load_model(self, *, load_dummy_weights: bool = False) -> None:
        """Loads the package; it has its weights, so `load_dummy_weights` changes nothing."""
        parallel, case = self.parallel_config, Case.read(self.model_config.model)
        package = Package.open(case.folder)
        devices = named_devices(self.vllm_config.additional_config)
        self._is_last = get_pp_group().is_last_rank
        if parallel.pipeline_parallel_size > 1:
            device = stage_device(parallel, package, devices, self.rank, self.local_rank)
            self._slots = load_stage(package, self.rank, device, Link(get_pp_group()))
        else:
            own = replica_devices(parallel, package, devices, case.parallel_size)
            self._slots, device = Slots.open(package, devices=own), own[0]
        if self.model_config.supports_multimodal_inputs:
            tokenizer = cached_tokenizer_from_config(self.model_config)
            self._images = SeenImages(package, tokenizer, tcim.WeightManager(device))
        if (lora := self.lora_config) is not None:
            shape = Shape.read(package)
            self._adapters = LoadedAdapters(self._slots.adapters, package, shape.lora, lora.max_cpu_loras)

    def get_supported_tasks(self) -> tuple[str, ...]:
        """Text, or the vectors of packages that give hidden states."""
        return ("embed",) if self.model_config.runner_type == "pooling" else ("generate",)

    def get_kv_cache_spec(self) -> dict[str, Any]:
        """One block of `max_model_len` tokens is a slot; heads and sizes are the package's own business."""
        spec = FullAttentionSpec(
            block_size=self.cache_config.block_size, num_kv_heads=1, head_size=1, dtype=torch.float16
        )
        return {"slots": spec}

    def get_supported_kv_cache_layouts(self) -> list[str]:
        """Any would do: vLLM lays nothing out here."""
        return ["LBNHC"]

    def determine_available_memory(self) -> int:
        """So much that vLLM counts B + 1 blocks; block 0 is its null block."""
        return (len(self._slots) + 1) * next(iter(self.get_kv_cache_spec().values())).page_size_bytes

    def initialize_from_config(self, kv_cache_config: Any) -> None:
        """The caches exist; only the number of blocks can be wrong."""
        if kv_cache_config.num_blocks != len(self._slots) + 1:
            raise ValueError(
                f"vLLM has {kv_cache_config.num_blocks} blocks, expected {len(self._slots) + 1} for "
                f"{len(self._slots)} slots; leave options of the KV cache's size out"
            )
        connector = None
        if self.vllm_config.kv_transfer_config is not None:
            ensure_kv_transfer_initialized(self.vllm_config, kv_cache_config)
            connector = get_kv_transfer_group()
            connector.register_slots(self._slots)
        kind = Embedder if self.model_config.runner_type == "pooling" else Runner
        self.runner = kind(self._slots, self.vllm_config, connector, self._adapters, self._images)

    def get_kv_connector_handshake_metadata(self) -> None:
        """Rows leave no process, so there is nobody to shake hands with."""

    def compile_or_warm_up_model(self) -> Any:
        """The package is compiled."""
        return CompilationTimes(language_model=0.0, encoder=0.0)

    def execute_model(self, scheduler_output: Any) -> Any:
        """Runs the graphs; None where `sample_tokens` has to follow."""
        self.runner.update(scheduler_output)
        if not scheduler_output.total_num_scheduled_tokens:
            return EMPTY_MODEL_RUNNER_OUTPUT
        self.runner.run(scheduler_output)
        return self.runner.pool() if isinstance(self.runner, Embedder) else None

    def sample_tokens(self, grammar_output: Any) -> Any:
        """A `ModelRunnerOutput` with a token of each request whose tokens have all been run.

        None before the last stage; vLLM tells those stages of the tokens with the next step.
        """
        return self.runner.sample(grammar_output) if self._is_last else None

    def add_lora(self, lora_request: Any) -> bool:
        """Loads an adapter; raises ValueError if the graphs do not take it."""
        self._loaded().add(lora_request, self.runner.adapters_in_use)
        return True

    def remove_lora(self, lora_id: int) -> bool:
        """Forgets an adapter; requests that have it keep it."""
        return self._loaded().remove(lora_id, self.runner.adapters_in_use)

    def pin_lora(self, lora_id: int) -> bool:
        """Keeps an adapter, however many come."""
        return self._loaded().pin(lora_id)

    def list_loras(self) -> set[int]:
        """Ids of the adapters that are loaded."""
        return self._loaded().ids

    def _loaded(self) -> LoadedAdapters:
        if self._adapters is None:
            raise ValueError("there are no adapters without --enable-lora")
        return self._adapters

    def reset_encoder_cache(self) -> None:
        """Forgets what the tower made of images."""
        if self._images is not None:
            self._images.forget()

    def sleep(self, level: int = 1) -> None:
        """Raises NotImplementedError."""
        raise NotImplementedError("sleep: weights and rows stay on the devices; end the engine to free them")

    def profile(self, is_start: bool = True, profile_prefix: str | None = None) -> None:
        """Raises NotImplementedError."""
        raise NotImplementedError("profile: start vLLM with TCIM_LITE_LAYERS=trace:FILE.json (docs/trace.md)")

    def execute_dummy_batch(self) -> None:
        """Nothing waits for another replica here."""

    def synchronize_device(self) -> None:
        """Every run is synchronised where its logits are read."""

    def shutdown(self) -> None:
        """Frees the devices."""
        ensure_kv_transfer_shutdown()
        self.__dict__.pop("runner", None)
        self.__dict__.pop("_slots", None)
