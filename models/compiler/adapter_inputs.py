"""The inputs of graphs for an adapter of PEFT, without the checkpoint that the graphs were compiled from."""

from __future__ import annotations

from os import PathLike
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..checkpoints.checkpoint import read_json
from ..checkpoints.lora import LoraAdapter
from ..common.profiles import profile_for
from ..families import read_config
from .lora import lora_weights
from .weights import weight_specs


def adapter_inputs(config: str | PathLike[str], adapter: str | PathLike[str]) -> dict[str, NDArray[np.float32]]:
    """Returns what `compile --lora` would write for an adapter, in floats, by the names of the inputs.

    The ranks are the adapter's own. Graphs of a larger rank take them with zeros behind.

    Args:
        config: `config.json` of the checkpoint; a package has a copy in its folder `tokenizer`.
        adapter: A folder of PEFT.

    Raises:
        CompileError: No adapter, one that is no plain LoRA, or one for another model.
    """
    model = read_config(read_json(Path(config)))
    # Formats do not show in these inputs; one of floats takes Linears of any size.
    specs = weight_specs(model, profile_for("float32"))
    found: dict[str, NDArray[np.float32]] = {}
    for weight in lora_weights(LoraAdapter(Path(adapter)), specs):
        found.update(zip(weight.names(), weight.arrays(), strict=True))
    return found
