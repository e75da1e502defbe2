"""What the recorder writes of arguments and results, and the numbers that it gives to objects."""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .fingerprint import fingerprint, fingerprint_of_array
from .records import DTYPES, memory_shape
from .writer import RecordingWriter

__all__ = ["Describer"]

_HOST = -1
# Calls that read the tensor they belong to.
_READS = frozenset(f"Tensor.{name}" for name in ("astype", "cast_to", "clone", "copy_to", "numpy", "to_host"))


@functools.lru_cache(64)
def _name_of(dtype: Any) -> str:
    """numpy's name, which numpy makes anew each time."""
    return np.dtype(dtype).name


@dataclass
class _HostMemory:
    """Of host tensors. What it holds may be what the program wrote without a call, if it has an array of it."""

    has_array: bool = False
    of_runs: bool = False  # set_output: what it holds are results

    @property
    def handed_out(self) -> bool:
        return self.has_array and not self.of_runs


class Describer:
    """Turns the objects of a runtime into members of records (docs/recording.md, section 4)."""

    def __init__(self, runtime: Any, writer: RecordingWriter, inputs: bool, outputs: bool, states: bool) -> None:
        self.runtime, self.writer = runtime, writer
        self.keep_inputs, self.keep_outputs, self.keep_states = inputs, outputs, states
        self.next = itertools.count(1)
        # By id(): not every class has weak references. A number is given anew to every object that a call returns or
        # that is constructed, which may be where another one was.
        self.numbers: dict[int, int] = {}
        self.remembered: dict[int, dict[str, Any]] = {}
        self.state_names: dict[int, dict[str, None]] = {}  # by module: inputs that a device tensor was bound to or read
        self.rounds: Counter[int] = Counter()
        self.memories: dict[int, tuple[int, _HostMemory]] = {}  # by id(), with the number, as several share one
        # The host tensor that the last call returned, and its values: the `numpy()` that follows need not look again.
        self.told: tuple[int, dict[str, Any]] | None = None

    def remember(self, made: Any, given: dict[str, Any]) -> None:
        """Arguments of a plain object. A constructor begins anew, a setter adds to it."""
        setter = given.keys() & {"names", "offset"}
        known = self.remembered.get(id(made), {}) if setter else {}
        if not setter:
            self.numbers.pop(id(made), None)
        self.remembered[id(made)] = {**known, **given}

    def number(self, value: Any, *, fresh: bool = False) -> int:
        """The number of an object."""
        if fresh or id(value) not in self.numbers:
            self.numbers[id(value)] = next(self.next)
        return self.numbers[id(value)]

    def memory(self, tensor: Any) -> _HostMemory:
        number = self.number(tensor)
        known, found = self.memories.get(id(tensor), (0, None))
        if found is None or known != number:
            found = _HostMemory()
            self.memories[id(tensor)] = (number, found)
        return found

    def is_tensor(self, value: Any) -> bool:
        return isinstance(value, self.runtime.Tensor)

    # -- calls

    def arguments(self, call: str, given: dict[str, Any]) -> dict[str, Any]:
        """The members for what was given to a call."""
        made: dict[str, Any] = {}
        if call == "Module.load":
            return self.load(given)
        owner: Any = given.get("self")
        if call.startswith("Module."):
            made["module"] = self.number(owner)
        elif call != "Tensor.__init__":
            made["self"] = self.tensor(owner)
            if call in _READS and self.memory(owner).handed_out:
                made["array"] = self.array(np.asarray(owner.numpy()), store=self.keep_inputs)
        if "name" in given:
            made["name"] = str(given["name"])
        if "index" in given:
            made["index"] = int(given["index"])
        if "tensor" in given:
            made["tensor"] = self.tensor(given["tensor"])
            if call == "Module.set_output":
                self.memory(given["tensor"]).of_runs = True
        if given.get("info") is not None:
            made["info"] = self.info(given["info"])
        made.update(self.options_of(call, given))
        for key in ("value", "data"):
            if given.get(key) is not None:
                made.update(self.value(given[key]))
        if call in ("Module.set_input", "Module.set_dev_input") and made.get("tensor", {}).get("device", _HOST) >= 0:
            self.state_names.setdefault(made["module"], {})[made["name"]] = None
        return made

    def options_of(self, call: str, given: dict[str, Any]) -> dict[str, Any]:
        if call == "Module.run":
            option = self.remembered.get(id(given.get("run_option")), {})
            return {"sync": bool(given.get("sync", False)), "rounds": int(option.get("rounds", 1))}
        if call == "Module.set_stream":
            return {"stream": 0 if given.get("stream") is None else self.number(given["stream"])}
        if call == "Tensor.astype":
            return {"dtype": _name_of(given["np_type"])}
        if call == "Tensor.select_roi":
            return {
                key: [int(each) for each in given[name]] for key, name in (("start", "start"), ("extents", "shape"))
            }
        return {"copies": bool(given.get("auto_copy", True))} if call == "Tensor.clone" else {}

    def value(self, value: Any) -> dict[str, Any]:
        """Of `set_input` and `Tensor(info, data)`: a device tensor, or host values."""
        if not self.is_tensor(value):
            return {"array": self.array(np.asarray(value), store=self.keep_inputs)}
        made: dict[str, Any] = {"tensor": self.tensor(value)}
        if made["tensor"]["device"] < 0:
            made["array"] = self.array(np.asarray(value.numpy()), store=self.keep_inputs)
        return made

    def result(self, call: str, given: dict[str, Any], result: Any) -> dict[str, Any]:
        """The members for what a call returned, or wrote into a tensor that was given."""
        if call == "Module.load":
            return self.module(result)
        if call == "Tensor.__init__":
            self.number(given["self"], fresh=True)
            return {"result": self.tensor(given["self"])}
        if call == "Module.get_dev_input":
            self.state_names.setdefault(self.number(given["self"]), {})[str(given["name"])] = None
        made: dict[str, Any] = {}
        told, self.told = self.told, None
        with contextlib.suppress(Exception):  # what cannot be described is still the program's result
            if call == "Tensor.numpy" and self.device(given["self"]) < 0:
                memory = self.memory(given["self"])
                if memory.handed_out:
                    return made
                memory.has_array = True
            if call == "Tensor.numpy" and told is not None and told[0] == self.numbers.get(id(given["self"])):
                return {"out": told[1]}
            if self.is_tensor(result):
                self.number(result, fresh=result is not given.get("self"))
                made["result"] = self.tensor(result)
                if call in ("Tensor.select_roi", "Tensor.to_host") and self.device(given["self"]) < 0:
                    self.memories[id(result)] = (self.number(result), self.memory(given["self"]))
            written = result if self.is_tensor(result) else None
            if call in ("Tensor.copy_to", "Tensor.cast_to"):
                written = given["tensor"]
            if written is not None and self.device(written) < 0:
                result = written.numpy()
            if isinstance(result, np.ndarray):
                made["out"] = self.array(result, store=self.keep_outputs)
                if call == "Module.get_output":
                    self.told = (made["result"]["id"], made["out"])
            elif isinstance(result, (str, int)):
                made["value"] = str(result)
            elif hasattr(result, "shape") and hasattr(result, "dtype") and not self.is_tensor(result):
                made["info"] = self.info(result)
        return made

    # -- loads and states

    def load(self, given: dict[str, Any]) -> dict[str, Any]:
        path, option = given.get("path"), self.remembered.get(id(given.get("option")), {})
        manager = option.get("weight_manager")
        device = self.remembered.get(id(manager), {}).get("device", 0) if manager is not None else 0
        if isinstance(manager, (int, self.runtime.DevManager)):
            device, manager = manager, None
        devices = self.remembered.get(id(device), {"devices": 0 if not isinstance(device, int) else device})
        ids = devices.get("devices", 0)
        load: dict[str, Any] = {
            "devices": [int(each) for each in ids] if isinstance(ids, (list, tuple, range)) else [int(ids)],
            "backend": str(devices.get("backend_name", "")),
            "weights": 0 if manager is None else self.number(manager),
            "dummies": [str(name) for name in option.get("names", ())],
            "offset": int(option.get("offset", 0)),
            "size": int(option.get("size", 0)),
        }
        if not isinstance(path, (str, os.PathLike)):
            return {"name": "(memory)", "load": load}
        with contextlib.suppress(OSError), open(path, "rb") as file:
            load["head"] = f"{fingerprint(file.read(4096)):016x}"
            load["bytes"] = os.fstat(file.fileno()).st_size
        return {"name": os.fspath(path), "load": load}

    def module(self, module: Any) -> dict[str, Any]:
        made: dict[str, Any] = {"module": self.number(module, fresh=True)}
        for key, kind in (("inputs", "input"), ("outputs", "output")):
            names = [
                getattr(module, f"get_{kind}_name")(index) for index in range(getattr(module, f"get_num_{kind}s")())
            ]
            infos = [getattr(module, f"get_{kind}_info")(name) for name in names]
            made[key] = [
                {"name": name, "tensor": {"id": 0, **self.info(info, device=max(self.device(info), 0))}}
                for name, info in zip(names, infos, strict=True)
            ]
        return made

    def states(self, given: dict[str, Any]) -> dict[str, Any] | None:
        """The record of the last round of a run, once it is done; None if states are not kept."""
        module = given["self"]
        handle = self.number(module)
        self.rounds[handle] += self.options_of("Module.run", given)["rounds"]
        if not self.keep_states:
            return None
        made = []
        with contextlib.suppress(Exception):  # of a failed run: the program's next call gets the error
            module.sync()
            for name in self.state_names.get(handle, ()):
                values = np.asarray(module.get_dev_input(name).to_host(True).numpy())
                made.append({"name": name, "out": self.array(values, store=True)})
        return {"round": self.rounds[handle], "module": handle, "states": made}

    # -- facts

    def device(self, tensor: Any) -> int:
        """The logical device, -1 for the host."""
        found = getattr(tensor, "device_id", None)
        if isinstance(found, int):
            return found
        place = getattr(tensor, "device", None) or getattr(getattr(tensor, "info", None), "device", None)
        return _HOST if getattr(place, "name", str(place)).endswith("CPU") else 0

    def tensor(self, tensor: Any) -> dict[str, Any]:
        return {"id": self.number(tensor), **self.info(tensor.info, device=self.device(tensor))}

    def info(self, info: Any, device: int | None = None) -> dict[str, Any]:
        place = self.device(info) if device is None else device
        return {"dtype": _name_of(info.dtype), "shape": list(memory_shape(info)), "device": place}

    def array(self, array: NDArray[Any], *, store: bool) -> dict[str, Any]:
        dtype = _name_of(array.dtype)
        if dtype not in DTYPES:
            raise TypeError(f"{array.dtype} has no place in a recording")
        array = np.ascontiguousarray(array, array.dtype.newbyteorder("<")).reshape(array.shape)
        hashed = fingerprint_of_array(array)
        made = {"dtype": dtype, "shape": list(array.shape), "hash": f"{hashed:016x}"}
        if array.size == 1 and array.dtype.kind in "iu":
            return {**made, "value": int(array.reshape(-1)[0])}
        if store:
            self.writer.add_data(array.tobytes(), hashed)
        return made
