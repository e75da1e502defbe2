"""Records the calls of any runtime with the vendor's Python API, from outside: its classes are wrapped in place."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from .container import RecordingError
from .describe import Describer
from .writer import RecordingWriter

__all__ = ["KEEP", "recording_of"]

# What is stored by choice of data: inputs, outputs, states.
KEEP = {
    "none": (False, False, False),
    "inputs": (True, False, False),
    "outputs": (False, True, False),
    "all": (True, True, False),
    "states": (True, True, True),
}

# Method: its parameters after self. Another name of a method is recorded as the method.
_MODULE = {
    "get_num_inputs": (), "get_num_outputs": (), "get_input_name": ("index",), "get_output_name": ("index",),
    "get_input_info": ("name",), "get_output_info": ("name",), "get_custom_msg": (), "get_core_num": (),
    "set_input": ("name", "value"), "set_dev_input": ("name", "tensor"), "get_dev_input": ("name",),
    "set_dev_output": ("name", "tensor"), "set_output": ("name", "tensor"), "get_dev_output": ("name",),
    "get_output": ("name", "info"), "run": ("sync", "run_option"), "sync": (), "set_stream": ("stream",),
    "release": (),
}  # fmt: skip
_TENSOR = {
    "numpy": (), "to_host": ("to_contiguous",), "astype": ("np_type",), "cast_to": ("tensor",), "copy_to": ("tensor",),
    "select_roi": ("start", "shape"), "clone": ("auto_copy",), "set_zero": (),
}  # fmt: skip
_OTHER_NAMES = {
    "get_input": "get_dev_input", "close": "release", "destroy": "release", "unload": "release", "cast": "astype",
}  # fmt: skip
# Their arguments are remembered, for the load or run that they are given to.
_PLAIN = {
    "DevManager": ("devices", "backend_name"),
    "WeightManager": ("device",),
    "Option": ("weight_manager",),
    "RunOption": ("rounds",),
}
_RENAMED = {"option": "run_option", "dst": "tensor", "idx": "index", "dtype": "np_type"}


@contextlib.contextmanager
def recording_of(runtime: Any, file: str | os.PathLike[str], *, data: str = "inputs") -> Iterator[None]:
    """Records every call of a runtime while the block runs, in the format of `TCIM_LITE_LAYERS=record:FILE`.

    Objects that the program makes before are unknown, so record from the first load on. A function that the program
    imported by name (`from tcim_lite.runtime import load`) before the block is not wrapped.

    Args:
        runtime: a module with the vendor's API, such as `tcim_lite.runtime`; it is as before after the block.
        file: the recording; one of the name is replaced.
        data: which values are stored: "none", "inputs", "outputs", "all" or "states".

    Raises:
        RecordingError: another choice of data, a runtime whose classes cannot be wrapped, or a file that another
            recording is written into.
    """
    if data not in KEEP:
        raise RecordingError(f"data={data!r:.80}: expected one of {', '.join(KEEP)}")
    version = ""
    with contextlib.suppress(Exception):
        version = str(runtime.get_version())
    meta = {"recorder": "python", "runtime": version, "command": " ".join(sys.argv), "time": int(time.time())}
    with RecordingWriter(file, {**meta, "data": data}) as writer:
        recorder = _Recorder(runtime, writer, data)
        try:
            recorder.wrap_all()
            yield
        finally:
            recorder.unwrap()


class _Recorder:
    def __init__(self, runtime: Any, writer: RecordingWriter, data: str) -> None:
        self.runtime, self.writer = runtime, writer
        self.describe = Describer(runtime, writer, *KEEP[data])
        self.inside = threading.local()
        self.start = time.perf_counter_ns()
        self.restore: list[tuple[Any, str, Any, bool]] = []

    # -- wrapping

    def wrap_all(self) -> None:
        runtime = self.runtime
        self.wrap(runtime, "load", "Module.load", ("path", "option"))
        if "load" in vars(runtime.Module):
            self.wrap(runtime.Module, "load", "Module.load", ("path", "option"), static=True)
        for kind, methods in ((runtime.Module, _MODULE), (runtime.Tensor, _TENSOR)):
            for name in [*methods, *_OTHER_NAMES]:
                known = _OTHER_NAMES.get(name, name)
                if known in methods and hasattr(kind, name):
                    self.wrap(kind, name, f"{kind.__name__}.{known}", ("self", *methods[known]))
        self.wrap(runtime.Tensor, "__init__", "Tensor.__init__", ("self", "info", "data"))
        for name, parameters in _PLAIN.items():
            if hasattr(runtime, name):
                self.remember(getattr(runtime, name), "__init__", ("self", *parameters))
        for name in ("set_dummy_tensors", "set_model_offset"):
            if hasattr(runtime.Option, name):
                self.remember(runtime.Option, name, ("self", "names" if "dummy" in name else "offset", "size"))

    def replace(self, owner: Any, name: str, made: Any) -> None:
        own = name in vars(owner)
        old = vars(owner).get(name)
        try:
            setattr(owner, name, made)
        except (AttributeError, TypeError) as error:
            raise RecordingError(f"{owner.__name__}.{name} of this runtime cannot be wrapped: {error}") from None
        self.restore.append((owner, name, old, own))

    def unwrap(self) -> None:
        for owner, name, old, own in reversed(self.restore):
            if own:
                setattr(owner, name, old)
            else:
                delattr(owner, name)
        self.restore.clear()

    def wrap(self, owner: Any, name: str, call: str, parameters: tuple[str, ...], *, static: bool = False) -> None:
        original: Callable[..., Any] = getattr(owner, name)

        @functools.wraps(original)
        def recorded(*args: Any, **keywords: Any) -> Any:
            if getattr(self.inside, "call", False):
                return original(*args, **keywords)
            self.inside.call = True
            try:
                return self.record(original, call, parameters, args, keywords)
            finally:
                self.inside.call = False

        self.replace(owner, name, staticmethod(recorded) if static else recorded)

    def remember(self, kind: Any, name: str, parameters: tuple[str, ...]) -> None:
        original: Callable[..., Any] = getattr(kind, name)

        @functools.wraps(original)
        def remembered(*args: Any, **keywords: Any) -> Any:
            result = original(*args, **keywords)
            self.describe.remember(args[0], _bound(parameters, args[1:], keywords, skip=1))
            return result

        self.replace(kind, name, remembered)

    # -- a call

    def record(
        self, original: Any, call: str, parameters: tuple[str, ...], args: tuple[Any, ...], keywords: dict[str, Any]
    ) -> Any:
        given = _bound(parameters, args, keywords)
        record: dict[str, Any] = {"call": call, "thread": threading.get_native_id()}
        with contextlib.suppress(Exception):  # what cannot be described is the runtime's to refuse
            record.update(self.describe.arguments(call, given))
        begin = time.perf_counter_ns()
        try:
            result = original(*args, **keywords)
        except BaseException as error:
            self.finish(record, begin, {"error": {"type": type(error).__name__, "text": str(error)}})
            raise
        took = time.perf_counter_ns() - begin
        made = self.describe.result(call, given, result)
        self.finish(record, begin, made, took)
        if call == "Module.load":
            handle = made["module"]
            with contextlib.suppress(TypeError):  # a class without weak references
                weakref.finalize(result, self.finish, {"call": "Module.delete", "module": handle}, None, {}, 0)
        if call == "Module.run" and (states := self.describe.states(given)) is not None:
            self.finish(states, begin, {}, took)
        return result

    def finish(self, record: dict[str, Any], begin: int | None, more: dict[str, Any], took: int | None = None) -> None:
        now = time.perf_counter_ns()
        began = now if begin is None else begin
        times = {"at": began - self.start, "ns": now - began if took is None else took}
        if record.get("call") == "Tensor.__init__":
            record["call"] = "Tensor.from_array" if "array" in record else "Tensor.allocate"
        self.writer.add_record({**record, **times, **more})


def _bound(
    parameters: tuple[str, ...], args: tuple[Any, ...], keywords: dict[str, Any], skip: int = 0
) -> dict[str, Any]:
    """Arguments by the names that are used here."""
    given = dict(zip(parameters[skip:], args, strict=False))
    given.update({name if name in parameters else _RENAMED.get(name, name): each for name, each in keywords.items()})
    return given
