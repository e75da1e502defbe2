"""Pictures of graphs: `tcim-lite inspect PATH --graph FILE` (docs/inspect.md). Needs nothing but the package."""

from .package import draw, parts_of
from .page import page
from .svg import Part, svg

__all__ = ["Part", "draw", "page", "parts_of", "svg"]
