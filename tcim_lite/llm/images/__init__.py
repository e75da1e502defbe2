"""Images in prompts: from the bytes of a file to features among tokens (docs/vision.md)."""

from ..media import MediaError, MediaPrompts, Seen
from .picture import ImageError, normalised, read_image
from .prompts import ImagePrompts

__all__ = ["ImageError", "ImagePrompts", "MediaError", "MediaPrompts", "Seen", "normalised", "read_image"]
