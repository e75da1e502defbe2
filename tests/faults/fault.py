"""What a seeded fault is."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Fault:
    """A mistake that a runtime could have, put into a copy of one source.

    `before` stands once in the file; `after` takes its place there and asks `seeded(name)` whether to go wrong. So one
    build has all faults, and the environment variable TCIM_LITE_SEEDED_FAULT chooses one.
    """

    name: str
    what: str  # one sentence
    rule: str  # the corner, or what else is broken
    file: str  # from the root of the repository
    before: str
    after: str
    caught_by: tuple[str, ...]  # ids of conformance cases that fail; not all of them

    def seed(self, text: str) -> str:
        """The text of the file with the fault in it."""
        count = text.count(self.before)
        assert count == 1, f"fault {self.name}: {self.file} has {self.before!r} {count} times; adapt the fault"
        return text.replace(self.before, self.after)
