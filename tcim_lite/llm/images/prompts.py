"""Images of prompts: which tower sees them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tcim_lite.runtime as tcim

from ..media import MediaPrompts
from ..package import Package
from ..vision import VisionTower
from .grid import GridReader
from .picture import open_image, pillow
from .pooled import PooledReader
from .reader import Checkpoint, Reader
from .strip import StripReader


class ImagePrompts(MediaPrompts):
    """The images of a package's prompts; thread-safe.

    A chat sends its images again in every turn, so features are kept, the latest of them, by a digest of the file.

    Args:
        reader: Of the package's tower.

    Attributes:
        mark: What a chat template writes for an image.
        writes_marks: Chat templates take text alone, and the mark is part of it.
        stand_in: As in `MixedPrompt`.
    """

    def __init__(self, reader: Reader):
        super().__init__(reader, lambda data: reader.prepare(open_image(data)), "images")

    @classmethod
    def open(cls, package: Package, tokenizer: Any, device: int = 0) -> ImagePrompts:
        """Loads the vision tower of a package.

        Args:
            package: With a tower.
            tokenizer: Its own, of the library tokenizers: `backend_tokenizer` of one of transformers.
            device: Where it runs.

        Raises:
            FileNotFoundError: The package has no tower, or one that this cannot feed; the message says which.
            MediaError: Its configs lack something.
            ImportError: Pillow is missing.
            TcimError: A graph cannot be loaded.
        """
        pillow()
        return cls(_reader(package, Checkpoint(package.tokenizer_folder, tokenizer), device))


def _reader(package: Package, checkpoint: Checkpoint, device: int) -> Reader:
    weights: Any = tcim.WeightManager(device)
    if checkpoint.config.get("model_type") == "gemma4":
        path = package.folder / f"{package.name}_visual.hmm"
        if not path.is_file():
            raise FileNotFoundError(f"there is no {path.name}; compile the whole checkpoint with --vision")
        return PooledReader(path, weights, checkpoint)
    if any(package.has(f"visual_{mode}.hmm") for mode in ("16x", "4x", "1x")):
        return StripReader(package.folder, package.name, weights, checkpoint)
    return GridReader(VisionTower(Path(package.folder), package.name, weights), checkpoint)
