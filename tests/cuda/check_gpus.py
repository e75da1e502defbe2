"""Two GPUs of one kind: a model computes the same bits on either, also while the other is at work.

    python tests/cuda/check_gpus.py FOLDER

Logical devices 0 and 1, which must be two GPUs. Prefill and decode in every format, and the networks of
check_networks.py. Then both GPUs at once, each with a thread of its own; inputs larger than pinned memory, new before
every run; copies through the host; and tensors of the other device, which are refused.
"""

import argparse
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))  # python -P leaves it out
os.environ["TCIM_LITE_DEVICE"] = "cuda"
os.environ["TCIM_LITE_DEVICE_NUM"] = "2"

from check_model import CONFIG, LIMITS, generator, package_of
from check_networks import encoder, residual

import tcim_lite.runtime as tcim
from tcim_lite.llm import Package
from tcim_lite.models.onnx import onnx_bytes

PROMPT, STEPS, ROUNDS = 200, 20, 10


def llm(package: Package, device: int) -> Callable[[], bytes]:
    model = generator(package, device, "cuda")
    tokens = np.random.default_rng(1).integers(0, CONFIG["vocab_size"], PROMPT + STEPS).tolist()

    def run() -> bytes:
        rows = [model.prefill(tokens[:PROMPT])]
        rows += [model.decode(tokens[at], at) for at in range(PROMPT, PROMPT + STEPS)]
        return b"".join(row.tobytes() for row in rows)

    return run


def network(file: bytes, device: int) -> Callable[[], bytes]:
    module = tcim.load(file, option=tcim.Option(tcim.WeightManager(device)))
    info = module.get_input_info("x")
    x = np.random.default_rng(2).standard_normal(info.shape).astype(np.float16)

    def run() -> bytes:
        module.set_input("x", x)
        module.run(sync=True)
        names = [module.get_output_name(index) for index in range(module.get_num_outputs())]
        return b"".join(module.get_output(name).numpy().tobytes() for name in names)

    return run


def report(what: str, good: bool) -> bool:
    print(f"{what}: {'the same bits' if good else 'DIFFERENT'}", flush=True)
    return good


def at_once(runs: list[Callable[[], bytes]], expected: bytes) -> bool:
    wrong: list[int] = []

    def work(index: int) -> None:
        wrong.extend(index for _ in range(ROUNDS) if runs[index]() != expected)

    threads = [threading.Thread(target=work, args=(index,)) for index in range(len(runs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return not wrong


def large_inputs(file: bytes) -> bool:
    """3 MiB a run, written to GPU 1 by a thread that otherwise uses GPU 0."""
    module = tcim.load(file, option=tcim.Option(tcim.WeightManager(1)))
    shape = module.get_input_info("x").shape
    good = True
    for value in range(100):
        module.set_input("x", np.full(shape, value, np.float16))
        module.run(sync=True)
        good &= bool((module.get_output("y").numpy() == value).all())
    return good


def is_refused(file: bytes) -> bool:
    modules = [tcim.load(file, option=tcim.Option(tcim.WeightManager(device))) for device in (0, 1)]
    try:
        modules[1].set_dev_input("x", modules[0].get_dev_input("x"))
        modules[1].run(sync=True)
    except tcim.TcimError as error:
        print(f"a tensor of the other device: {error}")
        return True
    print("a tensor of the other device: NOT REFUSED")
    return False


def used_gpus() -> int:
    listed = subprocess.run(
        ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"], capture_output=True, text=True
    )
    return sum(int(line) > 300 for line in listed.stdout.split())


def large() -> bytes:
    from onnx import TensorProto, helper

    x = helper.make_tensor_value_info("x", TensorProto.FLOAT16, (3, 512, 1024))
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT16, (3, 512, 1024))
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "large", [x], [y])
    return onnx_bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10), "float16")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    args = parser.parse_args()
    good = True
    sides: dict[str, list[Callable[[], bytes]]] = {}
    for quant in LIMITS:
        package = package_of(args.folder, quant)
        sides[quant] = [llm(package, device) for device in (0, 1)]
    for name, model in (("residual", residual()), ("encoder", encoder())):
        for quant in ("float32", "float16", "w8a8h1_sefp"):
            sides[f"{name} {quant}"] = [network(onnx_bytes(model, quant), device) for device in (0, 1)]
    good &= report("inputs of 3 MiB", large_inputs(large()))
    good &= is_refused(large())
    for name, runs in sides.items():
        expected = runs[0]()
        good &= report(f"{name}, one GPU after the other", runs[1]() == expected)
        good &= report(f"{name}, both at once", at_once(runs, expected))
    print(f"GPUs that hold memory: {used_gpus()}")
    sys.exit(not good)


if __name__ == "__main__":
    main()
