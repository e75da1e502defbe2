"""Which stages a package has, and on which devices they lie."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import tcim_lite.runtime as tcim

from ..package import Package
from .hearing_stage import HearingStage
from .language_stage import LanguageStage
from .stage import Stage


def load_stages(
    package: Package, devices: Sequence[int], pipeline: bool
) -> tuple[list[Stage], list[tcim.WeightManager]]:
    """Loads the graphs of a package for these devices: all of it as one stage, or with `pipeline` one on each.

    Returns:
        The stages, first layers first, and what holds the weights of each.

    Raises:
        FileNotFoundError: The package has no graphs for that many devices.
        TcimError: A file that cannot be loaded.
        ValueError: No devices, not as many as stages, or graphs that do not fit together.
        TypeError: One id that is not in a sequence.
    """
    if not isinstance(devices, Sequence):
        raise TypeError(f"devices={devices!r:.80}: expected ids in a sequence, such as [0]")
    if not devices:
        raise ValueError("devices is empty; name at least one, such as [0]")
    if pipeline:
        verifies: list[Path | None] = [None] * len(package.parts("decode"))
        if package.has("verify_part0.hmm"):
            verifies = list(package.parts("verify"))
        parts = list(zip(package.parts("prefill"), package.parts("decode"), verifies, strict=True))
        if len(parts) != len(devices):
            raise ValueError(
                f"the package has {len(parts)} stages, devices names {len(devices)}: {list(devices)}; "
                "name one device for each stage"
            )
        managers = [tcim.WeightManager(device) for device in devices]
        stages: list[Stage] = [
            LanguageStage.load(prefill, decode, weights, verify)
            for (prefill, decode, verify), weights in zip(parts, managers, strict=True)
        ]
        return stages, managers
    if len(devices) > 1:
        weights = tcim.WeightManager(tcim.DevManager(list(devices), "Xh2HalBackend"))
        verify = package.graph("verify.hmms") if package.has("verify.hmms") else None
        return [LanguageStage.load(package.graph("prefill.hmms"), package.graph("decode.hmms"), weights, verify)], [
            weights
        ]
    weights = tcim.WeightManager(devices[0])
    if HearingStage.fits(package):
        return [HearingStage.open(package, weights)], [weights]
    verify = package.graph("verify.hmm") if package.has("verify.hmm") else None
    return [LanguageStage.load(package.prefill_path, package.decode_path, weights, verify)], [weights]
