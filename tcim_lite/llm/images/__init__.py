"""Images in prompts: from the bytes of a file to features among tokens (docs/vision.md)."""

from .picture import ImageError, normalised, read_image
from .prompts import ImagePrompts, SeenImage

__all__ = ["ImageError", "ImagePrompts", "SeenImage", "normalised", "read_image"]
