"""What may be said of the format of weights: nothing, as a package has its own. Imports no vLLM."""

from __future__ import annotations


def check_load_format(load_format: str) -> None:
    """Raises ValueError, with what to do, for a `--load-format` other than vLLM's default."""
    if load_format == "auto":
        return
    instead = "leave it out"
    if load_format == "dummy":
        instead += ", or compile with --random-weights for weights that mean nothing"
    raise ValueError(f"load_format={load_format}: the weights are those of the package, in its own format; {instead}")
