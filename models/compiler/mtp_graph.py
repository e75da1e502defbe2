"""Prefill and decode graphs of multi-token prediction. Names and order are those of the vendor's exporter."""

from __future__ import annotations

from collections.abc import Sequence

from tcim_lite.hmm import Graph, Role, WeightEntry

from ..blocks.head import lower_head
from ..blocks.mtp import POST_NORM_HIDDEN, lower_mtp
from ..blocks.part import GraphPart
from ..blocks.shards import Shard
from ..common.profiles import Profile
from ..graphs.builder import GraphBuilder
from ..graphs.slot import Slot
from ..model_config import ModelConfig
from .graph_specs import GraphSpec


def build_mtp_graph(
    config: ModelConfig,
    profile: Profile,
    weights: Sequence[WeightEntry],
    spec: GraphSpec,
    context_length: int,
    shard: Shard,
) -> Graph:
    """Returns the graph; arguments as those of `build_graph`. The layer counts as the one behind the model's last."""
    builder = GraphBuilder(spec.name, profile.tensor_dtype, weights, profile.activations)
    layer, rows = config.num_layers, (1, spec.tokens, config.hidden_size)
    embedding = builder.input("next_token_embedding", rows, role=Role("embeddings"))
    hidden = builder.input(POST_NORM_HIDDEN, rows, role=Role("hidden"))
    lengths = (
        builder.input(port.alias, (1,), "int32", role=Role(port.role, None, 0), aliases=[port.name])
        for port in config.family.contract.per_slot
    )
    valid, current = lengths
    cache = (1, shard.kv_heads, context_length, config.head_dim)
    keys, values = (
        builder.state(f"past_{kind}_cache", cache, role=Role(f"{kind[0]}_cache", layer, 0)) for kind in ("key", "value")
    )
    live_rows = current if spec.tokens > 1 else None
    part = GraphPart(
        builder=builder,
        config=config,
        shard=shard,
        slots=[Slot(valid=valid, current=current, positions=None, keys=(keys,), values=(values,))],
        layers=range(layer, layer + 1),
        cached_layers=[layer],
        kept_row=None,
    )
    out = lower_mtp(part, embedding, hidden)
    kept = out
    if live_rows is not None and not spec.all_logits:
        kept = builder.last_row("mtp.row", out, live_rows)
    logits = lower_head(part, kept)
    outputs = {logits: Role("logits"), out: Role("hidden")}
    if spec.argmax:
        outputs |= dict(zip(builder.largest("token", logits), (Role("token_id"), Role("token_logit")), strict=True))
    return builder.build(outputs, live_rows=live_rows)
