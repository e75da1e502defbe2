"""A progress bar on stderr."""

from __future__ import annotations

from types import TracebackType
from typing import Any


class Progress:
    """Counts weights; shows a tqdm bar if asked to, stderr is a terminal and tqdm is installed."""

    def __init__(self, total: int, *, visible: bool) -> None:
        self._bar: Any = None
        if visible:
            try:
                from tqdm import tqdm
            except ImportError:
                return
            # disable=None: tqdm keeps quiet where stderr is not a terminal.
            self._bar = tqdm(total=total, unit="w", unit_scale=True, desc="compiling", disable=None, leave=False)

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.close()

    def advance(self, weights: int) -> None:
        """Moves on by `weights`."""
        if self._bar is not None:
            self._bar.update(weights)
