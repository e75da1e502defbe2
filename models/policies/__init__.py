"""Policies of robots, which make actions of images and texts, by the `type` in their `config.json`."""

from __future__ import annotations

from .compile_pi05 import PI05

__all__ = ["POLICIES"]

POLICIES = {"pi05": PI05, "hm_pi05": PI05}  # the latter is what a program writes into the checkpoint that it runs
