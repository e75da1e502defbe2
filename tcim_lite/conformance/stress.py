"""How long a case of the stress tier goes on, and the seed it begins with: --seconds and --seed, or these variables."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator

SECONDS, SEED = "TCIM_CONFORMANCE_SECONDS", "TCIM_CONFORMANCE_SEED"


def seconds(default: float) -> float:
    """What was asked for, else the case's own default."""
    return float(os.environ.get(SECONDS) or default)


def first_seed() -> int:
    """What was asked for, else a random one."""
    return int(os.environ.get(SEED) or random.SystemRandom().randrange(1 << 30))


def seeds(default: float) -> Iterator[int]:
    """Seeds until the time is over, at least one."""
    end, seed = time.monotonic() + seconds(default), first_seed()
    yield seed
    while time.monotonic() < end:
        seed += 1
        yield seed
