"""Compiles pi0.5 into a package folder, under the names that programs for robots open."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

from ..checkpoints.checkpoint import Checkpoint, config_of
from ..common.errors import CompileError
from ..compiler.encoder import encoder_graph
from ..compiler.graph_specs import FINAL_NORM, GraphSpec
from ..compiler.network import network
from ..compiler.options import CompileOptions
from ..compiler.parts import LanguageGraphs, Part
from ..compiler.prepare import PreparedModel, prepare
from ..compiler.record import OwnGraphs
from ..compiler.source import folder_of
from ..compiler.tables import Table
from ..compiler.vision import tower_profile
from ..compiler.write import Contents
from ..model_config import ModelConfig
from .action_networks import action_tensors, linear_network, shapes, time_network
from .pi05 import MODEL_TYPE, TITLE, Policy, read_policy
from .siglip import Siglip

_SIGLIP, _GEMMA, _EXPERT = "siglip", "gemma_2b", "gemma_expert_300m"
_IN, _OUT, _TIME = "action_in_proj", "action_out_proj", "time_mlp"
_EMBEDDING = Path("embedding")
_FILES = (
    *(f"{name}.hmw" for name in (_SIGLIP, _GEMMA, _EXPERT)),
    *(f"{name}.hmm" for name in (_SIGLIP, f"{_GEMMA}_prefill", f"{_EXPERT}_decode", _IN, _OUT, _TIME)),
    *(f"{_EMBEDDING}{suffix}" for suffix in (".bin", ".pt")),
)


def _contents(options: CompileOptions) -> Contents:
    """Files of fixed names; lengths are those of the checkpoint's config."""
    if options.name is not None:
        raise CompileError(f"--name {options.name}: programs of {TITLE} open files of fixed names; leave it out")
    folder = folder_of(options.checkpoint)
    store = None if options.random_weights else Checkpoint(folder)
    policy = read_policy(config_of(folder), store)
    gemma, expert = (
        _language(options, policy, *what)
        for what in (
            (_GEMMA, policy.gemma(), GraphSpec(name="prefill", tokens=policy.prefix)),
            (_EXPERT, policy.expert(), GraphSpec(name="decode", tokens=policy["chunk_size"])),
        )
    )
    policy.check(gemma.config, expert.config)
    sizes, profile = policy.siglip, tower_profile(options)
    siglip = Siglip(
        values=sizes,
        width=gemma.config.hidden_size,
        side=policy["image_resolution"][0] // sizes["patch_size"],
        tensors=policy.tower_tensors,
        source=gemma.tensors,
    )
    specs = siglip.specs(profile)
    gemma.tensors.check([siglip.places])
    around = shapes(policy["max_action_dim"], expert.config.hidden_size)
    if store is not None:
        for name, shape in around.items():
            store.check(policy.name(name), shape)
    message = {"model_type": MODEL_TYPE, "quant": profile.quant}
    parts: list[Part] = [
        LanguageGraphs(gemma),
        LanguageGraphs(expert),
        Table.of(gemma, _EMBEDDING),
        encoder_graph(_SIGLIP, options, profile, siglip, specs, message),
        *_networks(options, policy, expert),
    ]
    source = replace(gemma.source, host_files={})
    return Contents(
        name=MODEL_TYPE,
        source=source,
        parts=parts,
        files=_FILES,
        tokenized=False,
        unread=(*policy.unread, *siglip.places.tensors),
    )


def _language(
    options: CompileOptions, policy: Policy, name: str, config: ModelConfig, graph: GraphSpec
) -> PreparedModel:
    """One of the two models, with this graph alone, which returns what the final norm gives of all rows."""
    own = replace(
        options,
        name=name,
        vision_quant=None,
        prefill_length=policy.prefix,
        context_length=policy.context,
        all_logits=True,
        hidden_states=FINAL_NORM,
    )
    whole = replace(graph, all_logits=True, hidden_states=FINAL_NORM)
    return replace(prepare(own, part=lambda raw: config), graphs=[whole])


def _networks(options: CompileOptions, policy: Policy, expert: PreparedModel) -> Iterator[Part]:
    """What stands around the expert."""
    hidden, actions, rows = expert.config.hidden_size, policy["max_action_dim"], policy["chunk_size"]
    sizes = shapes(actions, hidden)
    tensor = action_tensors(policy, sizes, options.seed)
    dtype = expert.profile.tensor_dtype
    for name, make in (
        (_IN, partial(linear_network, _IN, "action_in", (1, rows, actions))),
        (_OUT, partial(linear_network, _OUT, "action_out", (1, rows, hidden))),
        (_TIME, partial(time_network, hidden)),
    ):
        own = (policy.name(tensor_name) for tensor_name in sizes if tensor_name.startswith(name))
        yield network(name, partial(make, tensor), dtype, own)


PI05 = OwnGraphs(
    model_type=MODEL_TYPE,
    title=TITLE,
    models="π0.5 in LeRobot's form (`type` in `config.json`)",
    has=(
        "[graphs of its own](policies.md#π05): a vision tower, a prefill of Gemma with a mask, an expert "
        "whose norms are conditioned, Linears of actions"
    ),
    images="of one size",
    options=frozenset({"vision_quant"}),
    graphs=f"the graphs of {TITLE} have the lengths that its config says",
    contents=_contents,
)
