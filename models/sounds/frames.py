"""How long a sound is that a graph takes."""

from __future__ import annotations

from ..common.errors import CompileError

ROW = "a row of the prompt"
FRAMES_OF_30_S = 3000  # what graphs take where the user does not say


def check_frames(frames: int, each: int, unit: str) -> None:
    """Raises CompileError unless the frames are whole `unit`s, of `each` frames."""
    if frames % each:
        raise CompileError(f"--audio-frames {frames} is not a multiple of {each}, the frames of {unit}")
