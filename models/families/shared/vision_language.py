"""What the language models of vision-language families share: graph inputs, and a tiny config for tests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ...contract import Port
from . import dense

# Names and order of the vendor's exports, one of them misspelt; its exporter knows the other spelling too.
CONTRACT = replace(
    dense.CONTRACT,
    axes=(
        Port("time_position_ids", "time_position_ids", ""),
        Port("height_position_ids", "hight_position_ids", "height_position_ids"),
        Port("width_position_ids", "width_position_ids", ""),
    ),
)

# More layers than have deepstack inputs.
TINY: Mapping[str, Any] = {**dense.TINY, "num_hidden_layers": 4, "head_dim": 64, "rms_norm_eps": 1e-6}
