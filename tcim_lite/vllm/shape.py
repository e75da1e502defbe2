"""Slots and context of a package, read from its file: the server's process never opens a device."""

from __future__ import annotations

from tcim_lite import hmm
from tcim_lite.llm import Package


def package_shape(package: Package) -> tuple[int, int]:
    """Slots B and rows C of a slot, as the decode graph's file says.

    Raises:
        FileNotFoundError: There is no decode graph.
        ValueError: It has no KV caches.
    """
    path = package.decode_path if package.decode_path.is_file() else package.graph("decode.hmms")
    graph = hmm.read(path).graph
    inputs = [graph.values[number] for number in graph.inputs] if graph else []
    caches = [value for value in inputs if "kcache" in value.name]
    if not caches:
        raise ValueError(f"{path}: has no KV caches; name the folder of a compiled language model")
    return inputs[0].shape[0], caches[0].shape[2]
