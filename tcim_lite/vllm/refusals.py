"""Options of vLLM that a package cannot honour: refused at the start, by name, and the message says what to do."""

from __future__ import annotations

import multiprocessing
import os
from typing import Any

from vllm.logger import init_logger

from tcim_lite.llm import Package

from .adapters import refuse_bad_adapters
from .load_format import check_load_format
from .shape import Shape

_log = init_logger("vllm.tcim_lite")
CONNECTOR = ("SlotConnector", "tcim_lite.vllm.connector")


def check_states(vllm_config: Any, package: Package, shape: Shape) -> None:
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


def check_runner(model: Any, parallel: Any, package: Package, shape: Shape) -> None:
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


def fit_images(model: Any, scheduler: Any, shape: Shape) -> None:
    """Has an image whose tokens see each other stay in one step; raises ValueError for what towers cannot do."""
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


def fit_adapters(lora: Any, package: Package, shape: Shape) -> None:
    """Has requests checked for adapters that do not fit; raises ValueError where the graphs take none at all."""
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


def refuse_options(vllm_config: Any) -> None:
    """Raises ValueError for what no package can do."""
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
    if transfer is not None and (transfer.kv_connector, transfer.kv_connector_module_path) != CONNECTOR:
        raise ValueError(
            f"kv_transfer_config: {transfer.kv_connector} reads blocks of vLLM, but cache rows lie in the package's "
            f"slots; only {CONNECTOR[0]} of {CONNECTOR[1]} reaches them"
        )
    if transfer is not None and vllm_config.parallel_config.pipeline_parallel_size > 1:
        raise ValueError(
            f"kv_transfer_config with pipeline_parallel_size={vllm_config.parallel_config.pipeline_parallel_size}: "
            "steps are under way in several stages, so no one knows what a slot holds; leave one of them out"
        )
    model = vllm_config.model_config
    if model.enable_prompt_embeds:
        raise ValueError("enable_prompt_embeds: the package looks tokens up itself; pass text or token ids")
    cache, offload = vllm_config.cache_config, getattr(vllm_config, "offload_config", None)
    if getattr(cache, "kv_offloading_size", None):
        raise ValueError(
            f"kv_offloading_size={cache.kv_offloading_size}: cache rows lie in the package's slots; for rows in host "
            f"memory pass --kv-transfer-config with {CONNECTOR[0]} and prefix_cache_mb"
        )
    if gigabytes := getattr(getattr(offload, "uva", None), "cpu_offload_gb", 0):
        raise ValueError(
            f"cpu_offload_gb={gigabytes}: the weights are the package's; for less memory on each device compile with "
            "--ndevice or --pipeline"
        )
    if getattr(vllm_config.parallel_config, "enable_expert_parallel", False):
        raise ValueError("enable_expert_parallel: one worker drives all devices; compile with --ndevice N instead")
    if cache.cache_dtype != "auto":
        raise ValueError(f"kv_cache_dtype={cache.cache_dtype}: the caches are compiled; leave it out")
