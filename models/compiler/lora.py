"""A LoRA whose two matrices of each Linear are inputs of the graphs, as the vendor's `enable_bundle_lora_param` makes
them: programs load them from a folder beside the package, change them between runs, and set zeros for the base model.

The vendor's programs find these inputs by a part of their names, take shapes and dtypes from the package, and open one
file for each, called like it. What lies inside of an input is the compiler's own matter.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ..checkpoints.lora import LoraAdapter, LowRank
from ..common.errors import CompileError
from ..weights.matrix import ArrayMatrix
from ..weights.merging import merged
from ..weights.spec import LinearSpec, VectorSpec

_PORT = "lora_bundle_pipelined_te"  # how programs know these inputs


@dataclass(frozen=True, slots=True)
class LoraWeight:
    """What is added to a Linear of the graphs: x times `down` [1, K, R] times `up` [1, R, N].

    A Linear that is merged from several tensors has the ranks of all of them side by side in R.
    """

    spec: LinearSpec
    changes: Sequence[LowRank | None]

    @property
    def rank(self) -> int:
        """R."""
        return sum(change.rank for change in self.changes if change is not None)

    def names(self) -> tuple[str, str]:
        """Of the two inputs."""
        stem = f"{_PORT}_{self.spec.name.removesuffix('.weight').replace('.', '_')}"
        return f"{stem}_down", f"{stem}_up"

    @property
    def shapes(self) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
        """Of the two inputs."""
        outputs, inputs = self.spec.shape
        return (1, inputs, self.rank), (1, self.rank, outputs)

    def arrays(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """The two inputs for this adapter."""
        down, up = (np.zeros(shape, np.float32) for shape in self.shapes)
        ups, first = [], 0
        tensors = zip(self.spec.tensor_shapes, self.changes, self.spec.scales(), strict=True)
        for (rows, _), change, scale in tensors:
            columns = np.zeros((rows, self.rank), np.float32)
            if change is not None:
                ranks = slice(first, first + change.rank)
                down[0, : change.shape[1], ranks] = change.down.T
                columns[:, ranks] = change.up * np.asarray(scale, np.float32)
                first = ranks.stop
            ups.append(ArrayMatrix(columns))
        # Rows of a merged weight are rows of its tensors, so those of `up` are merged in the same way.
        outputs, shapes = self.spec.shape[0], tuple(part.shape for part in ups)
        spec = replace(self.spec, shape=(outputs, self.rank), tensor_shapes=shapes)
        up[0] = merged(spec, ups).read(0, outputs).T
        return down, up


def lora_weights(adapter: LoraAdapter, specs: Iterable[LinearSpec | VectorSpec]) -> list[LoraWeight]:
    """Returns what an adapter changes of the weights of a model, in their order.

    Raises:
        CompileError: It changes something that is no Linear of a layer, or one of another shape.
    """
    linears = [
        spec for spec in specs if isinstance(spec, LinearSpec) and spec.layer is not None and len(spec.shape) == 2
    ]
    prefix = _prefix_of(linears)
    left = {_tensor_of(module, prefix): (module, change) for module, change in adapter.changes.items()}
    found = []
    for spec in linears:
        changes: list[LowRank | None] = []
        for name, shape in zip(spec.tensors, spec.tensor_shapes, strict=True):
            module, change = left.pop(name, ("", None))
            if change is not None and change.shape != shape:
                raise CompileError(
                    f"--lora {adapter.folder}: it is for a Linear {module!r} of shape {list(change.shape)}, that of "
                    f"the checkpoint has {list(shape)}; take the checkpoint that the adapter was trained on"
                )
            changes.append(change)
        if any(change is not None for change in changes):
            found.append(LoraWeight(spec, changes))
    if left:
        module = next(iter(left.values()))[0]
        raise CompileError(
            f"--lora {adapter.folder}: the model has no Linear of a layer called {module!r}, or it is one of an expert "
            "or a tower; merge such an adapter into the checkpoint instead"
        )
    return found


def _prefix_of(linears: Sequence[LinearSpec]) -> str:
    """What stands before `layers.` in names of a checkpoint of text."""
    prefixes = [name.partition("layers.")[0] for spec in linears for name in spec.tensors]
    return "model." if "model." in prefixes or not prefixes else prefixes[0]


def _tensor_of(module: str, prefix: str) -> str:
    """The checkpoint's tensor of a module, named as in a checkpoint of text; adapters are named as the model was."""
    layer = module.find("layers.")
    is_other = any(part in module for part in ("visual", "vision", "audio", "mtp"))
    return f"{module}.weight" if layer < 0 or is_other else f"{prefix}{module[layer:]}.weight"
