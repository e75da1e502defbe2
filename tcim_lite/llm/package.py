"""A compiled package on disk: two graphs, the embedding table, the folder of the tokenizer."""

from __future__ import annotations

import glob
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np

import tcim_lite.runtime as tcim

from .generation_defaults import GenerationDefaults
from .token_rows import LAYER_TABLE, TokenRows, layer_table

_DRAFT = "_draft"
HIDDEN_STATES = "hidden_states"  # output 0 of graphs without a head


@dataclass(frozen=True)
class Package:
    """Paths of a package folder as `tcim-lite compile` writes it.

    Attributes:
        folder: the folder.
        name: prefix of the file names; the draft model of a package NAME is the package NAME_draft.
    """

    folder: Path
    name: str

    @classmethod
    def open(cls, folder: str | Path, name: str | None = None) -> Package:
        """Finds the package in `folder`; `name` is needed only when the folder holds several.

        Raises:
            FileNotFoundError: There is no `<name>_prefill.hmm` with its `<name>_decode.hmm`, nor a pair of `.hmms`.
            ValueError: Several packages are there and `name` was not given.
        """
        folder = Path(folder)
        stages = {
            stage: {
                path.stem.removesuffix(f"_{stage}")
                for kind in ("hmm", "hmms")
                for path in folder.glob(f"*_{stage}.{kind}")
            }
            for stage in ("prefill", "decode")
        }
        names = sorted(stages["prefill"] & stages["decode"])
        if name is None:
            # Each belongs to the package it is named after: drafts as packages of earlier versions name them.
            parts = {f"{found}_{part}" for found in names for part in ("draft", "talker", "talker_prediction")}
            parts |= {f"{found.removesuffix('_llm')}_tts" for found in names if found.endswith("_llm")}  # MiniCPM-o
            names = [found for found in names if found not in parts]
            if len(names) > 1:
                raise ValueError(
                    f"{folder} holds several packages ({', '.join(names)}); say which with --name, in Python name="
                )
            name = names[0] if names else None
        found = cls(folder, name or "")
        if name not in names and not (found.prefill_path.is_file() and found.decode_path.is_file()):
            graphs = sorted(path.name for path in folder.glob("*.hmm*"))
            there = f", found {', '.join(graphs[:4])}{', ...' if len(graphs) > 4 else ''}" if graphs else ""
            if alone := stages["prefill"] - stages["decode"]:
                there += (
                    f"; {min(alone)}_prefill alone is of a forced aligner or a robot, run it with tcim_lite.runtime"
                )
            what = "" if folder.is_dir() else ", which is a file" if folder.exists() else ", which does not exist"
            raise FileNotFoundError(
                f"no compiled package {name + ' ' if name else ''}in {folder}{what}: expected <name>_prefill.hmm and "
                f"<name>_decode.hmm{there}; make one with `tcim-lite compile HF_DIR -o OUT`"
            )
        return found

    @property
    def prefill_path(self) -> Path:
        """`<name>_prefill.hmm`, of a draft model `<target's name>_prefill_draft.hmm`."""
        return self._path("prefill.hmm")

    @property
    def decode_path(self) -> Path:
        """`<name>_decode.hmm`, of a draft model `<target's name>_decode_draft.hmm`."""
        return self._path("decode.hmm")

    def has(self, kind: str) -> bool:
        """Whether the package has the graph that `graph(kind)` would name."""
        return self._path(kind).is_file()

    def graph(self, kind: str) -> Path:
        """Path of a graph that not every package has, `<name>_<kind>`, such as "verify.hmm" or "decode.hmms".

        Raises:
            FileNotFoundError: The package lacks it; the message names the command that makes it.
        """
        path = self._path(kind)
        if not path.is_file():
            try:
                tcim.load_model_info(path)  # which needs no device, and no listener hears of
            except tcim.TcimError as missing:
                raise FileNotFoundError(str(missing)) from None
        return path

    def parts(self, stage: str) -> list[Path]:
        """Paths of the pipeline stages of "prefill", "decode" or "verify", in order.

        Raises:
            FileNotFoundError: The package has none, or one in between is missing.
        """
        count = sum(1 for _ in self.folder.glob(f"{glob.escape(self.name)}_{stage}_part*.hmm"))
        return [self.graph(f"{stage}_part{number}.hmm") for number in range(max(count, 1))]

    def embedding_for(self, prefill: Any) -> np.ndarray:
        """The embedding table in the sizes of a prefill module; as `embedding`.

        Raises:
            ValueError: As `embedding`, or the graphs return hidden states.
        """
        if prefill.get_output_name(0) == HIDDEN_STATES:
            raise ValueError(
                f"the graphs of {self.name} in {self.folder} return hidden states, [1, 1, H]: the package was compiled "
                "with --hidden-states, for embeddings or for programs that have heads of their own; compile it without"
            )
        return self.embedding_of(prefill, prefill)

    def embedding_of(self, first: Any, last: Any) -> np.ndarray:
        """As `embedding_for`, of the first and the last stage of prefill; graphs may return hidden states."""
        rows = first.get_input_info(first.get_input_name(0))
        hidden_size, name = rows.shape[-1], last.get_output_name(0)
        if name == HIDDEN_STATES:  # which do not say how many tokens there are
            vocab_size = self.table_rows(hidden_size, rows.dtype)
        else:
            vocab_size = last.get_output_info(name).shape[-1]
        return self.embedding(hidden_size, vocab_size)

    def _path(self, kind: str) -> Path:
        path = self.folder / f"{self.name}_{kind}"
        if not self.name.endswith(_DRAFT) or path.is_file():  # the latter is how earlier versions named a draft
            return path
        stage, suffix = kind.split(".")
        return self.folder / f"{self.name.removesuffix(_DRAFT)}_{stage}{_DRAFT}.{suffix}"

    @property
    def has_draft(self) -> bool:
        """Whether `draft` would find a model."""
        draft = Package(self.folder, self.name + _DRAFT)
        return draft.prefill_path.is_file() and draft.decode_path.is_file()

    @property
    def draft(self) -> Package:
        """The draft model that `tcim-lite compile --draft` wrote beside this one.

        Raises:
            FileNotFoundError: As `graph`.
        """
        if not self.has_draft:
            for stage in ("prefill", "decode"):
                self.graph(f"{stage}{_DRAFT}.hmm")
        return Package(self.folder, self.name + _DRAFT)

    @property
    def adapters(self) -> dict[str, Path]:
        """Folders with the inputs of each LoRA that was compiled into the package, by name."""
        begin, end = f"{self.name}_", "_prefill_lora_input"
        found = sorted(self.folder.glob(f"{glob.escape(begin)}*{end}"))
        return {path.name.removeprefix(begin).removesuffix(end): path for path in found}

    @property
    def tokenizer_folder(self) -> Path:
        """Tokenizer files and configs of the checkpoint; the package's root has them too, for other tools."""
        return self.folder / "tokenizer"

    @property
    def generation_defaults(self) -> GenerationDefaults:
        """What the checkpoint's generation_config.json says; greedy, without stop tokens, where there is none.

        Raises:
            ValueError: As `GenerationDefaults.read`.
        """
        return GenerationDefaults.read(self.tokenizer_folder)

    def stop_tokens(self, tokenizer: Any) -> frozenset[int]:
        """Ids that end an answer: those of `generation_defaults`, and the tokenizer's own end token."""
        own = tokenizer.eos_token_id
        return self.generation_defaults.stop_tokens | (frozenset() if own is None else {own})

    def table_rows(self, hidden_size: int, dtype: str) -> int:
        """How many tokens the embedding table has, by the size of its file.

        Raises:
            FileNotFoundError: As `embedding`.
        """
        return self._table().stat().st_size // (hidden_size * np.dtype(dtype).itemsize)

    def embedding(self, hidden_size: int, vocab_size: int) -> np.ndarray:
        """The embedding table, mapped and read-only: [vocab_size, hidden_size], float16 (float32 in a float32 package).

        Of a model whose layers take inputs of their own, what has these rows and those inputs behind them, `TokenRows`.

        Raises:
            FileNotFoundError: The package has no such file.
            ValueError: The file does not have that many elements.
        """
        path = self._table()
        elements = vocab_size * hidden_size
        for dtype in (np.float16, np.float32):
            if path.stat().st_size == elements * np.dtype(dtype).itemsize:
                # As a plain array: each row taken from a memmap runs Python code of numpy.
                table = np.memmap(path, dtype, "r", shape=(vocab_size, hidden_size)).view(np.ndarray)
                others = self.folder / LAYER_TABLE
                if self.name.endswith(_DRAFT) or not others.is_file():
                    return table
                return cast("np.ndarray", TokenRows(table, layer_table(others, vocab_size, table.dtype)))
        raise ValueError(
            f"{path} has {path.stat().st_size} bytes, expected {elements * 2} or {elements * 4} for "
            f"[{vocab_size}, {hidden_size}] float16 or float32; it belongs to another package"
        )

    def _table(self) -> Path:
        path = self.folder / "hmquant" / "quant_embedding_draft.bin"
        if not self.name.endswith(_DRAFT) or not path.is_file():
            path = path.with_name("quant_embedding.bin")
        if not path.is_file():
            raise FileNotFoundError(
                f"{path} is missing; copy the whole package folder, or compile the checkpoint again"
            )
        return path
