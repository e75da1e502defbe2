"""Why a graph stays below its limit, in a sentence."""

from __future__ import annotations

from .measure import ROOFS, Timing

ENOUGH = 0.7  # of the limit: nothing to explain
_PRODUCTS = ("Linear", "MoELinear", "HeadLinear", "Conv")  # the steps that the limit is about
_DISTURBED = 0.1  # of the processors' time


def explain(timing: Timing) -> str:
    """What the time beyond the limit went into; "" for a graph at 70 % of its limit or more, or of none.

    Looks at what is outside of the program first: threads that were stopped, then single runs that were slow.
    """
    if not timing.limited_by or timing.share >= ENOUGH:
        return ""
    head = f"{timing.title} is at {timing.share:.0%} of the {ROOFS[timing.limited_by]}: "
    stops = timing.stops
    stopped = min(stops.waiting + stops.stolen, 1.0)
    if stopped > _DISTURBED:
        return head + (
            f"its threads were stopped for {stopped:.0%} of the time ({stops.waiting:.0%} by "
            f"other threads, {stops.stolen:.0%} by the host); close other programs, or set TCIM_LITE_THREADS lower."
        )
    best = timing.share * timing.seconds / timing.fastest
    if best >= ENOUGH:
        return head + f"its fastest run reached {best:.0%}, so the machine was disturbed; run it again."
    lost = sorted(_lost(timing).items(), key=lambda item: -item[1])
    parts = ", ".join(f"{what} {seconds * 1e3:.2f}" for what, seconds in lost if seconds > 0.02 * timing.seconds)
    limit_ms = timing.share * timing.seconds * 1e3
    return head + f"the limit alone takes {limit_ms:.2f} of {timing.seconds * 1e3:.2f} ms. Beyond it, in ms: {parts}."


def _lost(timing: Timing) -> dict[str, float]:
    """Seconds of a run beyond the limit, by op: all of an op that multiplies by no weights."""
    lost: dict[str, float] = {}
    for step in timing.steps:
        lost[step.op] = lost.get(step.op, 0.0) + step.seconds
    linear = [op for op in lost if op in _PRODUCTS]
    seconds = sum(lost.pop(op) for op in linear)
    why = "reading weights" if timing.limited_by == "read" else "arithmetic"
    lost[f"{' and '.join(linear)} ({why})"] = seconds - timing.weights_s
    if timing.limited_by == "read" and "Attention" in lost:
        lost["Attention"] -= timing.share * timing.seconds - timing.weights_s  # the caches that it reads
    lost["outside of the steps"] = max(timing.seconds - sum(step.seconds for step in timing.steps), 0.0)
    return lost
