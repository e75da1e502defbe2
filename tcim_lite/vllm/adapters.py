"""LoRA adapters of requests: folders of PEFT, or what `compile --lora` wrote, as inputs of the graphs."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tcim_lite.errors import TcimError
from tcim_lite.llm import Package
from tcim_lite.llm.lora import Adapters, fitted, read_inputs

Ports = Mapping[str, tuple[tuple[int, ...], str]]


def key_of(request: Any) -> str | None:
    """What rows of a slot that a `LoRARequest` made are known by; None for the base model."""
    return None if request is None else f"{request.lora_int_id}:{request.lora_path}"


def read_adapter(request: Any, package: Package, ports: Ports) -> dict[str, np.ndarray]:
    """The inputs of the adapter that a `LoRARequest` names.

    Its path is that of a folder, or the name of an adapter that was compiled into the package.

    Raises:
        ValueError: There is none, or the graphs do not take it.
    """
    name, own = request.lora_name, package.adapters
    folder = Path(request.lora_path).expanduser()
    if not folder.is_dir():
        if request.lora_path not in own:
            raise ValueError(
                f"adapter {name!r}: {request.lora_path} is no folder, and no adapter of {package.folder}, which has "
                f"{', '.join(own) or 'none'}"
            )
        folder = own[request.lora_path]
    if not (folder / "adapter_config.json").is_file():
        return fitted(name, read_inputs(name, folder), ports)
    from tcim_lite.models.compiler.adapter_inputs import adapter_inputs

    try:
        values = adapter_inputs(package.tokenizer_folder / "config.json", folder)
    except TcimError as error:
        raise ValueError(f"adapter {name!r}: {str(error).removeprefix('--lora ')}") from None
    return fitted(name, values, ports)


class LoadedAdapters:
    """Adapters in host memory: those of requests, and the most recently used others.

    Args:
        adapters: Of the slots.
        package: As served.
        ports: What all its graphs take.
        most: How many stay when no request has them, `max_cpu_loras`.
    """

    def __init__(self, adapters: Adapters, package: Package, ports: Ports, most: int):
        self._adapters, self._package, self._ports, self._most = adapters, package, ports, most
        self._keys: dict[int, str] = {}  # by id, the least recently used first
        self._pinned: set[int] = set()

    @property
    def ids(self) -> set[int]:
        """Of the adapters that are loaded."""
        return set(self._keys)

    def add(self, request: Any, in_use: Collection[str | None] = ()) -> None:
        """Loads an adapter unless it is there; drops what no request of `in_use` has and there are too many of.

        Raises:
            ValueError: As `read_adapter`.
        """
        number, key = request.lora_int_id, key_of(request)
        assert key is not None
        if key not in self._adapters.names or request.load_inplace:
            self._adapters.add_values(key, read_adapter(request, self._package, self._ports))
        self._keys.pop(number, None)
        self._keys[number] = key
        idle = [n for n, each in self._keys.items() if n != number and n not in self._pinned and each not in in_use]
        for n in idle[: max(0, len(self._keys) - self._most)]:
            del self._keys[n]
        self._drop(in_use)

    def remove(self, number: int, in_use: Collection[str | None] = ()) -> bool:
        """Forgets an adapter; requests that have it keep it. Returns whether it was there."""
        self._pinned.discard(number)
        was_there = self._keys.pop(number, None) is not None
        self._drop(in_use)
        return was_there

    def pin(self, number: int) -> bool:
        """Keeps an adapter, however many come. Returns whether it is there."""
        if number in self._keys:
            self._pinned.add(number)
        return number in self._keys

    def _drop(self, in_use: Collection[str | None]) -> None:
        for key in set(self._adapters.names) - set(self._keys.values()) - set(in_use):
            self._adapters.remove(key)


def refuse_bad_adapters() -> None:
    """Has vLLM check the adapter of a request before the engine, which an error would end."""
    from vllm.exceptions import VLLMValidationError
    from vllm.v1.engine.input_processor import InputProcessor

    from .case import Case
    from .shape import Shape

    checks = InputProcessor._validate_lora
    if getattr(checks, "reads_adapters", False):
        return

    def validate(self: Any, request: Any) -> None:
        checks(self, request)
        good = self.__dict__.setdefault("_tcim_adapters", set())
        if request is None or (key_of(request) in good and not request.load_inplace):
            return
        package = Package.open(Case.read(self.model_config.model).folder)
        try:
            read_adapter(request, package, Shape.read(package).lora)
        except ValueError as error:
            raise VLLMValidationError(str(error), parameter="lora_request") from None
        good.add(key_of(request))

    validate.reads_adapters = True  # type: ignore[attr-defined]
    InputProcessor._validate_lora = validate
