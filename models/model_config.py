"""Sizes and constants of a model, as its family reads them from `config.json`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .common.config_rules import Axes, Rope, Windows
from .common.errors import CompileError
from .weights.packing import BLOCK

if TYPE_CHECKING:
    from .blocks import Block
    from .family import Family

_MAX_LOGIT = 65504


@dataclass(frozen=True, slots=True, kw_only=True)
class Experts:
    """Sizes of a mixture of experts.

    Attributes:
        count: Experts in a layer.
        chosen: Of them that work on a token.
        inner: Intermediate size of one.
        shared: That of one more expert, which works on every token; None without it.
        latent: Length of the rows that the chosen ones read and write; None: they are as long as hidden states.
    """

    count: int
    chosen: int
    inner: int
    shared: int | None = None
    latent: int | None = None

    @classmethod
    def read(cls, values: Mapping[str, Any]) -> Experts:
        """Returns what keys of Qwen's spelling or of Mixtral's say, which other families have as well."""
        return cls(
            count=values.get("num_experts") or values["num_local_experts"],
            chosen=values["num_experts_per_tok"],
            inner=values.get("moe_intermediate_size") or values["intermediate_size"],
            shared=values.get("shared_expert_intermediate_size") or values.get("shared_intermediate_size") or None,
        )

    @property
    def padded_inner(self) -> int:
        """`inner` rounded up as `ModelConfig.padded_intermediate` is."""
        return padded_rows(self.inner)

    @property
    def padded_shared(self) -> int:
        """`shared` likewise."""
        return padded_rows(self.shared or 0)

    def check(self) -> None:
        """Raises CompileError if more experts are chosen than there are."""
        if self.chosen > self.count:
            raise CompileError(f"num_experts_per_tok={self.chosen} is more than the {self.count} experts of a layer")


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextLimit:
    """The longest context that the graphs of a model are right for.

    Attributes:
        tokens: Of that context.
        reason: What is so long, for the message that refuses a longer one.
    """

    tokens: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """Sizes and constants of a model.

    Attributes:
        rope_scaling: Always holds `rope_type`.
        windows: The sliding windows of the layers, None for a layer that sees the whole context.
        rotary_dim: Elements of a head that turn, the first ones.
        turns_back: They turn the other way.
        layer_heads: The query heads of each layer, where they are not `num_heads` in all.
        axes: What `Family.axes` reads.
        flags: The family's own keys.
        embedding_scale: Multiplies the embedding table.
        logit_scale: Multiplies the logits.
        heads: These make logits of the same row, all of them or the one that an input of the graph chooses, each with
            an embedding table of its own.
        input_size: Length of a row of the graph's input and of these tables, where a Linear makes hidden states of it.
        output_size: Length of a row that a Linear makes, for the head, of what the final norm gives.
        classes: Of a head that does not name the next token.
        logit_cap: Makes c * tanh(x / c) of each logit, after `logit_scale`.
        residual_scale: Hidden states between blocks are so many times those of the checkpoint's arithmetic.
        layer_inputs: Numbers of a token that each layer takes as inputs of its own.
        streams: Hidden states of a token that layers hand on (`blocks/altup.py`).
        hidden_after: Graphs also return the hidden states behind so many layers, or for 0 the row of their input that
            the logits are of.
        speaker_size: Length of rows for a model of speech, which two Linears make of what the head reads.
        source_size: Rows of the input are made of rows of so many numbers or handed over (`blocks/mixed_input.py`).
        condition_size: Numbers that each run takes, of which the weights of norms of hidden states are made.
        centred: Norms of hidden states subtract the mean.
        norm_bias: Norms of hidden states have a bias.
        norm_weight: Norms of hidden states have a weight.
        input_norm: What the first layer reads is normalised, without a weight.
        final_norm: The head reads what a norm makes of what the last layer gives.
        head_bias: The head has a bias.
        positions: Rows of a table of positions.
        sinusoids: This table is computed, not learned.
        first_position: The row of position 0 in it.
        context_limit: A context beyond it is refused.
    """

    family: Family
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rms_norm_eps: float
    tie_word_embeddings: bool
    max_position_embeddings: int
    rope_theta: float
    rope_scaling: Mapping[str, Any]
    windows: Windows
    rotary_dim: int
    turns_back: bool = False
    layer_heads: tuple[int, ...] = ()
    experts: Experts | None = None
    axes: Axes = ()
    flags: Mapping[str, Any] = field(default_factory=dict)
    embedding_scale: float = 1.0
    logit_scale: float = 1.0
    heads: int = 1
    input_size: int | None = None
    output_size: int | None = None
    classes: int | None = None
    logit_cap: float | None = None
    residual_scale: float = 1.0
    local_rope: Rope | None = None
    layer_inputs: int = 0
    streams: int = 1
    hidden_after: int | None = None
    speaker_size: int | None = None
    source_size: int | None = None
    condition_size: int | None = None
    centred: bool = False
    norm_bias: bool = False
    norm_weight: bool = True
    input_norm: bool = False
    final_norm: bool = True
    head_bias: bool = False
    positions: int | None = None
    sinusoids: bool = False
    first_position: int = 0
    context_limit: ContextLimit | None = None

    @property
    def table_shape(self) -> tuple[int, int]:
        """Of the embedding, the tables of all heads one under the other."""
        return self.heads * self.vocab_size, self.input_size or self.hidden_size

    @property
    def head_outputs(self) -> int:
        """Numbers that a head makes of a row."""
        return self.vocab_size if self.classes is None else self.classes

    @property
    def padded_intermediate(self) -> int:
        """intermediate_size rounded up to 16, the block in which gate and up alternate. Padding rows are zero."""
        return padded_rows(self.intermediate_size)

    @property
    def mask_window(self) -> int | None:
        """The window that a mask for all layers with one is about; None where no layer has one.

        Raises:
            CompileError: Layers have different windows.
        """
        lengths = sorted({window for window in self.windows if window is not None})
        if len(lengths) > 1:
            raise CompileError(
                f"--masks: layers have windows of {lengths}; one mask holds for all layers with a window"
            )
        return lengths[0] if lengths else None

    def blocks(self, layer: int) -> tuple[Block, ...]:
        """Returns the blocks of a layer in order."""
        return self.family.layer(self, layer)

    def check(self) -> None:
        """Raises CompileError if sizes do not fit together."""
        heads, kv_heads = self.num_heads, self.num_kv_heads
        if heads % kv_heads:
            raise CompileError(f"num_attention_heads={heads} is not a multiple of num_key_value_heads={kv_heads}")
        if self.head_dim % 2:
            raise CompileError(f"head_dim={self.head_dim} is odd; RoPE rotates pairs")
        if self.experts is not None:
            self.experts.check()
        if self.hidden_after is not None and self.hidden_after >= self.num_layers:
            raise CompileError(
                f"config.json: accept_hidden_layer={self.hidden_after} must be below the {self.num_layers} layers; "
                "graphs have only one row behind the last"
            )
        if self.logit_cap is not None and self.logit_cap > _MAX_LOGIT:
            raise CompileError(
                f"config.json: final_logit_softcapping={self.logit_cap:g} is beyond {_MAX_LOGIT}, the largest logit of "
                "fp16; leave it out"
            )


def padded_rows(rows: int) -> int:
    """Returns `rows` rounded up to the block in which gate and up alternate."""
    return -(-rows // BLOCK) * BLOCK
