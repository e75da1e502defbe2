"""What vLLM asks of a platform: names, and a configuration that a package can serve."""

from __future__ import annotations

import multiprocessing
import os
from typing import Any

import torch
import vllm
from vllm.exceptions import VLLMValidationError
from vllm.logger import init_logger
from vllm.platforms.interface import Platform, PlatformEnum

from tcim_lite.llm import Package

from . import VERSION
from .adapters import refuse_bad_adapters
from .case import Case
from .ending import end_coordinator_with_server
from .load_format import check_load_format
from .parallel import check_parallel, named_devices
from .shape import Shape

_log = init_logger("vllm.tcim_lite")
_CONNECTOR = ("SlotConnector", "tcim_lite.vllm.connector")

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
        _refuse(vllm_config)
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
        _refuse_states(vllm_config, package, shape)
        _fit_runner(model, parallel, package, shape)
        _fit_images(model, scheduler, shape)
        _fit_adapters(vllm_config.lora_config, package, shape)
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


def _refuse_states(vllm_config: Any, package: Package, shape: Shape) -> None:
    """Raises ValueError for what states of the package rule out."""
    if shape.carries and vllm_config.kv_transfer_config is not None:
        raise ValueError(
            f"kv_transfer_config: {package.folder} has states of linear attention, which only go forward, so no "
            "prompt can take the beginning of another; leave it out"
        )
    stages = vllm_config.parallel_config.pipeline_parallel_size
    if shape.guesses and stages > 1:
        raise ValueError(
            f"pipeline_parallel_size={stages}: {package.folder} has multi-token prediction, with which stages take "
            "several tokens a run; compile without --mtp"
        )


def _fit_runner(model: Any, parallel: Any, package: Package, shape: Shape) -> None:
    """Raises ValueError where vectors are asked for and the graphs give none, or others."""
    if model.runner_type != "pooling":
        return
    if not shape.embeds:
        raise ValueError(
            f"runner={model.runner_type}: the graphs of {package.folder} give logits, no vectors; leave --runner and "
            "--convert out, or compile an embedding model with --hidden-states"
        )
    if parallel.pipeline_parallel_size > 1:
        raise ValueError(
            f"pipeline_parallel_size={parallel.pipeline_parallel_size}: stages give logits; leave it out for vectors"
        )
    if (kind := getattr(model.pooler_config, "seq_pooling_type", None)) not in (None, "LAST"):
        raise ValueError(f"seq_pooling_type={kind}: the vector of a text is that of its last token, LAST; leave it out")


def _fit_images(model: Any, scheduler: Any, shape: Shape) -> None:
    """Raises ValueError for what the towers of a package cannot do with images."""
    images = model.multimodal_config
    if images is None:
        return
    for name in ("mm_processor_kwargs", "enable_mm_embeds", "video_pruning_rate", "mm_encoder_only"):
        if getattr(images, name, None):
            raise ValueError(
                f"{name}={getattr(images, name)}: images are prepared and seen as the package was compiled; leave it "
                "out"
            )
    scheduler.disable_chunked_mm_input |= shape.sees_itself


def _fit_adapters(lora: Any, package: Package, shape: Shape) -> None:
    """Raises ValueError where adapters are asked for that the graphs cannot take."""
    if lora is None:
        return
    if not shape.lora:
        raise ValueError(
            f"enable_lora: the graphs of {package.folder} take no adapters; compile the package with --lora ADAPTER, "
            "of the largest rank and all target modules of those to come, or merge the adapter into the checkpoint"
        )
    for name in ("default_mm_loras", "enable_tower_connector_lora", "enable_moe_shared_loras", "target_modules"):
        if getattr(lora, name, None):
            raise ValueError(
                f"{name}={getattr(lora, name)}: the package takes adapters of those Linears of the language model that "
                "it was compiled for; leave it out"
            )
    if lora.max_lora_rank > shape.lora_rank:
        _log.info("max_lora_rank=%d: the package takes %d", lora.max_lora_rank, shape.lora_rank)
    refuse_bad_adapters()


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
            "prefix caching is off: slots share no blocks; --kv-transfer-config with %s reuses rows", _CONNECTOR[0]
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


def _refuse(vllm_config: Any) -> None:
    if os.environ.get("VLLM_USE_V2_MODEL_RUNNER", "0") != "0":
        raise ValueError(
            f"VLLM_USE_V2_MODEL_RUNNER={os.environ['VLLM_USE_V2_MODEL_RUNNER']}: the plugin has a runner of its "
            "own, for the steps of the scheduler without it; leave it out"
        )
    # vLLM itself sets these for each replica, in processes of their own.
    ids = vllm_config.parallel_config.assigned_physical_gpu_ids
    if ids and multiprocessing.parent_process() is None:
        raise ValueError(
            f"device_ids={ids}: one worker may drive several devices of a package; name them with --additional-config "
            f"'{{\"devices\": {ids}}}'"
        )
    check_load_format(vllm_config.load_config.load_format)
    if vllm_config.speculative_config is not None:
        raise ValueError("speculative_config: a decode graph takes one token a slot; leave it out")
    transfer = vllm_config.kv_transfer_config
    if transfer is not None and (transfer.kv_connector, transfer.kv_connector_module_path) != _CONNECTOR:
        raise ValueError(
            f"kv_transfer_config: {transfer.kv_connector} reads blocks of vLLM, but cache rows lie in the package's "
            f"slots; only {_CONNECTOR[0]} of {_CONNECTOR[1]} reaches them"
        )
    if transfer is not None and vllm_config.parallel_config.pipeline_parallel_size > 1:
        raise ValueError(
            f"kv_transfer_config with pipeline_parallel_size={vllm_config.parallel_config.pipeline_parallel_size}: "
            "steps are under way in several stages, so no one knows what a slot holds; leave one of them out"
        )
    model = vllm_config.model_config
    if model.enable_prompt_embeds:
        raise ValueError("enable_prompt_embeds: the package looks tokens up itself; pass text or token ids")
    if vllm_config.cache_config.cache_dtype != "auto":
        raise ValueError(
            f"kv_cache_dtype={vllm_config.cache_config.cache_dtype}: the caches are compiled; leave it out"
        )
