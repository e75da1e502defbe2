"""Blocks that layers are made of.

Each is a record whose `weights` yields its weights in the order of use, and whose `lower` adds it to a graph.
"""

from typing import TypeAlias

from .altup import AltUpCorrect, AltUpPredict, Laurel
from .attention import Attention
from .deepstack import Deepstack
from .delta_net import DeltaNet
from .key_delta_net import KeyDeltaNet
from .latent_attention import LatentAttention
from .layer_scale import LayerScale
from .mamba import Mamba
from .mamba2 import Mamba2
from .mlp import Mlp
from .mlp_and_experts import MlpAndExperts
from .moe import Moe
from .per_layer import PerLayerInput
from .short_conv import ShortConv
from .sparse_mlp import SparseMlp

Block: TypeAlias = (
    AltUpCorrect
    | AltUpPredict
    | Attention
    | Deepstack
    | DeltaNet
    | KeyDeltaNet
    | Laurel
    | LatentAttention
    | LayerScale
    | Mamba
    | Mamba2
    | Mlp
    | MlpAndExperts
    | Moe
    | PerLayerInput
    | ShortConv
    | SparseMlp
)

__all__ = [
    "AltUpCorrect",
    "AltUpPredict",
    "Attention",
    "Block",
    "Deepstack",
    "DeltaNet",
    "KeyDeltaNet",
    "LatentAttention",
    "Laurel",
    "LayerScale",
    "Mamba",
    "Mamba2",
    "Mlp",
    "MlpAndExperts",
    "Moe",
    "PerLayerInput",
    "ShortConv",
    "SparseMlp",
]
