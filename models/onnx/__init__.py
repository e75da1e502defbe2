"""Networks from ONNX files: parsed by the package `onnx` (extra `[onnx]`), folded, lowered to our ops, packed."""

from .compile import QUANTS, OnnxCheck, OnnxOptions, OnnxResult, check_onnx, compile_onnx, is_onnx, onnx_bytes
from .cut import Cut
from .encoder_files import for_lengths
from .errors import UnsupportedNodeError
from .resizer import FORMATS, MATRICES, ImageInput

__all__ = [
    "FORMATS",
    "MATRICES",
    "QUANTS",
    "Cut",
    "ImageInput",
    "OnnxCheck",
    "OnnxOptions",
    "OnnxResult",
    "UnsupportedNodeError",
    "check_onnx",
    "compile_onnx",
    "for_lengths",
    "is_onnx",
    "onnx_bytes",
]
