"""The tensors of a GGUF file under the names and in the order of a Hugging Face checkpoint."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...common.errors import CheckpointError
from ...weights.roles import EMBEDDING
from .config import config_json, family_of
from .file import MAGIC, open_parts
from .heads import Order, halves, order_of, order_of_heads
from .joined import Part, parts_of
from .rope import ROPE_FACTORS
from .tokenizer import tokenizer_files

_NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "ffn_gate_inp": "mlp.gate",
    # Tensors [E, N, K], and biases [E, N], of all experts of a layer.
    "ffn_gate_exps": "mlp.experts.{expert}.gate_proj",
    "ffn_up_exps": "mlp.experts.{expert}.up_proj",
    "ffn_down_exps": "mlp.experts.{expert}.down_proj",
}
# Of files made with --fuse-qkv: q, k and v below each other, each as it would be alone.
_FUSED = "attn_qkv"  # also of linear attention, in the layers that have it
_LINEAR = "linear_attn."
_GATE_UP = "ffn_gate_up_exps"  # of files made with --fuse-gate-up-exps, and of Gemma 4: gate above up in each expert
_MOST_EXPERTS = 1 << 12
# Of a Linear with one output, and a bias of experts that ERNIE has as a row, which have one axis in the file.
_ROW = ".ffn_gate_inp_shexp.weight"
_ROW_BIAS = ".moe_statics.e_score_correction_bias"
_TAPS = (".ssm_conv1d.weight", ".shortconv.conv.weight")  # of a convolution along each row, which has two axes
# Of state-space layers, which the file has as a column or with a row for each group.
_FLAT = (".ssm_a", ".ssm_d", ".ssm_norm.weight")
_RATE = ".A_log"  # in the file minus its exponential
_LAYER = re.compile(r"(?<=model\.layers)\.\d+\.")
# Files of early 2024 have a tensor for each expert: blk.0.ffn_up.7.weight.
_TENSOR = re.compile(r"(?:blk\.(\d+)\.)?((?:shortconv\.)?\w+?)(?:\.(\d+))?(?:\.(weight|bias|scale))?")
_ROTATED = re.compile(r".*\.(?:self_attn|mixer)\.([qk])_proj\.(weight|bias)")


def is_gguf(path: Path) -> bool:
    """Whether a path is a GGUF file, by its first bytes."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


class _Tensor(NamedTuple):
    """Where a tensor of a Hugging Face checkpoint is found."""

    own: str  # name in the file
    expert: int | None = None  # which of the tensor's
    of_qkv: str = ""  # "q", "k" or "v": which rows
    half: int | None = None  # which half of the expert's rows
    joined: tuple[str, ...] = ()  # names of all, where there are several


class GgufCheckpoint:
    """As `checkpoint.Checkpoint` of Hugging Face, of a GGUF file or of the parts it was split into."""

    def __init__(self, path: Path) -> None:
        """Reads metadata and tensor tables, no tensor.

        Raises:
            CheckpointError: A file cannot be read, or its model is none of this compiler's families.
            CompileError: The extra ``[gguf]`` is not installed.
        """
        self.path = path
        parts = open_parts(path)
        self._metadata = parts[0].metadata
        self._family = family_of(self._metadata, str(path))
        self._own = {name: part for part in parts for name in part.tensors}
        if (total := sum(len(part.tensors) for part in parts)) != len(self._own):
            raise CheckpointError(
                f"{path}: its parts have {total} tensors of {len(self._own)} names, expected one each"
            )
        # Norms that a Hugging Face checkpoint has less 1 are in the file as they are.
        self._offsets = {name: part.offset for part in self._family.tensors.values() for name in part.names}
        self._names: dict[str, _Tensor] = {}  # by the name in a Hugging Face checkpoint
        for own, part in self._own.items():
            for name, tensor in self._named(own, part.tensors[own].shape) if own not in ROPE_FACTORS else ():
                if (other := self._names.setdefault(name, tensor)) is not tensor:
                    raise CheckpointError(f"{path} has {other.own!r} and {own!r}, which both hold {name}")

    @cached_property
    def config(self) -> dict[str, Any]:
        """What `config.json` would say; CheckpointError for what is missing or not supported."""
        embedding = self._family.tensor(EMBEDDING)
        if embedding not in self:
            raise CheckpointError(f"{self.path} has no tensor {self._theirs(embedding)!r}")
        factors = {name: self._own[name].rows(name, 0, 1)[0] for name in ROPE_FACTORS if name in self._own}
        return config_json(self._metadata, self._own, self.shape(embedding)[0], factors, str(self.path))

    def host_files(self) -> Mapping[str, bytes]:
        """The files that a Hugging Face folder has beside the tensors, by name.

        Raises:
            CheckpointError: The tokenizer's lists contradict each other.

        Warns:
            CompileWarning: A tokenizer of a kind that has no files here.
        """
        return tokenizer_files(self._metadata, self.config, str(self.path))

    def __contains__(self, name: str) -> bool:
        return name in self._names

    def names(self) -> list[str]:
        return list(self._names)

    def shape(self, name: str) -> tuple[int, ...]:
        tensor = self._find(name)
        shape = self._own[tensor.own].tensors[tensor.own].shape
        if tensor.joined:
            parts = self._parts(name, tensor)
            columns = parts[0].rows if parts[0].turned else shape[-1]
            return (sum(self._rows_of(part) for part in parts), columns)
        if tensor.own.endswith(_ROW) or name.endswith(_ROW_BIAS):
            return (1, *shape) if len(shape) == 1 else shape
        if tensor.own.endswith(_FLAT) and len(shape) == 2:
            return (shape[0] * shape[1],)
        if tensor.own.endswith(_TAPS):
            return (shape[0], 1, *shape[1:]) if len(shape) == 2 else shape
        if tensor.of_qkv:
            first, last = self._rows_of_qkv(tensor)
            return (last - first, *shape[1:])
        if tensor.half is not None:
            return (shape[1] // 2, *shape[2:])
        return shape if tensor.expert is None else shape[1:]

    def check(self, name: str, shape: Sequence[int]) -> None:
        """Raises CheckpointError unless the tensor exists and has `shape`."""
        own = self._find(name).own
        if (got := self.shape(name)) != tuple(shape):
            raise CheckpointError(
                f"tensor {own!r} in {self._own[own].path} has shape {list(got)}, expected {list(shape)} by its metadata"
            )

    def read(self, name: str, start: int = 0, stop: int | None = None) -> NDArray[np.float32]:
        own, expert, of_qkv, half, joined = tensor = self._find(name)
        shape = self.shape(name)
        stop = shape[0] if stop is None else stop
        if joined:
            return self._read_parts(self._parts(name, tensor), start, stop)
        begin = self._rows_of_qkv(tensor)[0] if of_qkv else 0
        heads, order = self._interleaved_heads(name), self._order(name)
        if len(shape) == 1:
            row, count = expert or 0, 1
            if own.endswith(_FLAT):
                count = math.prod(self._own[own].tensors[own].shape[:-1])
            values = self._finite(own, row, row + count).reshape(-1)[begin : begin + shape[0]]
            values = values - np.float32(self._offsets.get(_LAYER.sub(".{layer}.", name, 1), 0.0))
            if name.endswith(_RATE):
                values = self._logarithms(own, values)
            if order.rows is not None:
                values = values[order.rows]
            return (halves(values[:, None], heads)[:, 0] if heads else values)[start:stop]
        if order.rows is not None:
            at = order.rows[start:stop]
            runs = np.split(at, np.flatnonzero(np.diff(at) != 1) + 1)
            rows = np.concatenate([self._finite(own, int(run[0]), int(run[-1]) + 1) for run in runs])
            return rows.reshape(-1, *shape[1:])
        if expert is not None:
            begin = expert * shape[0] if half is None else (2 * expert + half) * shape[0]
        if not heads:
            values = self._finite(own, begin + start, begin + stop)
            return values if order.columns is None else np.take(values, order.columns, axis=1)
        each = shape[0] // heads  # rows of a head, which is read whole
        first, last = start // each, -(-stop // each)
        whole = halves(self._finite(own, begin + first * each, begin + last * each), last - first)
        return whole[start - first * each : stop - first * each]

    def _parts(self, name: str, tensor: _Tensor) -> list[Part]:
        for own in tensor.joined:
            if own not in self._own:
                raise CheckpointError(f"{self.path} has no tensor {own!r} ({name})")
        try:
            return parts_of(name, tensor.joined, lambda own: self._own[own].tensors[own].shape, lambda: self.config)
        except CheckpointError as error:
            raise CheckpointError(f"{self.path}: {error}") from None

    def _rows_of(self, part: Part) -> int:
        return self._own[part.own].tensors[part.own].shape[-1] if part.turned else part.rows

    def _read_parts(self, parts: Sequence[Part], start: int, stop: int) -> NDArray[np.float32]:
        read, at = [], 0
        for part in parts:
            rows = self._rows_of(part)
            first, last = max(start - at, 0), min(stop - at, rows)
            if first < last and part.turned:
                read.append(self._finite(part.own, part.first, part.first + part.rows).T[first:last])
            elif first < last:
                read.append(self._finite(part.own, part.first + first, part.first + last))
            at += rows
        return np.concatenate(read)

    def _order(self, name: str) -> Order:
        """Where rows and columns are in the file, apart from those of interleaved heads."""
        form = self._family.gguf
        if form is None or not (form.tiled_values or form.head_by_head):
            return Order()
        return order_of(name, self.config) if form.tiled_values else order_of_heads(name, self.config)

    def _logarithms(self, own: str, values: NDArray[np.float32]) -> NDArray[np.float32]:
        if not (values < 0).all():
            raise CheckpointError(f"tensor {own!r} in {self._own[own].path} holds a number that is not negative")
        return np.log(-values)

    def _rows_of_qkv(self, tensor: _Tensor) -> tuple[int, int]:
        """The first row of a part of q, k and v, and the one behind its last."""
        own, config = self._own[tensor.own].tensors[tensor.own].shape, self.config
        heads = {"q": config["num_attention_heads"], "k": config["num_key_value_heads"]}
        counts = {part: heads[part if part == "q" else "k"] * config["head_dim"] for part in "qkv"}
        if any(key.name == "attn_output_gate" for key in self._family.keys):  # whose q has the gates of heads too
            counts["q"] *= 2
        if own[0] != sum(counts.values()):
            expected = [sum(counts.values()), *own[1:]]
            raise CheckpointError(
                f"tensor {tensor.own!r} in {self.path} has shape {list(own)}, expected {expected} by its metadata"
            )
        first = {"q": 0, "k": counts["q"], "v": counts["q"] + counts["k"]}[tensor.of_qkv]
        return first, first + counts[tensor.of_qkv]

    def _interleaved_heads(self, name: str) -> int:
        """How many heads' halves llama.cpp keeps in turns in a tensor; 0: none."""
        found = _ROTATED.fullmatch(name)
        if found is None or self._family.gguf is None or not self._family.gguf.interleaved:
            return 0
        return int(self.config["num_attention_heads" if found[1] == "q" else "num_key_value_heads"])

    def _finite(self, own: str, start: int, stop: int) -> NDArray[np.float32]:
        rows = self._own[own].rows(own, start, stop)
        if not np.isfinite(rows).all():
            raise CheckpointError(f"tensor {own!r} in {self._own[own].path} holds NaN or infinity")
        return rows

    def _find(self, name: str) -> _Tensor:
        if name not in self._names:
            raise CheckpointError(f"{self.path} has no tensor {self._theirs(name)!r} ({name})")
        return self._names[name]

    def _theirs(self, name: str) -> str:
        """What the file would call a tensor."""
        found = re.fullmatch(rf"{re.escape(self._layers)}\.(\d+)\.(.*)", name)
        layer, wanted = (f"blk.{found[1]}.", found[2]) if found else ("", name)
        wanted = re.sub(r"(\.experts\.|\.norms\.)\d+", r"\1{expert}", wanted)
        for ours, theirs in self._known.items():
            if wanted == theirs:
                return f"{layer}{ours}"
            if wanted in (f"{theirs}.weight", f"{theirs}.bias"):
                return f"{layer}{ours}{wanted.removeprefix(theirs)}"
        return f"{layer}{wanted}"

    @property
    def _layers(self) -> str:
        """What names of layers begin with in a Hugging Face checkpoint."""
        return self._family.gguf.layers if self._family.gguf is not None else ""

    @property
    def _known(self) -> dict[str, str]:
        """Names in the file -> in a Hugging Face checkpoint, those of the family alone first."""
        of_family = self._family.gguf.names if self._family.gguf is not None else {}
        return {**of_family, **_NAMES, **of_family}

    def _named(self, own: str, shape: tuple[int, ...]) -> Iterator[tuple[str, _Tensor]]:
        """Yields the names in a Hugging Face checkpoint; of a tensor that is not known there, its own."""
        found = _TENSOR.fullmatch(own)
        layer, stem, expert, kind = found.groups() if found else (None, "", None, "")
        if expert is not None:
            stem += "_exps"
        known = self._known
        theirs = known.get(f"{stem}.{kind}" if kind else stem, "")
        if not theirs and kind and known.get(stem):
            theirs = f"{known[stem]}.{kind}"
        where = f"{self._layers}.{layer}." if layer else ""
        for whole, parts in self._family.gguf.joined if self._family.gguf is not None and layer else ():
            is_part = f"blk.{layer}.{parts[-1]}" in self._own or stem not in known  # else q, k and v of attention
            if own.removeprefix(f"blk.{layer}.") in parts and is_part:
                if own == f"blk.{layer}.{parts[0]}":
                    yield where + whole, _Tensor(own, joined=tuple(f"blk.{layer}.{part}" for part in parts))
                return
        axes = 3 if kind == "weight" and "norm" not in stem else 2
        of_all_experts = len(shape) == axes and shape[0] <= _MOST_EXPERTS
        if theirs.startswith(_LINEAR) and stem == _FUSED and f"blk.{layer}.ssm_a" not in self._own:
            theirs = ""  # of attention
        if stem == _FUSED and not theirs and where and expert is None:
            for part in "qkv":
                yield f"{where}{known[f'attn_{part}']}.{kind}", _Tensor(own, of_qkv=part)
        elif stem == _GATE_UP and where and kind == "weight" and of_all_experts and shape[1] % 2 == 0:
            for number in range(shape[0]):
                for half, part in enumerate(("ffn_gate_exps", "ffn_up_exps")):
                    theirs = f"{known[part].format(expert=number)}.{kind}"
                    yield where + theirs, _Tensor(own, number, half=half)
        elif "{expert}" not in theirs:
            yield (where + theirs if theirs and expert is None else own), _Tensor(own)
        elif expert is not None:
            yield where + theirs.format(expert=expert), _Tensor(own)
        elif of_all_experts:
            for number in range(shape[0]):
                yield where + theirs.format(expert=number), _Tensor(own, number)
        else:
            yield own, _Tensor(own)
