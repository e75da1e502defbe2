"""How blocks say which weights they have."""

from __future__ import annotations

from dataclasses import dataclass

from ..weights.roles import Role


@dataclass(frozen=True, slots=True)
class Weight:
    """A weight as the config has it.

    Attributes:
        role: What it is.
        outputs: Rows of each checkpoint tensor that it is merged from; of a vector their lengths.
        inputs: Columns; None for a vector.
        padded_inputs: Columns in the package, zeros beyond `inputs`.
        experts: How many of it there are, one for each expert or head; None for a weight that all tokens share.
        scale: What it is multiplied by.
        scales: Of a matrix: what the rows of each of `outputs` are multiplied by, too; empty for nothing.
        sections: Rows of what lies side by side in it, each of which devices share out by heads; `outputs` if empty.
        head_parts: Rows of one head that a checkpoint may have side by side in the first tensor, part by part.
        turned: Of q, k and v: rows of a head, and how many of them turn.
        taps: Of a convolution, which each channel of `outputs` has.
        multiple: The rows of each tensor are padded with zeros to a multiple of this.
        pairs: The last of `head_parts` turns in pairs of neighbours.
        whole: Shape of the one tensor that a matrix of every head is a part of, `head_parts` of each side by side.
        ones: Of a vector: how many follow its numbers.
        factors: Of experts: a vector of the checkpoint that multiplies them, a number for each; no weight itself.
    """

    role: Role
    outputs: tuple[int, ...]
    inputs: int | None = None
    padded_inputs: int | None = None
    experts: int | None = None
    scale: float = 1.0
    scales: tuple[float, ...] = ()
    sections: tuple[int, ...] = ()
    head_parts: tuple[int, ...] = ()
    turned: tuple[int, int] = (0, 0)
    taps: int | None = None
    multiple: int = 1
    pairs: bool = False
    whole: tuple[int, int] | None = None
    ones: int = 0
    factors: Role | None = None
