"""Images of prompts: which tower sees them, where their tokens are, and what was seen already."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tcim_lite.runtime as tcim

from ..mixed_prompt import Features, MixedPrompt
from ..package import Package
from ..vision import VisionTower
from .grid import GridReader
from .picture import ImageError, open_image, pillow
from .pooled import PooledReader
from .reader import Checkpoint, Prepared, Reader
from .strip import StripReader

_KEPT_BYTES = 256 << 20  # of features of images that were seen before


@dataclass(eq=False)
class SeenImage:
    """An image of a conversation.

    Attributes:
        prepared: its text, and what the tower takes.
        features: of each of its pieces; none until the tower has seen it.
    """

    prepared: Prepared
    features: list[Features] = field(default_factory=list)

    @property
    def tokens(self) -> int:
        """How many tokens are placeholders for it."""
        return sum(self.prepared.counts)


class ImagePrompts:
    """The images of a package's prompts; thread-safe.

    A chat sends its images again in every turn, so features are kept, the latest of them, by a digest of the file.

    Args:
        reader: Of the package's tower.

    Attributes:
        mark: What a chat template writes for an image.
        writes_marks: As in `Reader`.
    """

    def __init__(self, reader: Reader):
        self._reader, self.mark, self.writes_marks = reader, reader.mark, reader.writes_marks
        self._at_work, self._lock = threading.Lock(), threading.Lock()  # over the tower, and over the two below
        self._seen: OrderedDict[bytes, SeenImage] = OrderedDict()
        self._kept = 0

    @classmethod
    def open(cls, package: Package, tokenizer: Any, device: int = 0) -> ImagePrompts:
        """Loads the vision tower of a package.

        Args:
            package: With a tower.
            tokenizer: Its own, of the library tokenizers: `backend_tokenizer` of one of transformers.
            device: Where it runs.

        Raises:
            FileNotFoundError: The package has no tower, or one that this cannot feed; the message says which.
            ImageError: Its configs lack something.
            ImportError: Pillow is missing.
            TcimError: A graph cannot be loaded.
        """
        pillow()
        return cls(_reader(package, Checkpoint(package.tokenizer_folder, tokenizer), device))

    def take(self, data: bytes) -> SeenImage:
        """The image in a file, ready to be counted.

        Raises:
            ImageError: It is none of the formats that are read, is damaged, has too many pixels, or has slices that are
                larger than the graph takes.
        """
        digest = hashlib.sha256(data).digest()
        with self._lock:
            if (known := self._seen.get(digest)) is not None:
                self._seen.move_to_end(digest)
                return known
        made = SeenImage(self._reader.prepare(open_image(data)))
        with self._lock:
            self._keep(digest, made)
        return made

    def expand(self, text: str, images: Sequence[SeenImage]) -> str:
        """A rendered prompt with a placeholder for each token of its images, whose marks it has in order.

        Raises:
            ImageError: It has more or fewer marks than there are images.
        """
        first, *others = text.split(self.mark)
        if len(others) != len(images):
            raise ImageError(
                f"the prompt has {self.mark} {len(others)} times for {len(images)} images: the text of a message has "
                "it, or the chat template does not write it once for each image"
            )
        parts = [first]
        for number, (image, behind) in enumerate(zip(images, others, strict=True)):
            parts += [self._reader.before(number), image.prepared.text, behind]
        return "".join(parts)

    def place(self, tokens: Sequence[int], images: Sequence[SeenImage]) -> MixedPrompt:
        """The prompt with the features of its images, in order; those that are new are seen now.

        Raises:
            ImageError: The prompt does not have their placeholders.
        """
        free = [place for place, token in enumerate(tokens) if token == self._reader.placeholder]
        if len(free) != (count := sum(image.tokens for image in images)):
            raise ImageError(f"the prompt has {len(free)} placeholders for {count} tokens of images")
        places, begin = [], 0
        for image in images:
            for features in self._features(image):
                own = free[begin : begin + len(features)]
                if own[-1] - own[0] >= len(own):
                    raise ImageError("the placeholders of an image do not lie side by side in the prompt")
                places.append((own[0], features))
                begin += len(features)
        return MixedPrompt(tokens, places, self._reader.stand_in)

    def _features(self, image: SeenImage) -> list[Features]:
        with self._at_work:  # another request may have had it seen meanwhile
            if not image.features:
                image.features = self._reader.see(image.prepared.inputs)
                image.prepared = Prepared(image.prepared.text, image.prepared.counts, None)
            return image.features

    def _keep(self, digest: bytes, image: SeenImage) -> None:
        """Remembers an image; forgets the oldest ones."""
        if digest not in self._seen:
            self._seen[digest] = image
        while len(self._seen) > 1 and sum(map(_bytes_of, self._seen.values())) > _KEPT_BYTES:
            self._seen.popitem(last=False)


def _bytes_of(image: SeenImage) -> int:
    inputs = image.prepared.inputs
    pixels: list[Any] = inputs if isinstance(inputs, list) else [] if inputs is None else [inputs]
    parts = [part for features in image.features for part in (features.rows, *features.deepstack)]
    return sum(part.nbytes for part in (*pixels, *parts))


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
