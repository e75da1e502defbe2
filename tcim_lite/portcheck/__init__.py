"""What a program asks of the runtime: which calls, how each is emulated, and patterns that are risky on the card."""

from .report import Report, check

__all__ = ["Report", "check"]
