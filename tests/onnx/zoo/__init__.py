"""Networks of the kinds that people export to ONNX, with seeded random weights: `NETWORKS` by name."""

from .build import Case, build, export
from .table import NETWORKS

__all__ = ["NETWORKS", "Case", "build", "export"]
