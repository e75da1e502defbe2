"""Inputs and outputs of the graphs of a model family."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Port:
    """A graph input.

    Attributes:
        role: What it is to the model; the `.hmm` stores it (docs/hmm-format.md section 5.2).
        name: In the compiled graph; `{layer}` stands for the layer's number.
        alias: What the vendor's exporter calls it, or nothing where it is the same. The `.hmm` stores it, and the
            runtime takes either name.
    """

    role: Literal[
        "embeddings",
        "valid_length",
        "current_length",
        "position_ids",
        "time_position_ids",
        "height_position_ids",
        "width_position_ids",
        "axes_position_ids",
        "deepstack",
        "local_attention_mask",
        "global_attention_mask",
        "mask",
        "per_layer_inputs",
        "linear_mask",
        "k_cache",
        "v_cache",
        "latent_cache",
        "conv_state",
        "recurrent_state",
        "condition",
        "head_number",
        "head_mask",
        "role_mask",
        "bypass_embeddings",
        "bypass_mask",
    ]
    name: str
    alias: str

    def names(self, slot: int | None = None, layer: int | None = None) -> tuple[str, str]:
        """Returns the compiled name and the alias of a batch slot's input. Slot 0 has the plain names."""
        suffix = f"_batch_{slot}" if slot else ""
        return self.name.format(layer=layer) + suffix, self.alias.format(layer=layer) + suffix


@dataclass(frozen=True, slots=True, kw_only=True)
class Contract:
    """Inputs and output of the graphs, in order.

    Attributes:
        shared: Inputs that a graph has once. The first takes the hidden states in later pipeline stages; others say
            something of each of its rows: how much each of several heads counts in its logits, [1, T, heads, 1], or
            what becomes of rows that go through projections (`blocks/mixed_input.py`).
        axes: Then, in every graph, the positions of the tokens along time, height and width: three inputs [T], or one
            [3, 1, T]; empty for a family whose tokens are in a row.
        per_slot: Then, for each batch slot, these,
        condition: and of a model with a `condition_size` this one, of which norms are made, [1, size],
        positions: with `--position-ids` this one, [1, T],
        masks: or with `--masks` these, [1, 1, T, S] of layers with a sliding window, and of the others where the family
            has such a one; empty for a family without mask inputs,
        local_mask: in every other graph this one of the former alone; None for a family whose graphs take none then,
        row_mask: and this one of all layers, [1, 1, 1, C], which alone says what all tokens of a run see,
        seen_mask: or this one of all layers, [1, 1, T, C], which alone says what each token sees,
        extra_mask: or this one, [1, 1, T, C], which hides more than the lengths do,
        flat_mask: which is [T, C] then,
        layer_inputs: and this one of a model whose layers have inputs of their own, [1, T, layers, size],
        deepstack: and this one, shaped like the first, of every layer that adds it to the hidden states,
        per_layer: and these of every layer: all layers of the first, all of the second and so on in a whole graph, all
            of one layer after the other in a pipeline stage.
        linear_mask: Of a family with linear attention, after the lengths: 1 for a token, 0 for padding, [1, T].
        carried: Of such a family, after the caches: what each layer with linear attention hands from run to run, all
            layers of the first, all of the second. They are inputs, and outputs after the logits.
        carried_outputs: Names of these outputs.
        head_number: Of a family with several heads, behind all of these: the number of the head that makes the logits;
            None where all do, [1, 1, V, heads].
        output: Name of the logits.
        hidden: Name of an output behind the logits, what the head reads, or of a model with a `speaker_size` what is
            made of it in all rows; empty for a family without it.
        flat_logits: Those of one row in a graph of one slot are [1, V] instead of [1, 1, V].
    """

    shared: tuple[Port, ...]
    per_slot: tuple[Port, ...]
    positions: Port
    per_layer: tuple[Port, ...]
    output: str
    flat_logits: bool = False
    axes: tuple[Port, ...] = ()
    deepstack: Port | None = None
    condition: Port | None = None
    masks: tuple[Port, ...] = ()
    local_mask: Port | None = None
    row_mask: Port | None = None
    seen_mask: Port | None = None
    extra_mask: Port | None = None
    flat_mask: bool = False
    layer_inputs: Port | None = None
    linear_mask: Port | None = None
    carried: tuple[Port, ...] = ()
    carried_outputs: tuple[str, ...] = ()
    head_number: Port | None = None
    hidden: str = ""


# Of language models: names and order of the vendor's exports.
CONTRACT = Contract(
    shared=(Port("embeddings", "input_1", "inputs_embeds"),),
    per_slot=(
        Port("valid_length", "valid_length", "past_seq_length"),
        Port("current_length", "current_length", "current_input_length"),
    ),
    positions=Port("position_ids", "position_ids", ""),
    per_layer=(
        Port("k_cache", "model_layers_{layer}_self_attn_kcache_input", "past_key_cache_{layer}"),
        Port("v_cache", "model_layers_{layer}_self_attn_vcache_input", "past_value_cache_{layer}"),
    ),
    output="logits",
)
