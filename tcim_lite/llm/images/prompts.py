"""Images of prompts: which tower sees them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tcim_lite.runtime as tcim

from ..graph_file import Load, modules_on
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
        return cls(image_reader(package, tokenizer, modules_on(tcim.WeightManager(device))))


def image_reader(package: Package, tokenizer: Any, load: Load) -> Reader:
    """What takes the images of a package.

    Args:
        package: With a tower.
        tokenizer: As `ImagePrompts.open` takes it.
        load: Opens its graphs. With `GraphFile` images are prepared and not seen, so no device is needed.

    Raises:
        FileNotFoundError, MediaError, ImportError, TcimError: As `ImagePrompts.open`.
    """
    pillow()
    checkpoint = Checkpoint(package.tokenizer_folder, tokenizer)
    if checkpoint.config.get("model_type") == "gemma4":
        path = package.folder / f"{package.name}_visual.hmm"
        if not path.is_file():
            raise FileNotFoundError(f"there is no {path.name}; compile the whole checkpoint with --vision")
        return PooledReader(path, load, checkpoint)
    if any(package.has(f"visual_{mode}.hmm") for mode in ("16x", "4x", "1x")):
        return StripReader(package.folder, package.name, load, checkpoint)
    return GridReader(VisionTower(Path(package.folder), package.name, load=load), checkpoint)
