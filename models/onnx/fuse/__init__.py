"""Patterns of nodes that become one: before lowering, on the network itself.

A pattern is a generator over `Fusion`s that end in a node, the most wanted first; the first is taken whose absorbed
nodes nobody else reads. A pattern changes roundings, not formulas.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from ...common.profiles import Profile
from ..network import Network, Node
from ..survey import Survey, drop_unused, simplify, survey
from .attention import scale_into_columns, transposed_twice
from .functions import gelu, hard_swish, scaled_silu, silu
from .integers import floor_division
from .layout import without_turns
from .linear import conv_affine, conv_batch_norm, conv_pad, matmul_bias
from .norms import affine, normalisation, shifted
from .quantised import codes_and_back, dequantised_rows, dynamic_product, product_of_codes
from .rows import repeated_places, turned_rows
from .view import Fusion, Pattern, View

# In this order: each may be about what those before it left.
PATTERNS: tuple[Pattern, ...] = (
    floor_division,
    dynamic_product,
    product_of_codes,
    dequantised_rows,
    codes_and_back,
    conv_pad,
    conv_batch_norm,
    conv_affine,
    silu,
    hard_swish,
    gelu,
    shifted,
    normalisation,
    affine,
    matmul_bias,
    scaled_silu,
    scale_into_columns,
    turned_rows,
    repeated_places,
    transposed_twice,
)

__all__ = ["PATTERNS", "fuse"]


def fuse(network: Network, patterns: Sequence[Pattern] = PATTERNS, profile: Profile | None = None) -> Network:
    """The network with its patterns replaced; `profile` is as `survey` takes it."""
    found = _replaced(network, patterns, profile)
    if without_turns(network, found):  # after the patterns, as norms are told by their last axes
        drop_unused(network)
        _replaced(network, patterns, profile)
    drop_unused(network)
    return network


def _replaced(network: Network, patterns: Sequence[Pattern], profile: Profile | None) -> Survey:
    """What is known of the network before its patterns are replaced."""
    found = survey(network, profile)
    simplify(network, found)
    view = View(network, found, profile)
    for pattern in patterns:
        for node in list(network.nodes):
            if view.has(node) and view.is_sound(node):
                for fusion in _found(pattern, node, view):
                    if view.apply(node, fusion):
                        break
        network.nodes = view.nodes()
    return found


def _found(pattern: Pattern, node: Node, view: View) -> Iterator[Fusion]:
    """The fusions of a pattern. A file may put anything into operands and attributes: what makes no sense is none."""
    with contextlib.suppress(ArithmeticError, AttributeError, IndexError, KeyError, TypeError, ValueError):
        yield from pattern(node, view)
