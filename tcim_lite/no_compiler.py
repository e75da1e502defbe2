"""What stand-ins for parts of the vendor's compiler say to a program that asks them for more."""

from __future__ import annotations

INSTEAD = (
    "which is not emulated; compile the checkpoint or the ONNX file with `tcim-lite compile`, and run only the program "
    "that loads the result"
)
