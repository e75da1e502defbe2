"""What vLLM asks of a platform: names, and a configuration that a package can serve."""

from __future__ import annotations

import os
from typing import Any

import torch
import vllm
from vllm.exceptions import VLLMValidationError
from vllm.logger import init_logger
from vllm.platforms.interface import Platform, PlatformEnum

from tcim_lite.llm import Package

from . import VERSION
from .case import Case
from .ending import end_coordinator_with_server
from .parallel import check_parallel, named_devices
from .refusals import CONNECTOR, check_runner, check_states, fit_adapters, fit_images, refuse_options
from .shape import Shape

_log = init_logger("vllm.tcim_lite")

# Each process of vLLM, when it ends, empties caches of an accelerator that is not there.
if not torch.accelerator.is_available():
    for _name in ("empty_cache", "empty_host_cache"):
        if hasattr(torch.accelerator, _name):
            setattr(torch.accelerator, _name, lambda: None)


end_coordinator_with_server()


class TcimPlatform(Platform):
    """Tensors of vLLM stay on the CPU; the package runs on the devices of `tcim_lite.runtime`."""

    _enum = PlatformEnum.OOT
    device_name = "cpu"
    device_type = "cpu"
    dispatch_key = "CPU"
    dist_backend = "gloo"
    simple_compile_backend = "eager"  # inductor compiles the ranks of logprobs during the first request
    device_control_env_var = "HOUMO_VISIBLE_DEVICES"
    ray_device_key = "M50"
    _all_logits = False  # of the package that this process serves

    @classmethod
    def import_kernels(cls) -> None:
        """There are none."""

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
    def verify_quantization(cls, quant: str) -> None:
        """Raises ValueError: weights are quantised by the compiler."""
        raise ValueError(
            f"quantization={quant}: the weights are those of the package; leave it out, or compile with --quant"
        )

    @classmethod
    def validate_request(cls, processed_inputs: Any, params: Any) -> None:
        """Raises VLLMValidationError, a 400 of the server, for what the package cannot answer."""
        if getattr(params, "prompt_logprobs", None) is not None and not cls._all_logits:
            raise VLLMValidationError(
                "the package's prefill gives the logits of the last token alone; compile it with --all-logits",
                parameter="prompt_logprobs",
            )
        if getattr(params, "prompt_logprob_token_ids", None) is not None:
            raise VLLMValidationError(
                "not gathered here; ask for prompt_logprobs", parameter="prompt_logprob_token_ids"
            )

    @classmethod
    def check_and_update_config(cls, vllm_config: Any) -> None:
        """Fits the configuration to the package; raises ValueError where that would change what was asked for."""
        if not vllm.__version__.startswith(VERSION):
            raise ValueError(
                f"vLLM {vllm.__version__}: this plugin is made for {VERSION}*; install that, as "
                "tests/vllm/setup_env.sh of tcim_lite's sources does"
            )
        model = vllm_config.model_config
        if model is None:
            return
        refuse_options(vllm_config)
        # Where triton works, the scheduler would send preempted requests as new ones, for another runner than this.
        os.environ["VLLM_USE_V2_MODEL_RUNNER"] = "0"
        case = Case.read(model.model)
        package = Package.open(case.folder)
        shape = Shape.read(package)
        devices = named_devices(vllm_config.additional_config)
        parallel, scheduler = vllm_config.parallel_config, vllm_config.scheduler_config
        case.check(shape.devices, parallel.tensor_parallel_size, devices)
        if case.parallel_size == parallel.tensor_parallel_size:  # one worker drives the devices all the same
            parallel.world_size //= parallel.tensor_parallel_size
            parallel.tensor_parallel_size = 1
        check_parallel(parallel, package, devices)
        check_states(vllm_config, package, shape)
        check_runner(model, parallel, package, shape)
        fit_images(model, scheduler, shape)
        fit_adapters(vllm_config.lora_config, package, shape)
        cls._all_logits = shape.all_logits
        _fit_context(model, case, shape)
        _fit_blocks(vllm_config.cache_config, model.max_model_len, shape.slots)
        if scheduler.max_num_seqs > shape.slots:
            _log.info("max_num_seqs=%d becomes %d, the slots of the package", scheduler.max_num_seqs, shape.slots)
            scheduler.max_num_seqs = shape.slots
        scheduler.async_scheduling = False
        if parallel.worker_cls == "auto":
            parallel.worker_cls = "tcim_lite.vllm.worker.TcimWorker"
        if parallel.distributed_executor_backend == "ray":
            from .ray_stages import RayStages  # needs Ray

            parallel.distributed_executor_backend = RayStages
        _log.info_once(_banner(vllm_config, case, package, shape))


def _fit_context(model: Any, case: Case, shape: Shape) -> None:
    """Bounds the length of a request by the package's context."""
    if not shape.embeds and model.get_vocab_size() != shape.vocab_size:
        raise ValueError(
            f"{case.config} says vocab_size={model.get_vocab_size()}, the package's graphs {shape.vocab_size}; "
            "serve the config.json that the package was compiled with"
        )
    if model.original_max_model_len is None:
        model.max_model_len = min(model.max_model_len, shape.context)
    elif model.max_model_len > shape.context:
        raise ValueError(
            f"max_model_len={model.max_model_len}: the package has a context of {shape.context}; pass --max-model-len "
            f"{shape.context}, or compile with --context-length {model.max_model_len}"
        )


def _fit_blocks(cache: Any, length: int, slots: int) -> None:
    """Makes a block of vLLM's cache a slot of the package, of so many tokens."""
    if cache.user_specified_block_size and cache.block_size != length:
        raise ValueError(
            f"block_size={cache.block_size}: a block is a slot of the package, {length} tokens, which no two requests "
            "can share; leave --block-size out"
        )
    if cache.num_gpu_blocks_override not in (None, slots + 1):
        raise ValueError(
            f"num_gpu_blocks_override={cache.num_gpu_blocks_override}: the package has {slots} slots, which are "
            f"{slots + 1} blocks with vLLM's null block; leave it out"
        )
    cache.block_size = length
    if cache.enable_prefix_caching:  # shared blocks would answer with the rows of another request
        cache.enable_prefix_caching = False
        _log.info(
            "prefix caching is off: slots share no blocks; --kv-transfer-config with %s reuses rows", CONNECTOR[0]
        )


def _banner(vllm_config: Any, case: Case, package: Package, shape: Shape) -> str:
    """What a start that went wrong is explained by."""
    parallel, scheduler = vllm_config.parallel_config, vllm_config.scheduler_config
    said: dict[str, Any] = {
        "model": vllm_config.model_config.model,
        "package": case.folder,
        "slots": shape.slots,
        "context": shape.context,
        "all_logits": shape.all_logits,
        "graphs for devices": shape.devices,
        "adapters": ", ".join(package.adapters) or None,
        "adapters' rank": shape.lora_rank or None,
        "parallel_size": case.parallel_size,
        "max_model_len": vllm_config.model_config.max_model_len,
        "max_num_seqs": scheduler.max_num_seqs,
        "max_num_batched_tokens": scheduler.max_num_batched_tokens,
        "tensor_parallel_size": parallel.tensor_parallel_size,
        "pipeline_parallel_size": parallel.pipeline_parallel_size,
        "data_parallel_size": parallel.data_parallel_size,
        "additional_config": vllm_config.additional_config,
        "prefix reuse": vllm_config.kv_transfer_config is not None,
        "HOUMO_VISIBLE_DEVICES": os.environ.get("HOUMO_VISIBLE_DEVICES"),
        "TCIM_LITE_DEVICE": os.environ.get("TCIM_LITE_DEVICE"),
    }
    return "tcim_lite: " + ", ".join(f"{name}={value}" for name, value in said.items())
