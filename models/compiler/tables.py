"""Tables of embeddings and Linears that programs read themselves, as parts of a package."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from ..common.embedding import write_embedding_bin, write_embedding_pt
from ..common.package import EMBEDDING_SUFFIXES, LAYER_TABLE
from ..common.progress import Progress
from ..weights.matrix import Rows, Scaled, Stacked
from ..weights.pack_stream import to_fp16
from ..weights.spec import LinearSpec, TensorSource, VectorSpec
from .parts import Part, SecondName
from .prepare import PreparedModel
from .weight_files import warn_saturated
from .weights import embedding_spec, layer_table_spec


@dataclass(frozen=True, slots=True, kw_only=True)
class Table(Part):
    """A table of embeddings, or several one under the other.

    Attributes:
        path: Of its files in the package, without suffix.
        spec: What it is made of.
        tensors: Where the numbers come from.
        dtype: That they are stored in.
        scale: They are multiplied by this.
        listed: As in `write_embedding_pt`.
        bare: Likewise.
    """

    path: Path
    spec: LinearSpec
    tensors: TensorSource
    dtype: str
    scale: float = 1.0
    listed: str = ""
    bare: bool = False

    @classmethod
    def of(
        cls, model: PreparedModel, path: Path, spec: LinearSpec | None = None, *, listed: str = "", bare: bool = False
    ) -> Table:
        """The embedding of a language model, or another table of its checkpoint."""
        return cls(
            path=path,
            spec=spec or embedding_spec(model.config),
            tensors=model.tensors,
            dtype=model.profile.tensor_dtype,
            scale=1.0 if spec else model.config.embedding_scale,
            listed=listed,
            bare=bare,
        )

    @property
    def weights(self) -> Sequence[LinearSpec | VectorSpec]:
        return [self.spec]

    def write(self, folder: Path, workers: ThreadPoolExecutor, bar: Progress) -> None:
        binary, pt = ((folder / self.path).with_suffix(suffix) for suffix in EMBEDDING_SUFFIXES)
        shapes = self.spec.tensor_shapes
        tables = [self.tensors.matrix(*pair) for pair in zip(self.spec.tensors, shapes, strict=True)]
        if saturated := write_embedding_bin(binary, Scaled(Stacked(tables), self.scale), self.dtype, bar.advance):
            warn_saturated(saturated, "of the embedding")
        write_embedding_pt(pt, binary, shapes, self.dtype, listed=self.listed, bare=self.bare)


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearFile(Part):
    """A Linear that programs multiply rows of float16 with themselves, as `torch.save` of its `state_dict`.

    Attributes:
        path: Of its file in the package.
        weight: What it is made of,
        bias: and its bias.
        tensors: Where the numbers come from.
    """

    path: Path
    weight: LinearSpec
    bias: VectorSpec
    tensors: TensorSource

    @property
    def weights(self) -> Sequence[LinearSpec | VectorSpec]:
        return [self.weight, self.bias]

    def write(self, folder: Path, workers: ThreadPoolExecutor, bar: Progress) -> None:
        path, shapes = folder / self.path, (self.weight.shape, self.bias.shape)
        matrix = self.tensors.matrix(self.weight.tensors[0], self.weight.tensor_shapes[0])
        bias, saturated = to_fp16(self.tensors.vector(self.bias))
        with tempfile.TemporaryDirectory(dir=path.parent) as temporary:
            binary = Path(temporary) / "linear"
            saturated += write_embedding_bin(binary, matrix, "float16", bar.advance)
            with binary.open("ab") as file:
                file.write(bias.data)
            if saturated:
                warn_saturated(saturated, f"of {path.name}")
            write_embedding_pt(path, binary, shapes, "float16", names=("weight", "bias"))


@dataclass(frozen=True, slots=True)
class LayerTable(Part):
    """The table of what layers take of each token, as the vendor's programs load it."""

    model: PreparedModel

    def write(self, folder: Path, workers: ThreadPoolExecutor, bar: Progress) -> None:
        spec, dtype = layer_table_spec(self.model.config), self.model.profile.tensor_dtype
        matrix = self.model.tensors.matrix(spec.tensors[0], spec.tensor_shapes[0])
        # A token beyond the table has what token 0 has, as in transformers.
        beyond = self.model.config.vocab_size - spec.shape[0]
        matrix, shape = Stacked([matrix, *[Rows(matrix, 0, 1)] * beyond]), (spec.shape[0] + beyond, spec.shape[1])
        path, names = folder / LAYER_TABLE, ["embed_tokens_per_layer.weight"]
        with tempfile.TemporaryDirectory(dir=path.parent) as temporary:
            binary = Path(temporary) / "table"
            scaled = Scaled(matrix, self.model.config.layer_inputs**0.5)
            if saturated := write_embedding_bin(binary, scaled, dtype, bar.advance):
                warn_saturated(saturated, "of the per-layer embedding")
            pt = path.with_suffix(".pt")
            write_embedding_pt(pt, binary, (shape,), dtype, names=names, within="state_dict")


def names_of_table(table: Path, others: Sequence[Path]) -> Iterator[SecondName]:
    """Second names of a table's files; a path may be that of the table itself."""
    for other in (other for other in others if other != table):
        for suffix in EMBEDDING_SUFFIXES:
            yield SecondName(table.with_suffix(suffix), other.with_suffix(suffix))
