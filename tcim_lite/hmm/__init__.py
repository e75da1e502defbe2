"""The `.hmm` container in pure Python: no compiled core is needed."""

from .graph import OPS, Graph, Op, Role, Value
from .graph_section import decode_graph, encode_graph
from .layout import Sibling, WeightEntry, packed_bytes
from .parts import WHOLE, Split
from .reader import Container, read
from .taps import tappable
from .writer import WeightData, WeightsWriter, model_bytes, write_model

__all__ = [
    "OPS",
    "WHOLE",
    "Container",
    "Graph",
    "Op",
    "Role",
    "Sibling",
    "Split",
    "Value",
    "WeightData",
    "WeightEntry",
    "WeightsWriter",
    "decode_graph",
    "encode_graph",
    "model_bytes",
    "packed_bytes",
    "read",
    "tappable",
    "write_model",
]
