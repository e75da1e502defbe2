"""A user's script, as the vendor's examples are written. test_typing.py gives it to mypy --strict; nothing runs it.

A mistake that a type checker must see carries an ignore; strict mode reports an ignore that hides nothing.
"""

import os
from pathlib import Path

import numpy as np
import numpy.typing as npt

import tcim_lite as tcim
import tcim_lite.runtime as runtime
from tcim_lite.runtime import Tensor, TensorInfo


def load_pair(folder: str) -> tuple[runtime.Module, runtime.Module]:
    manager = tcim.runtime.WeightManager(tcim.runtime.DevManager([0], "Xh2HalBackend"))
    option = tcim.runtime.Option(manager)
    prefill = tcim.runtime.load(os.path.join(folder, "qwen3_prefill.hmm"), option=option)
    caches = [prefill.get_input_name(i) for i in range(3, prefill.get_num_inputs())]
    option = tcim.runtime.Option(tcim.runtime.WeightManager(device=0))
    manager.release()
    option.set_dummy_tensors(caches).set_model_offset(0, 4096).enable_host_lazy_loading(True)
    decode = runtime.Module.load(Path(folder) / "qwen3_decode.hmm", option)
    for name in caches:
        decode.set_input(name, prefill.get_dev_input(name))
        decode.set_dev_input(name, prefill.get_input(name))
    return prefill, decode


def step(module: runtime.Module, embedding: npt.NDArray[np.float32], position: int) -> int:
    module.set_input("input_1", embedding)
    module.set_input("valid_length", np.array(position).astype("int32"))
    module.run(sync=False)
    module.run(False, runtime.RunOption(2))
    module.sync()
    logits = module.get_output("logits").numpy()
    return int(np.argmax(logits, axis=-1).item())


def tensors(module: runtime.Module, data: npt.NDArray[np.float16]) -> Tensor:
    info: TensorInfo = module.get_output_info(module.get_output_name(0)).ascontiguous().astype(np.float32)
    shape: tuple[int, ...] = info.shape
    host = Tensor(info, data.reshape(shape).astype(info.dtype))
    print(shape, info.dtype, info.format.name, np.dtype(info.dtype).name)
    device = module.get_dev_output("logits")
    module.set_dev_output("logits", device.clone(True))
    module.set_output("logits", host)
    device.copy_to(host.astype(np.float16))
    host.cast(np.float16).cast_to(device)
    device.select_roi([0, 0], (1, 1)).set_zero()
    device.select_batch([0]).set_zero()
    stream = runtime.Stream(True)
    module.set_stream(stream)
    np.ascontiguousarray(device.to_host(True).numpy())
    return module.get_output("logits", info)


def errors(path: bytes) -> runtime.Status:
    try:
        runtime.load(path)
    except runtime.HmmFormatError as error:
        return error.status
    version: str = runtime.get_version().split("\n")[0]
    count: int = runtime.get_device_num("Xh2HalBackend")
    print(version, count, runtime.load_model_info("model.hmm"))
    return runtime.Status.OK


def mistakes(module: runtime.Module) -> None:
    module.get_input_info(0)  # type: ignore[arg-type]
    module.get_input_name("a")  # type: ignore[arg-type]
    module.set_dev_input("a", np.zeros(1))  # type: ignore[arg-type]
    module.run(False, 3)  # type: ignore[arg-type]
    module.get_host_input("a")  # type: ignore[attr-defined]
    module.set_stream(True)  # type: ignore[arg-type]
    runtime.load("model.hmm", runtime.WeightManager())  # type: ignore[arg-type]
    runtime.RunOption("2")  # type: ignore[arg-type]
    runtime.Option("0")  # type: ignore[arg-type]
    runtime.DevManager(["0"])  # type: ignore[list-item]
    runtime.Tensor(np.zeros(1))  # type: ignore[arg-type]
    length: int = module.get_output("logits").numpy  # type: ignore[assignment]
    print(length)
