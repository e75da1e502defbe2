"""The graphs of a package and their files."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tcim_lite.hmm import Sibling, WeightData, WeightEntry, read, write_model

from ..common.errors import CompileError
from ..common.profiles import Profile
from ..common.used_weights import used_weights
from .config import Qwen3Config
from .graph import GraphSpec, build_graph
from .options import CompileOptions


def graph_specs(options: CompileOptions, config: Qwen3Config) -> list[GraphSpec]:
    """Returns the graphs that `options` ask for.

    Raises:
        CompileError: More pipeline stages than blocks.
    """
    specs = [
        GraphSpec(name="prefill", tokens=options.prefill_length, all_logits=options.all_logits),
        GraphSpec(name="decode", tokens=1, batch=options.batch),
    ]
    if options.pipeline > 1:
        stages = _stages(config.num_layers, options.pipeline)
        specs += [
            replace(spec, name=f"{spec.name}_part{stage}", blocks=blocks)
            for spec in specs
            for stage, blocks in enumerate(stages)
        ]
    if options.verify_length is not None:
        specs.append(GraphSpec(name="verify", tokens=options.verify_length, all_logits=True))
    return specs


def _stages(layers: int, stages: int) -> list[range]:
    """Cuts the blocks evenly. What is left over goes to the first stages: the last one has the head as well."""
    if stages > layers:
        raise CompileError(f"--pipeline {stages} is more stages than the model's {layers} blocks")
    starts = [stage * (layers // stages) + min(stage, layers % stages) for stage in range(stages + 1)]
    return [range(start, stop) for start, stop in itertools.pairwise(starts)]


def owned_files(name: str) -> re.Pattern[str]:
    """Returns what matches the name of every graph and weights file that a package called `name` may have."""
    return re.compile(rf"{re.escape(name)}(_(prefill|decode|verify)(_part\d+)?\.hmm|\.hmw)")


def write_graphs(
    folder: Path,
    options: CompileOptions,
    config: Qwen3Config,
    profile: Profile,
    specs: Sequence[GraphSpec],
    entries: Sequence[WeightEntry],
    sibling: Sibling,
) -> None:
    """Writes `<name>_<graph>.hmm` for every graph; a self-contained package loses its `.hmw`."""
    shared = folder / sibling.file
    stored: Sequence[WeightEntry | WeightData] = entries
    if options.self_contained:
        source = read(shared)
        stored = [WeightData(e.name, e.dtype, e.format, e.shape, source.weight_bytes(e)) for e in source.weights]
    for spec in specs:
        built = build_graph(config, profile, entries, spec, context_length=options.context_length)
        (graph,), used = used_weights([built], stored)
        message = json.dumps(_custom_msg(options, config, profile, spec))
        path = folder / f"{options.name}_{spec.name}.hmm"
        write_model(path, graph, used, custom_msg=message, sibling=None if options.self_contained else sibling)
    if options.self_contained:
        shared.unlink()


def _custom_msg(options: CompileOptions, config: Qwen3Config, profile: Profile, spec: GraphSpec) -> dict[str, Any]:
    """The keys of the vendor's builds (spec llm-graphs 5.3), then ours."""
    message = {
        # The vendor compiles verify from prefill with another fill length.
        "prefill_length": spec.tokens if spec.name == "verify" else options.prefill_length,
        "batch": options.batch,
        "context_length": options.context_length,
        "flash_attention": True,
        "all_logits": spec.all_logits,
        "model_type": "qwen3",
        "quant": profile.quant,
        "head_quant": profile.head_quant,
        "embedding_dtype": profile.tensor_dtype,
        "hidden_size": config.hidden_size,
        "vocab_size": config.vocab_size,
    }
    if spec.blocks is not None:
        message |= {"pipeline": options.pipeline, "first_block": spec.blocks.start, "blocks": len(spec.blocks)}
    return message
