"""A folder with one or more graphs of an encoder and the files of its checkpoint."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import tcim_lite.runtime as tcim

from ...text_encoders import NEEDED_FILES, TOKENS
from .facts import EncoderFacts


@dataclass(frozen=True)
class EncoderPackage:
    """What `tcim-lite compile MODEL.onnx` writes of an encoder that has its tokenizer beside it.

    Attributes:
        folder: the folder.
        name: what the names of its graphs begin with.
        graphs: `NAME.hmm`, or `NAME_L.hmm` for L tokens.
    """

    folder: Path
    name: str
    graphs: tuple[Path, ...]

    @classmethod
    def open(cls, folder: str | Path, name: str | None = None) -> EncoderPackage:
        """Finds the package in `folder`; `name` is needed only when the folder holds several.

        Raises:
            FileNotFoundError: No graph there takes the ids of tokens, or the tokenizer is missing.
            ValueError: Several packages are there and `name` was not given.
            HmmFormatError: A graph is damaged.
        """
        folder = Path(folder)
        found: dict[str, list[Path]] = {}
        for path in sorted(folder.glob("*.hmm")):
            if (length := length_of(path)) is not None:
                found.setdefault(path.stem.removesuffix(f"_{length}"), []).append(path)
        if name is None and len(found) > 1:
            raise ValueError(f"{folder} holds several packages ({', '.join(found)}); say which with --name")
        name = next(iter(found), "") if name is None else name
        if name not in found:
            raise FileNotFoundError(
                f"no encoder {name + ' ' if name else ''}in {folder}: expected <name>.hmm with an input {TOKENS}; make "
                "one with `tcim-lite compile MODEL.onnx -o OUT`"
            )
        package = cls(folder, name, tuple(found[name]))
        for needed in NEEDED_FILES:
            if not (package.tokenizer_folder / needed).is_file():
                raise FileNotFoundError(
                    f"{package.tokenizer_folder / needed} is missing: compile the ONNX file where the checkpoint has "
                    "its tokenizer.json and config.json, or with --tokenizer FOLDER"
                )
        return package

    @staticmethod
    def is_in(folder: Path) -> bool:
        """Whether a folder has graphs of an encoder and none of a language model; looks at no tokenizer.

        Raises:
            HmmFormatError: A graph is damaged.
        """
        graphs = () if any(folder.glob("*_prefill*.hmm*")) else sorted(folder.glob("*.hmm"))
        return any(length_of(path) is not None for path in graphs)

    @property
    def tokenizer_folder(self) -> Path:
        """Tokenizer files and configs of the checkpoint."""
        return self.folder / "tokenizer"

    @property
    def facts(self) -> EncoderFacts:
        """What the files say; raises as `EncoderFacts.read`."""
        return EncoderFacts.read(self.tokenizer_folder)


def length_of(path: Path) -> int | None:
    """How many tokens a graph takes, if it takes their ids, [B, L], and no caches; None for other graphs.

    Raises:
        HmmFormatError: It is damaged.
    """
    inputs = {port["name"]: port["shape"] for port in json.loads(tcim.load_model_info(path))["input"]}
    shape = inputs.get(TOKENS, ())
    return int(shape[1]) if len(shape) == 2 and all(len(other) <= 3 for other in inputs.values()) else None
