"""What a user asks of the graphs of a vision tower."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ..common.errors import CompileError

DEFAULT = "default"  # what `--vision` without a size asks for
_MOST_PATCHES = 1 << 16


@dataclass(frozen=True, slots=True)
class Asked:
    """Of the graphs of a package.

    Attributes:
        size: Of `--vision`.
        mask: `--vision-mask`, an input for what windows let patches see.
    """

    size: str = DEFAULT
    mask: bool = False

    def number(self, usual: int, what: str) -> int:
        """Returns of how many `what` an image may be at most in graphs for any image, `usual` of them unless asked.

        Raises:
            CompileError: Something else was asked for, or a mask of windows, which such towers do not have as an input.
        """
        self.refuse_mask()
        if self.size == DEFAULT:
            return usual
        if not re.fullmatch(r"\d{1,6}", self.size):
            raise CompileError(
                f"--vision {self.size}: graphs of this tower take any image of up to so many {what}; give their "
                f"number, such as --vision {usual}, or --vision alone for it"
            )
        return int(self.size)

    def refuse_mask(self) -> None:
        """Raises CompileError if a mask of windows is asked for."""
        if self.mask:
            raise CompileError("--vision-mask: the graphs of this tower take no mask of windows; leave it out")

    def check(self, patches: int) -> None:
        """Raises CompileError if a graph would be for too many patches, or for none."""
        if not 0 < patches <= _MOST_PATCHES:
            raise CompileError(f"--vision {self.size} makes {patches} patches, expected 1 to {_MOST_PATCHES}")
