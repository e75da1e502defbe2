"""Makes the calls of a recording, and keeps the objects that they are about."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .container import Recording, RecordingError
from .fingerprint import fingerprint
from .records import TensorFacts, array_of, dtype_of, field, number, numbers_of, shape_of, tensor_of, text, values_of

__all__ = ["Player"]

_MEMORY = "(memory)"  # the name of a model that was loaded from there


class Player:
    """The objects of a replay by their recorded numbers, and one method for each call."""

    def __init__(self, recording: Recording, runtime: Any, package: Path | None) -> None:
        self.recording, self.runtime, self.package = recording, runtime, package
        self.notes: list[str] = []
        self.modules: dict[int, Any] = {}
        self.ports: dict[int, list[tuple[TensorFacts, bool, str]]] = {}  # by module: looks, is an input, name
        self.managers: dict[int, Any] = {}
        self.streams: dict[int, Any] = {}
        self.default_streams = {0}
        # By the number of their memory. Those that no later call names are dropped.
        self.tensors: dict[int, dict[TensorFacts, Any]] = {}
        self.last_use: dict[int, int] = {}
        for index, record in enumerate(recording.records):
            for key in ("self", "tensor"):
                if (facts := tensor_of(record, key)) is not None:
                    self.last_use[facts.id] = index
        self.calls: dict[str, Callable[[dict[str, Any]], Any]] = {
            f"{kind}.{name.removeprefix(prefix)}": getattr(self, name)
            for kind, prefix in (("Module", "module_"), ("Tensor", "tensor_"))
            for name in dir(self)
            if name.startswith(prefix)
        }

    def knows(self, record: dict[str, Any]) -> bool:
        """Whether the call can be made."""
        name = text(record, "call")
        if name == "Module.load" and text(record, "name") == _MEMORY and "error" in record:
            return False  # no later call needs it
        return name in self.calls or name.startswith("Module.get_")

    def call(self, index: int, record: dict[str, Any]) -> Any:
        """Makes the call and returns its result; what the runtime raises comes out.

        Raises:
            RecordingError: the recording lacks what the call needs.
        """
        name = text(record, "call")
        if "self" in record and "array" in record:
            self.fill(record)
        result = self.calls[name](record) if name in self.calls else self.getter(record)
        facts = tensor_of(record, "result")
        if facts is not None and self.last_use.get(facts.id, -1) > index and not isinstance(result, np.ndarray):
            self.tensors.setdefault(facts.id, {})[facts] = result
        for key in ("self", "tensor"):
            used = tensor_of(record, key)
            if used is not None and self.last_use[used.id] <= index:
                self.tensors.pop(used.id, None)
        return result

    # -- what records name

    def module(self, record: dict[str, Any]) -> Any:
        handle = number(record, "module")
        if handle not in self.modules:
            raise RecordingError(f"model {handle} was loaded before the recording began; record from the first load on")
        return self.modules[handle]

    def tensor(self, record: dict[str, Any], key: str) -> Any:
        facts = tensor_of(record, key)
        if facts is None:
            raise RecordingError(f"{text(record, 'call')} names no {key}")
        known = self.tensors.setdefault(facts.id, {})
        if facts not in known:
            alike = [facts.dtype, math.prod(facts.shape)]
            found = [each for other, each in known.items() if [other.dtype, math.prod(other.shape)] == alike]
            # A tensor that the program made around memory of its own was no call.
            known[facts] = found[0] if found else self.new_tensor(facts)
        return known[facts]

    def new_tensor(self, facts: TensorFacts) -> Any:
        """Zeroed memory that looks like this."""
        if facts.device < 0:
            return self.runtime.Tensor(self.runtime.TensorInfo(facts.shape, np.dtype(facts.dtype).type))
        alike = [
            (looks.dtype != facts.dtype, module.get_input_info if is_input else module.get_output_info, name)
            for handle, module in self.modules.items()
            for looks, is_input, name in self.ports.get(handle, ())
            if (looks.shape, looks.device) == (facts.shape, facts.device)
        ]
        if alike:
            differs, info_of, name = min(alike, key=lambda each: each[0])
            info = info_of(name)
            return self.runtime.Tensor(info.astype(np.dtype(facts.dtype).type) if differs else info)
        # Of a buffer of C++: no info that a runtime gives describes it.
        note = (
            f"host memory stands for a tensor {facts.dtype} {list(facts.shape)} on device {facts.device}, "
            "whose shape no input or output has"
        )
        if note not in self.notes:
            self.notes.append(note)
        return self.runtime.Tensor(self.runtime.TensorInfo(facts.shape, np.dtype(facts.dtype).type))

    def array(self, record: dict[str, Any]) -> NDArray[Any]:
        facts = array_of(record, "array")
        values = None if facts is None else values_of(self.recording, facts)
        if values is None:
            raise RecordingError(
                f"the values given to {text(record, 'call')} ({text(record, 'name')!r:.80}) were not stored; "
                "record with TCIM_LITE_RECORD_DATA=inputs, all or states"
            )
        return values

    def fill(self, record: dict[str, Any]) -> None:
        """Writes into a host tensor what the program wrote there through a pointer or an array, without a call."""
        facts, tensor = tensor_of(record, "self"), self.tensor(record, "self")
        if facts is not None:
            info = self.runtime.TensorInfo(facts.shape, np.dtype(facts.dtype).type)
            self.runtime.Tensor(info, self.array(record)).copy_to(tensor)

    @staticmethod
    def info_of(record: dict[str, Any]) -> tuple[tuple[int, ...], str]:
        info = field(record, "info", dict, {})
        return shape_of(info), dtype_of(info)

    def info(self, record: dict[str, Any]) -> Any:
        shape, dtype = self.info_of(record)
        return self.runtime.TensorInfo(shape, np.dtype(dtype).type)

    def values(self, record: dict[str, Any], result: Any) -> NDArray[Any] | None:
        """What the call made: an array, a host tensor, or the host tensor that it wrote."""
        if isinstance(result, np.ndarray):
            return result
        made = self.tensor(record, "tensor") if result is None and "tensor" in record else result
        return None if made is None else np.asarray(made.numpy())

    def state(self, handle: int, name: str) -> NDArray[Any]:
        """A state of a model, once its runs are done."""
        module = self.modules[handle]
        module.sync()
        return np.asarray(module.get_dev_input(name).to_host(True).numpy())

    # -- loads

    def module_load(self, record: dict[str, Any]) -> Any:
        load = field(record, "load", dict)
        if load is None:
            raise RecordingError("a load without its options")
        module = self.runtime.load(str(self.model_file(record, load)), self.option(load))
        handle = number(record, "module")
        self.modules[handle] = module
        self.default_streams.add(number(record, "stream"))
        self.ports[handle] = [
            (facts, key == "inputs", text(port, "name"))
            for key in ("inputs", "outputs")
            for port in field(record, key, list, [])
            if isinstance(port, dict) and (facts := tensor_of(port, "tensor")) is not None
        ]
        return module

    def model_file(self, record: dict[str, Any], load: dict[str, Any]) -> Path:
        recorded = Path(text(record, "name"))
        if str(recorded) == _MEMORY:
            raise RecordingError("a model that was loaded from memory; a replay needs files")
        if self.package is not None:
            file = self.package / recorded.name
        else:
            file = recorded if recorded.exists() else self.recording.path.parent / recorded.name
        if "error" not in record and not file.is_file():
            raise RecordingError(f"the model {file} is missing; give the folder that has {file.name!r} with --package")
        if file.is_file() and "head" in load:
            with file.open("rb") as model:
                head = f"{fingerprint(model.read(4096)):016x}"
            if (head, file.stat().st_size) != (text(load, "head"), number(load, "bytes")):
                self.notes.append(f"{file} is not the file that was recorded")
        return file

    def option(self, load: dict[str, Any]) -> Any:
        runtime = self.runtime
        weights = number(load, "weights")
        if weights not in self.managers or not weights:
            devices = runtime.DevManager(numbers_of(load, "devices"), text(load, "backend"))
            self.managers[weights] = runtime.WeightManager(devices)
        option = runtime.Option(self.managers[weights])
        dummies = field(load, "dummies", list, [])
        if dummies:
            option.set_dummy_tensors([str(name) for name in dummies])
        if number(load, "offset") or number(load, "size"):
            option.set_model_offset(number(load, "offset"), number(load, "size"))
        return option

    def module_release(self, record: dict[str, Any]) -> None:
        getattr(self.module(record), "release", lambda: None)()  # which not every runtime has

    def module_delete(self, record: dict[str, Any]) -> None:
        self.modules.pop(number(record, "module"), None)
        self.ports.pop(number(record, "module"), None)

    # -- other calls of a module

    def module_set_input(self, record: dict[str, Any]) -> None:
        facts = tensor_of(record, "tensor")
        value = self.array(record) if facts is None or facts.device < 0 else self.tensor(record, "tensor")
        self.module(record).set_input(text(record, "name"), value)

    def module_set_dev_input(self, record: dict[str, Any]) -> None:
        self.module(record).set_dev_input(text(record, "name"), self.tensor(record, "tensor"))

    def module_set_dev_output(self, record: dict[str, Any]) -> None:
        self.module(record).set_dev_output(text(record, "name"), self.tensor(record, "tensor"))

    def module_set_output(self, record: dict[str, Any]) -> None:
        self.module(record).set_output(text(record, "name"), self.tensor(record, "tensor"))

    def module_get_output(self, record: dict[str, Any]) -> Any:
        module, name = self.module(record), text(record, "name")
        target = tensor_of(record, "tensor")
        if target is not None:  # C++: GetOutput(name, tensor)
            info = self.runtime.TensorInfo(target.shape, np.dtype(target.dtype).type)
            result = module.get_output(name, info)
            self.tensors.setdefault(target.id, {})[target] = result
            return result
        return module.get_output(name, self.info(record)) if "info" in record else module.get_output(name)

    def module_run(self, record: dict[str, Any]) -> None:
        rounds = number(record, "rounds", 1)
        sync = bool(field(record, "sync", bool, False))
        if rounds == 1:
            self.module(record).run(sync)
        else:
            self.module(record).run(sync, self.runtime.RunOption(rounds))

    def module_sync(self, record: dict[str, Any]) -> None:
        self.module(record).sync()

    def module_set_stream(self, record: dict[str, Any]) -> None:
        handle = number(record, "stream")
        if handle in self.default_streams:
            self.module(record).set_stream(None)
            return
        if handle not in self.streams:
            self.streams[handle] = self.runtime.Stream()
        self.module(record).set_stream(self.streams[handle])

    def getter(self, record: dict[str, Any]) -> Any:
        """Module.get_*: a name, a recorded index, or nothing."""
        name = text(record, "call").rpartition(".")[2]
        method = getattr(self.module(record), name)
        if "index" in record:
            return method(number(record, "index"))
        return method(text(record, "name")) if "name" in record else method()

    # -- tensors

    def tensor_allocate(self, record: dict[str, Any]) -> Any:
        shape, dtype = self.info_of(record)
        return self.new_tensor(TensorFacts(0, 0, dtype, shape, number(field(record, "info", dict), "device", -1)))

    def tensor_from_array(self, record: dict[str, Any]) -> Any:
        return self.runtime.Tensor(self.info(record), self.array(record))

    def tensor_select_roi(self, record: dict[str, Any]) -> Any:
        return self.tensor(record, "self").select_roi(numbers_of(record, "start"), numbers_of(record, "extents"))

    def tensor_to_host(self, record: dict[str, Any]) -> Any:
        source, result = tensor_of(record, "self"), tensor_of(record, "result")
        same = source is not None and result is not None and source.id == result.id
        return self.tensor(record, "self").to_host(not same)

    def tensor_numpy(self, record: dict[str, Any]) -> Any:
        return np.asarray(self.tensor(record, "self").numpy())

    tensor_data = tensor_numpy

    def tensor_clone(self, record: dict[str, Any]) -> Any:
        return self.tensor(record, "self").clone(bool(field(record, "copies", bool, True)))

    def tensor_astype(self, record: dict[str, Any]) -> Any:
        return self.tensor(record, "self").astype(np.dtype(dtype_of(record)).type)

    def tensor_copy_to(self, record: dict[str, Any]) -> None:
        self.tensor(record, "self").copy_to(self.tensor(record, "tensor"))

    def tensor_cast_to(self, record: dict[str, Any]) -> None:
        self.tensor(record, "self").cast_to(self.tensor(record, "tensor"))

    def tensor_set_zero(self, record: dict[str, Any]) -> None:
        self.tensor(record, "self").set_zero()
