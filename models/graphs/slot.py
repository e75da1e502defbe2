"""What the ops of a graph know of one batch slot."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from .values import Ref


@dataclass(frozen=True, slots=True)
class Slot:
    """One batch slot: its lengths (int32 [1]) and, per layer, its caches [1, heads, C, D].

    `positions` (int32 [1, T]) are those of its tokens where the graph takes them; otherwise they begin at `valid`.
    `axes` (three int32 [T], or one [3, 1, T]) are those along time, height and width instead, from which the graph
    makes rows of cos and sin once. `deepstack` has by layer what is added to the hidden states after it, [B, T, H].
    `keys` and `values` have one for each layer with a cache. `linear_mask` [1, T] is 1 for tokens and 0 for padding;
    `carried` has by layer what linear attention takes from the run before, `carried_names` what it is to call what it
    gives to the next, and `carried_on` gets that: of each kind one, or one after each token.
    `masks` are those for layers with a sliding window and for the others; None where the lengths say what a token sees.
    `layer_inputs` are what layers take of the tokens, [1, T, layers, size], and `condition` what norms are made of,
    [1, size].
    """

    valid: Ref
    current: Ref
    positions: Ref | None
    keys: tuple[Ref, ...]
    values: tuple[Ref, ...]
    masks: tuple[Ref | None, Ref | None] = (None, None)
    condition: Ref | None = None
    layer_inputs: Ref | None = None
    axes: tuple[Ref, ...] = ()
    deepstack: Mapping[int, Ref] = field(default_factory=dict)
    linear_mask: Ref | None = None
    carried: Mapping[int, tuple[Ref, ...]] = field(default_factory=dict)
    carried_names: Mapping[int, tuple[tuple[str, ...], ...]] = field(default_factory=dict)
    carried_on: dict[int, tuple[tuple[Ref, ...], ...]] = field(default_factory=dict)
