"""A loaded model."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NoReturn

from tcim_lite.errors import ArgumentError, StateError
from tcim_lite.marks import chosen, exact, extension
from tcim_lite.runtime.arguments import checked, flag, integer, port_name
from tcim_lite.runtime.arrays import as_array
from tcim_lite.runtime.model_file import open_model
from tcim_lite.runtime.options import Option, RunOption
from tcim_lite.runtime.stream import Stream
from tcim_lite.runtime.tensor import Tensor
from tcim_lite.runtime.tensor_info import Device, TensorInfo

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from tcim_lite._core import Module as CoreModule

__all__ = ["Module"]


@exact("7", "Module")
class Module:
    """A loaded model. Made by `load`.

    Names may be the compiled ones, the exporter's, or either with a trailing `.hmcc.format`. Values and bindings
    persist across runs. An error of queued work is raised once, at the next run, sync or get_output; reading a tensor
    waits for the work, but does not raise its error. An argument of the wrong type is a TypeError.
    """

    # Programs hang what they like on a module: the managers it needs, a name, a timed `run`.
    __slots__ = ("__dict__", "__weakref__", "_core")

    _core: CoreModule

    def __init__(self, *_: Any, **__: Any) -> None:
        raise TypeError("a Module is made by tcim_lite.runtime.load(path, option)")

    @classmethod
    def _wrap(cls, core: CoreModule) -> Module:
        module = cls.__new__(cls)
        module._core = core
        return module

    @staticmethod
    @exact("7")
    def load(path: str | os.PathLike[str] | Buffer, option: Option | None = None) -> Module:
        """The same as `tcim_lite.runtime.load`."""
        return Module._wrap(open_model(path, option))

    # -- what the model looks like

    def __repr__(self) -> str:
        def listed(names: list[str]) -> str:
            more = f", and {len(names) - 4} more" if len(names) > 4 else ""
            return f"[{', '.join(names[:4])}{more}]"

        try:
            inputs = [self.get_input_name(index) for index in range(self.get_num_inputs())]
            outputs = [self.get_output_name(index) for index in range(self.get_num_outputs())]
        except (StateError, AttributeError):  # released, or made without load
            return "<Module without a model>"
        return f"<Module on {self.get_backend_name()}: inputs {listed(inputs)}, outputs {listed(outputs)}>"

    def __copy__(self) -> Module:
        module = Module._wrap(self._core)
        module.__dict__.update(self.__dict__)
        return module

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Module cannot be pickled or copied deeply; load it again, in the process that uses it")

    @exact("7.1", "Module::GetInputNum")
    def get_num_inputs(self) -> int:
        """The number of inputs."""
        return self._core.num_inputs

    @exact("7.1", "Module::GetOutputNum")
    def get_num_outputs(self) -> int:
        """The number of outputs."""
        return self._core.num_outputs

    @exact("7.1", "Module::GetInputName")
    def get_input_name(self, idx: int) -> str:
        """The compiled name of input `idx`.

        Raises:
            ArgumentError: there is no such input.
        """
        return self._core.input_name(integer(idx, "get_input_name"))

    @exact("7.1", "Module::GetOutputName")
    def get_output_name(self, idx: int) -> str:
        """The compiled name of output `idx`.

        Raises:
            ArgumentError: there is no such output.
        """
        return self._core.output_name(integer(idx, "get_output_name"))

    @exact("7.1", "Module::GetInputInfo")
    def get_input_info(self, name: str) -> TensorInfo:
        """The shape, dtype and format of the input; valid for unbound dummies too.

        Raises:
            UnknownNameError: no input has the name.
        """
        return TensorInfo._wrap(self._core.input_info(port_name(name)))

    @property
    @chosen("7.1", "a program of the vendor's reads it; here a new dict each time")
    def input_infos(self) -> dict[str, TensorInfo]:
        """What `get_input_info` says of every input, by name and in order."""
        names = (self.get_input_name(index) for index in range(self.get_num_inputs()))
        return {name: self.get_input_info(name) for name in names}

    @exact("7.1", "Module::GetOutputInfo")
    def get_output_info(self, name: str) -> TensorInfo:
        """The shape, dtype and format of the output.

        Raises:
            UnknownNameError: no output has the name.
        """
        return TensorInfo._wrap(self._core.output_info(port_name(name)))

    @extension("remove it for the card")
    def taps(self) -> list[str]:
        """The names of the taps, in execution order: "tap:layers.3.attn.mix"; see `Option.set_taps`."""
        return self._core.taps()

    @chosen("7.1", "seen in C++ only")
    def get_custom_msg(self) -> str:
        """The text given to the compiler, JSON in practice, or ""."""
        return self._core.custom_msg

    @chosen("7.1", "seen in C++ only")
    def get_core_num(self) -> int:
        """Cores per device the model was compiled for."""
        return self._core.core_number

    @chosen("7.1", "seen in C++ only")
    def get_backend_name(self) -> str:
        """The backend, "Xh2HalBackend"."""
        return self._core.backend_name

    @chosen("7.1", "seen in C++ only")
    def get_model_version(self) -> str:
        """The version of the container."""
        return self._core.model_version

    @extension("keep the ids that the module was loaded with", "Module::GetDeviceIds")
    def get_device_ids(self) -> list[int]:
        """The devices the module runs on, by rank: of those given to the load, as many as the model is for."""
        return self._core.device_ids()

    # -- data in

    @chosen("7.2", "refuses integers that do not fit, tensors of other devices", "Module::SetInput")
    def set_input(self, name: str, value: Any) -> None:
        """Copies host data into the input, or binds a device tensor to it.

        Host data is copied at call time into whatever the input is bound to, and converted (C-2, C-3, C-5): a float to
        a narrower float rounds to nearest even, and overflow becomes infinity; an integer keeps its value, and one that
        does not fit is refused, except that uint8 and int8 are reinterpreted; a float to int8 rounds to nearest even
        and saturates; a float to another integer must be a whole number; an integer to a float rounds to nearest even.

        Args:
            name: the input.
            value: a device `Tensor` to bind; or a host `Tensor`, anything `numpy.asarray` takes, or a host array with
                `__dlpack__` (torch, jax), with as many elements as the input, in any shape. bfloat16 is converted as
                the float32 of the same value. Images may also lie in an array of the shape of their info, with zeros
                behind them.

        Raises:
            UnknownNameError: no input has the name.
            ShapeError: the element count, or a bound tensor's dtype, differs.
            ArgumentError: a value does not fit, or the tensor is on another device.
            StateError: the tensor has no memory; or `TCIM_LITE_EMULATE=1.3`, where only an input named in
                `set_dummy_tensors` is bound in this way.
        """
        if isinstance(value, Tensor):
            self._core.set_input(port_name(name), value._core)
        else:
            try:
                array = as_array(value)
            except (ArgumentError, TypeError) as error:
                kind = ArgumentError if isinstance(error, ArgumentError) else TypeError
                raise kind(f"set_input error: input {name!r:.200}: {error}") from error
            self._core.set_input_array(port_name(name), array)

    @exact("7.2", "Module::SetDevInput")
    def set_dev_input(self, name: str, tensor: Tensor) -> None:
        """Binds a device tensor to the input, by reference.

        Raises:
            TcimError: as `set_input`; `ArgumentError` for a host tensor.
        """
        hint = "set_input copies host data"
        self._core.set_dev_input(port_name(name), checked(tensor, Tensor, "set_dev_input", hint)._core)

    @exact("7.2", "Module::GetDevInput")
    def get_dev_input(self, name: str) -> Tensor:
        """A live alias of the device memory that the input uses now; without memory for an unbound dummy (C-7).

        Raises:
            UnknownNameError: no input has the name.
        """
        return Tensor._wrap(self._core.input(port_name(name)))

    get_input = get_dev_input

    # -- running

    @chosen("7.3", "the second parameter answers to run_option and option")
    def run(self, sync: bool = False, run_option: RunOption | None = None, option: RunOption | None = None) -> None:
        """Queues one inference (C-13).

        Args:
            sync: wait for it.
            run_option: how often to repeat it.
            option: another name of `run_option`.

        Raises:
            StateError: a dummy input is unbound.
            TcimError: what earlier queued work failed with; with `sync`, what this run failed with.
            KeyboardInterrupt: Ctrl-C while waiting; the run goes on. So it is in all calls that wait for runs.
        """
        if run_option is not None and option is not None:
            raise TypeError("run: option is another name of run_option; give one of them")
        if isinstance(sync, RunOption):
            raise TypeError(f"run: sync: expected a bool, got {sync!r}; write run(run_option={sync!r})")
        chosen = option if run_option is None else run_option
        rounds = 1 if chosen is None else checked(chosen, RunOption, "run: run_option").rounds
        self._core.run(flag(sync, "run: sync"), rounds)

    @exact("7.3", "Module::Sync")
    def sync(self) -> None:
        """Waits for everything queued on the module's stream.

        Raises:
            TcimError: what the queued work of this module failed with.
        """
        self._core.sync()

    @exact("7.3", "Module::SetStream")
    def set_stream(self, stream: Stream | None) -> None:
        """Lets later runs use this stream; None is the device's default stream, which modules share."""
        self._core.set_stream(None if stream is None else checked(stream, Stream, "set_stream")._core)

    # -- data out

    @chosen("7.4", "waits for queued runs; zeros before the first run", "Module::GetOutput")
    def get_output(self, name: str, info: TensorInfo | Device | None = None) -> Tensor:
        """The output on the host, a fresh copy every time (C-11, C-12). Waits for queued runs.

        Args:
            name: the output.
            info: the wanted dtype and layout, with as many elements. Older programs give a place instead: for
                `Device.HDPL` the result is that of `get_dev_output`, for `Device.CPU` that without `info`.

        Raises:
            UnknownNameError: no output has the name.
            ShapeError: `info` has another element count.
            TcimError: what queued work failed with.
        """
        if isinstance(info, Device):
            if info is Device.HDPL:
                return self.get_dev_output(name)
            info = None
        if info is None:
            return Tensor._wrap(self._core.output(port_name(name), None))
        hint = "for another dtype give get_output_info(name).astype(dtype)"
        return Tensor._wrap(self._core.output(port_name(name), checked(info, TensorInfo, "get_output", hint)._core))

    @exact("7.4", "Module::GetDevOutput")
    def get_dev_output(self, name: str) -> Tensor:
        """A live alias of the output's device memory; it holds a run's data until the next run (C-10).

        Raises:
            UnknownNameError: no output has the name.
        """
        return Tensor._wrap(self._core.dev_output(port_name(name)))

    @exact("7.4", "Module::SetDevOutput")
    def set_dev_output(self, name: str, tensor: Tensor) -> None:
        """Binds a device tensor, by reference, into which the graph writes this output (C-9).

        It may be an input of the same module; inputs are read before outputs are written. It must not overlap another
        output or a cache: one of the two would be lost (strict mode reports it as S-106).

        Raises:
            UnknownNameError: no output has the name.
            TcimError: as `set_dev_input`.
        """
        hint = "Tensor(get_output_info(name)) makes one"
        self._core.set_dev_output(port_name(name), checked(tensor, Tensor, "set_dev_output", hint)._core)

    @chosen("7.4", "seen in C++ only")
    def set_output(self, name: str, tensor: Tensor) -> None:
        """Binds a device tensor by reference; a host tensor is filled, and converted, whenever a run completes.

        Arrays that the host tensor's `numpy()` gave before keep their values (C-11).

        Raises:
            UnknownNameError: no output has the name.
            TcimError: as `set_dev_input`.
        """
        hint = "Tensor(get_output_info(name)) makes one"
        self._core.set_output(port_name(name), checked(tensor, Tensor, "set_output", hint)._core)

    # -- the end

    @chosen("7.5", "known from third-party code; dropping the last reference does the same")
    def release(self) -> None:
        """Waits for queued runs and frees the module's memory. May be called again; other calls then raise StateError.

        Dropping the last reference does the same.
        """
        self._core.release()

    close = destroy = unload = release
