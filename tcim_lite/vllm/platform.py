"""What vLLM asks of a platform: names, and a configuration that a package can serve."""

from __future__ import annotations

from typing import Any

import torch
import vllm
from vllm.logger import init_logger
from vllm.platforms.interface import Platform, PlatformEnum

from tcim_lite.llm import Package

from . import VERSION
from .parallel import check_parallel
from .shape import package_shape

_log = init_logger("vllm.tcim_lite")


class TcimPlatform(Platform):
    """Tensors of vLLM stay on the CPU; the package runs on the devices of `tcim_lite.runtime`."""

    _enum = PlatformEnum.OOT
    device_name = "cpu"
    device_type = "cpu"
    dispatch_key = "CPU"
    dist_backend = "gloo"
    simple_compile_backend = "eager"  # inductor compiles the ranks of logprobs during the first request
    device_control_env_var = "HOUMO_VISIBLE_DEVICES"

    @classmethod
    def import_kernels(cls) -> None:
        """There are none. vLLM's shutdown empties caches of an accelerator that is not there."""
        if not torch.accelerator.is_available():
            for name in ("empty_cache", "empty_host_cache"):
                if hasattr(torch.accelerator, name):
                    setattr(torch.accelerator, name, lambda: None)

    @classmethod
    def get_device_name(cls, device_id: int = 0) -> str:
        """As the runtime's tools call it."""
        return "M50"

    @classmethod
    def inference_mode(cls) -> Any:
        """The sampler writes into tensors that outlive a step, so no inference mode."""
        return torch.no_grad()

    @classmethod
    def is_pin_memory_available(cls) -> bool:
        """False: there is no accelerator of torch."""
        return False

    @classmethod
    def update_block_size_for_backend(cls, vllm_config: Any) -> None:
        """There is no attention backend to fit."""

    @classmethod
    def validate_request(cls, processed_inputs: Any, params: Any) -> None:
        """Raises ValueError for what a package cannot answer."""
        if getattr(params, "prompt_logprobs", None) is not None:
            raise ValueError(
                "prompt_logprobs: the plugin returns logprobs of the answer only; `tcim-lite serve` returns those of "
                "the prompt, of a package compiled with --all-logits"
            )

    @classmethod
    def check_and_update_config(cls, vllm_config: Any) -> None:
        """Fits the configuration to the package; raises ValueError where that would change what was asked for."""
        if not vllm.__version__.startswith(VERSION):
            raise ValueError(f"vLLM {vllm.__version__}: this plugin is made for {VERSION}*; tests/vllm/setup_env.sh")
        model = vllm_config.model_config
        if model is None:
            return
        _refuse(vllm_config)
        package = Package.open(model.model)
        check_parallel(vllm_config.parallel_config, package, (vllm_config.additional_config or {}).get("devices"))
        slots, context = package_shape(package)
        if model.original_max_model_len is None:
            model.max_model_len = min(model.max_model_len, context)
        elif model.max_model_len > context:
            raise ValueError(
                f"max_model_len={model.max_model_len}: the package has a context of {context}; pass --max-model-len "
                f"{context}, or compile with --context-length {model.max_model_len}"
            )
        cache, scheduler = vllm_config.cache_config, vllm_config.scheduler_config
        if cache.user_specified_block_size and cache.block_size != model.max_model_len:
            raise ValueError(
                f"block_size={cache.block_size}: a block is a slot of the package, {model.max_model_len} tokens, which "
                "no two requests can share; leave --block-size out"
            )
        cache.block_size = model.max_model_len
        cache.enable_prefix_caching = False  # shared blocks would answer with the rows of another request
        if scheduler.max_num_seqs > slots:
            _log.info("max_num_seqs=%d becomes %d, the slots of the package", scheduler.max_num_seqs, slots)
            scheduler.max_num_seqs = slots
        scheduler.async_scheduling = False
        if vllm_config.parallel_config.worker_cls == "auto":
            vllm_config.parallel_config.worker_cls = "tcim_lite.vllm.worker.TcimWorker"


def _refuse(vllm_config: Any) -> None:
    if vllm_config.lora_config is not None:
        raise ValueError("LoRA: the weights of a package are compiled; merge the adapter into the checkpoint")
    if vllm_config.speculative_config is not None:
        raise ValueError("speculative_config: a decode graph takes one token a slot; leave it out")
    if vllm_config.kv_transfer_config is not None:
        raise ValueError("kv_transfer_config: cache rows stay on the device of their slot; leave it out")
