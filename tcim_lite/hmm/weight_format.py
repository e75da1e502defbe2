"""How the bytes of a weight are laid out: docs/hmm-format.md section 6, the table of csrc/graph/weight_format.h.

tests/test_weight_format.py compares the two.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

BLOCK_OUTPUTS = 16
GROUP = 64  # inputs that share a scale of activations; K of a quantised weight is a multiple
LINE_BYTES = 64  # four bytes for each output of a block
# From so many terms, outputs and pixels on, the float weights of a Conv of one group are packed: kernels of every
# instruction set then multiply 16 outputs side by side.
PACKED_CONV_TERMS, PACKED_CONV_OUTPUTS, PACKED_CONV_PIXELS = 48, 33, 32


@dataclass(frozen=True, slots=True)
class WeightLayout:
    """A packed format.

    Attributes:
        code: In files.
        dtype: Of the stored elements; uint8 for codes.
        line_inputs: Inputs in a line.
        scale_inputs: Inputs that share a scale; 0 for float formats, which have no scales.
        scale_dtype: float16 for the scale itself, int8 for the exponent of 2.
        unit_inputs: Inputs whose scales follow their codes; 0 for all K.
        code_offset: What is added to a code to store it; 0: stored as E2M1, whose value doubled is the code.
        minor: The minor version of the container that has it first.
        error: Of a matrix product against the same in float32, relative in the Euclidean norm: twice what groups of
            normally distributed weights and int8 activations give (docs/diff.md). 4 bits have steps of 0.37 sigma, so
            an error of 0.37 / sqrt(12) sigma; and so on.
    """

    code: int
    dtype: str
    line_inputs: int
    scale_inputs: int = 0
    scale_dtype: str = "uint8"
    unit_inputs: int = 0
    code_offset: int = 0
    minor: int = 0
    error: float = field(kw_only=True)

    @property
    def hides_exponents(self) -> bool:
        """Whether the hidden-exponent activations of docs/numerics.md section 3 fit; graph/weight_format.h says why."""
        return self.scale_inputs > 0 and self.code_offset != 0

    def encode(self, codes: NDArray[np.int8]) -> NDArray[np.uint8]:
        """Returns signed codes as they are stored, one to a byte."""
        if not self.code_offset:
            return _E2M1_OF_CODE[codes + E2M1_CODES.max()]
        return codes.astype(np.uint8) + np.uint8(self.code_offset)  # modulo 256

    def decode(self, stored: NDArray[np.uint8]) -> NDArray[np.int8]:
        """Inverse of `encode`."""
        return (stored - np.uint8(self.code_offset)).view(np.int8) if self.code_offset else E2M1_CODES[stored]

    def line_bytes(self, inputs: int) -> int:
        """Returns the bytes of the codes or floats of so many inputs of a block."""
        return -(-inputs // self.line_inputs) * LINE_BYTES

    def scale_bytes(self, inputs: int) -> int:
        """Returns the bytes of the scales of so many inputs of a block."""
        return inputs // self.scale_inputs * BLOCK_OUTPUTS * (2 if self.scale_dtype == "float16" else 1)

    def block_bytes(self, inputs: int) -> int:
        """Returns the bytes of one block of 16 outputs."""
        if not self.scale_inputs:
            return self.line_bytes(inputs)
        unit = self.unit_inputs or inputs
        used = -(-inputs // unit) * (self.line_bytes(unit) + self.scale_bytes(unit))
        return -(-used // LINE_BYTES) * LINE_BYTES


LAYOUTS = {
    "linear_w4": WeightLayout(1, "uint8", 8, 64, "float16", 128, 8, error=0.22),
    "linear_w8": WeightLayout(2, "uint8", 4, 64, "int8", 0, 128, error=4e-2),
    "linear_f16": WeightLayout(3, "float16", 2, error=2e-3),
    "linear_f32": WeightLayout(4, "float32", 1, error=1e-5),
    "linear_mxfp4": WeightLayout(5, "uint8", 8, 32, "int8", 128, 0, minor=1, error=0.3),
}

# By stored nibble; and back, by code + 12. A stored -0 is read as 0.
E2M1_CODES = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], np.int8)
_E2M1_OF_CODE = np.zeros(25, np.uint8)
_E2M1_OF_CODE[E2M1_CODES[1:] + 12] = np.arange(1, 16)
_E2M1_OF_CODE[12] = 0
