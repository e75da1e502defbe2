"""DevManager and WeightManager: cheap descriptions until a load uses them (C-20); they survive fork and pickling."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any

from tcim_lite import _core
from tcim_lite.marks import chosen, exact
from tcim_lite.runtime.arguments import text

__all__ = ["DevManager", "WeightManager"]


@exact("2", "DevManager::Create")
class DevManager:
    """An ordered list of device ids; the first is rank 0. Immutable."""

    def __init__(
        self, devices: int | Iterable[int] = 0, backend_name: str = "", *, device_ids: int | Iterable[int] | None = None
    ) -> None:
        """Describes devices. Whether they exist is checked by `load`.

        Args:
            devices: one id, or a list or tuple of them.
            backend_name: "Xh2HalBackend", "Xh2aHalBackend", "xh2" or "".
            device_ids: another name of `devices`, that of the adapter and of the attribute.

        Raises:
            TypeError: an id is no int, or both names are used.
            ValueError: an id is negative, there are none, or the backend is unknown (`ArgumentError`).
            UnsupportedError: the backend of another chip.
        """
        if device_ids is not None:
            if devices != 0:
                raise TypeError("device_ids is another name of devices; give one of them")
            devices = device_ids
        given: list[Any] = list(devices) if isinstance(devices, (list, tuple, range)) else [devices]
        if any(isinstance(device_id, bool) for device_id in given):
            raise TypeError(f"devices={devices!r:.200}: expected an int or a list of ints")
        try:
            ids = [operator.index(device_id) for device_id in given]
        except TypeError:
            raise TypeError(f"devices={devices!r:.200}: expected an int or a list of ints") from None
        if any(not 0 <= device_id < 1 << 31 for device_id in ids):
            raise ValueError(f"devices={devices!r:.200}: ids start at 0 and fit 31 bits")
        if not ids:
            raise ValueError("devices is empty: expected at least one id")
        _core.resolve_backend(text(backend_name, "backend_name"))
        self._device_ids = tuple(ids)
        self._backend_name = backend_name

    @property
    @chosen("2", "known from the adapter only")
    def device_ids(self) -> list[int]:
        """The ids in order of rank."""
        return list(self._device_ids)

    @property
    @chosen("2", "known from the adapter only")
    def backend_name(self) -> str:
        """As given; "" means the default."""
        return self._backend_name

    @property
    @chosen("2", "known from the adapter only")
    def dev_count(self) -> int:
        """The number of ids."""
        return len(self.device_ids)

    @chosen("2", "known from the adapter only")
    def verify(self) -> bool:
        """Whether every id exists now."""
        return set(self.device_ids) <= set(_core.device_ids())

    def __repr__(self) -> str:
        return f"DevManager({self.device_ids}, {self.backend_name!r})"


@exact("3", "Module::WeightManager")
class WeightManager:
    """Modules loaded with one manager share equal weights on a device.

    Lazy: memory appears at the first load that carries it. Modules keep their manager alive and own the weights, which
    go with the last module that uses them (C-22).
    """

    def __init__(self, device: DevManager | int = 0) -> None:
        """Describes where the weights will live.

        Args:
            device: a `DevManager` or a device id.

        Raises:
            TypeError: `device` is neither.
            ValueError: a negative id.
        """
        self._dev_manager = device if isinstance(device, DevManager) else DevManager(device)

    @chosen("3", "vendor programs call it, the documentation has it not")
    def release(self) -> None:
        """Forgets weights that no module uses. May be called again.

        Loaded modules keep their weights, and later loads with this manager work as before.
        """
        self._store().release()

    close = destroy = release

    def _store(self) -> _core.WeightStore:
        # setdefault is atomic: threads that load at once get the same store.
        store: _core.WeightStore = self.__dict__.setdefault("_core_store", _core.WeightStore.make())
        return store

    def __getstate__(self) -> dict[str, object]:
        return {"_dev_manager": self._dev_manager}  # C-32: by configuration, without memory

    def __repr__(self) -> str:
        return f"WeightManager({self._dev_manager!r})"
