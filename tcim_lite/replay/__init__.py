"""Recordings of calls of the runtime API: written, shown, and run again on any runtime (docs/recording.md).

Needs numpy only and imports nothing else of the project, so the folder works where it is copied to:

    from tcim_lite.replay import recording_of        # or `from replay import ...`, from a copy of the folder
    with recording_of(tcim_lite.runtime, "run.tcimrec"):
        ...
"""

from .compare import Tolerance, difference
from .container import Recording, RecordingError
from .recorder import recording_of
from .replayer import Mismatch, assert_replays, replay
from .writer import RecordingWriter

__all__ = [
    "Mismatch",
    "Recording",
    "RecordingError",
    "RecordingWriter",
    "Tolerance",
    "assert_replays",
    "difference",
    "recording_of",
    "replay",
]
