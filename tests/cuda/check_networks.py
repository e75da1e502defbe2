"""Networks from ONNX on the GPU against the CPU: a residual network of blocks, an encoder with attention, recurrent
layers over the columns of an image, and the demo networks, in every quantisation.

    python tests/cuda/check_networks.py [NETWORK.onnx ...]

Limits are Euclidean: of the difference, over that of the result.
"""

import argparse
import os
import sys
from pathlib import Path

import numpy as np
import onnx
from onnx import helper

os.environ["TCIM_LITE_DEVICE_NUM"] = "2"

import tcim_lite.runtime as tcim
from tcim_lite.models.onnx import onnx_bytes

LIMITS = {"float32": 2e-5, "float16": 8e-3, "w8a8h1_sefp": 6e-2}
DEMO = Path(__file__).parents[2] / "examples" / "demo_networks"

Nodes = list[tuple[str, list[str], list[str], dict]]


def model_of(nodes: Nodes, shape: tuple[int, ...], outputs: list[str], constants: dict) -> onnx.ModelProto:
    graph = helper.make_graph(
        [helper.make_node(op, ins, outs, name=f"n{i}", **attrs) for i, (op, ins, outs, attrs) in enumerate(nodes)],
        "network",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in outputs],
        [onnx.numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 10
    return model


def residual() -> onnx.ModelProto:
    """Convolutions of every kind, residuals, pools, resizing, Concat, a classifier."""
    rng = np.random.default_rng(5)

    def weight(*shape: int) -> np.ndarray:
        return (rng.standard_normal(shape) * np.sqrt(2 / np.prod(shape[1:]))).astype(np.float32)

    three = {"pads": [1, 1, 1, 1]}
    constants = {
        "w1": weight(64, 3, 7, 7), "w2": weight(64, 64, 1, 1), "w3": weight(64, 64, 3, 3), "w4": weight(256, 64, 1, 1),
        "w5": weight(256, 64, 1, 1), "w6": weight(256, 1, 3, 3), "w7": weight(256, 32, 3, 3),
        "w8": weight(256, 64, 2, 2), "w9": weight(10, 320), "b9": weight(10), "shape": np.array([0, -1], np.int64),
        "b1": weight(64),
        "scales": np.array([1, 1, 2, 2], np.float32),
    }  # fmt: skip
    nodes: Nodes = [
        ("Conv", ["x", "w1", "b1"], ["c1"], {"strides": [2, 2], "pads": [3, 3, 3, 3]}),
        ("Relu", ["c1"], ["r1"], {}),
        ("MaxPool", ["r1"], ["p1"], {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}),
        ("Conv", ["p1", "w2"], ["c2"], {}), ("Relu", ["c2"], ["r2"], {}),
        ("Conv", ["r2", "w3"], ["c3"], three), ("Relu", ["c3"], ["r3"], {}),
        ("Conv", ["r3", "w4"], ["c4"], {}), ("Conv", ["p1", "w5"], ["c5"], {}),
        ("Add", ["c4", "c5"], ["s4"], {}), ("Relu", ["s4"], ["r4"], {}),
        ("Conv", ["r4", "w6"], ["c6"], {**three, "group": 256}),
        ("Sigmoid", ["c6"], ["g6"], {}), ("Mul", ["c6", "g6"], ["m6"], {}),
        ("Conv", ["m6", "w7"], ["c7"], {**three, "group": 8, "strides": [2, 2]}),
        ("ConvTranspose", ["c7", "w8"], ["u8"], {"strides": [2, 2]}),
        ("Resize", ["u8", "", "scales"], ["z8"], {"mode": "linear"}),
        ("AveragePool", ["z8"], ["a8"], {"kernel_shape": [3, 3], "strides": [2, 2], **three}),
        ("Concat", ["u8", "r4"], ["cat"], {"axis": 1}),
        ("GlobalAveragePool", ["cat"], ["g"], {}), ("Reshape", ["g", "shape"], ["f"], {}),
        ("Gemm", ["f", "w9", "b9"], ["logits"], {"transB": 1}), ("Softmax", ["logits"], ["y"], {}),
    ]  # fmt: skip
    return model_of(nodes, (2, 3, 80, 80), ["logits", "y", "a8"], constants)


def encoder() -> onnx.ModelProto:
    """Patches, layer norms, attention of 3 heads over 50 tokens, GELU."""
    rng = np.random.default_rng(6)

    def weight(*shape: int) -> np.ndarray:
        return (rng.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32)

    width = 96
    constants = {
        "patch": weight(width, 3, 8, 8) / 2, "tokens": np.array([2, width, 49], np.int64),
        "place": weight(1, 49, width), "wq": weight(width, width), "wk": weight(width, width),
        "wv": weight(width, width), "wo": weight(width, width),
        "up": weight(width, 4 * width), "down": weight(4 * width, width), "bias": weight(4 * width),
        "heads": np.array([2, 49, 3, 32], np.int64), "flat": np.array([2, 49, width], np.int64),
        "scale": np.float32(32**-0.5), "one": np.ones(width, np.float32), "zero": np.zeros(width, np.float32),
        "root": np.float32(2**0.5), "unit": np.float32(1), "half": np.float32(0.5),
    }  # fmt: skip

    def head(letter: str, axes: list[int]) -> Nodes:
        return [
            ("MatMul", ["n1", f"w{letter}"], [f"{letter}1"], {}),
            ("Reshape", [f"{letter}1", "heads"], [f"{letter}2"], {}),
            ("Transpose", [f"{letter}2"], [letter], {"perm": axes}),
        ]

    nodes: Nodes = [
        ("Conv", ["x", "patch"], ["p"], {"strides": [8, 8]}), ("Reshape", ["p", "tokens"], ["t"], {}),
        ("Transpose", ["t"], ["t2"], {"perm": [0, 2, 1]}), ("Add", ["t2", "place"], ["h"], {}),
        ("LayerNormalization", ["h", "one", "zero"], ["n1"], {}),
        *head("q", [0, 2, 1, 3]), *head("k", [0, 2, 3, 1]), *head("v", [0, 2, 1, 3]),
        ("MatMul", ["q", "k"], ["qk"], {}), ("Mul", ["qk", "scale"], ["scaled"], {}),
        ("Softmax", ["scaled"], ["shares"], {"axis": -1}), ("MatMul", ["shares", "v"], ["o"], {}),
        ("Transpose", ["o"], ["o2"], {"perm": [0, 2, 1, 3]}), ("Reshape", ["o2", "flat"], ["o3"], {}),
        ("MatMul", ["o3", "wo"], ["o4"], {}), ("Add", ["h", "o4"], ["h2"], {}),
        ("LayerNormalization", ["h2", "one", "zero"], ["n2"], {}), ("MatMul", ["n2", "up"], ["u"], {}),
        ("Add", ["u", "bias"], ["u2"], {}), ("Div", ["u2", "root"], ["e1"], {}), ("Erf", ["e1"], ["e2"], {}),
        ("Add", ["e2", "unit"], ["e3"], {}), ("Mul", ["u2", "e3"], ["e4"], {}), ("Mul", ["e4", "half"], ["e5"], {}),
        ("MatMul", ["e5", "down"], ["d"], {}), ("Add", ["h2", "d"], ["y"], {}),
        ("TopK", ["y", "k5"], ["best", "places"], {"axis": 1}),
    ]  # fmt: skip
    constants["k5"] = np.array([5], np.int64)
    return model_of(nodes, (2, 3, 56, 56), ["y", "best"], constants)


def recurrent() -> onnx.ModelProto:
    """Columns of an image through an LSTM and a GRU of both directions, sums over time, angles, and samples."""
    rng = np.random.default_rng(9)

    def weight(*shape: int) -> np.ndarray:
        return rng.uniform(-0.5, 0.5, shape).astype(np.float32)

    width, both = 24, {"direction": "bidirectional", "hidden_size": 24}
    constants = {
        "k": weight(16, 3, 3, 3), "fold": np.array([0, 0, -1]), "axis": np.array(0), "out": weight(48, 20),
        "w0": weight(2, 4 * width, 16), "r0": weight(2, 4 * width, width), "b0": weight(2, 8 * width),
        "w1": weight(2, 3 * width, 48), "r1": weight(2, 3 * width, width), "b1": weight(2, 6 * width),
        "grid": rng.uniform(-1.2, 1.2, (2, 5, 7, 2)).astype(np.float32),
    }  # fmt: skip
    nodes: Nodes = [
        ("Conv", ["x", "k"], ["c"], {"strides": [2, 2]}), ("Relu", ["c"], ["r"], {}),
        ("GridSample", ["r", "grid"], ["samples"], {}),
        ("ReduceMean", ["r"], ["m"], {"axes": [2], "keepdims": 0}), ("Transpose", ["m"], ["t"], {"perm": [2, 0, 1]}),
        ("LSTM", ["t", "w0", "r0", "b0"], ["y0"], both), ("Transpose", ["y0"], ["t0"], {"perm": [0, 2, 1, 3]}),
        ("Reshape", ["t0", "fold"], ["s0"], {}),
        ("GRU", ["s0", "w1", "r1", "b1"], ["y1"], both | {"linear_before_reset": 1}),
        ("Transpose", ["y1"], ["t1"], {"perm": [0, 2, 1, 3]}), ("Reshape", ["t1", "fold"], ["s1"], {}),
        ("MatMul", ["s1", "out"], ["logits"], {}), ("CumSum", ["logits", "axis"], ["phase"], {}),
        ("Sin", ["logits"], ["sine"], {}), ("Cos", ["logits"], ["cosine"], {}), ("Atan", ["phase"], ["angle"], {}),
    ]  # fmt: skip
    return model_of(nodes, (2, 3, 32, 80), ["samples", "logits", "sine", "cosine", "angle"], constants)


def batch_of_3(model: onnx.ModelProto) -> onnx.ModelProto:
    """The demo networks leave the batch open."""
    for given in model.graph.input:
        if given.type.tensor_type.shape.dim[0].dim_param:
            given.type.tensor_type.shape.dim[0].dim_value = 3
    return model


def run(model: bytes, device: int, kind: str) -> dict[str, np.ndarray]:
    os.environ["TCIM_LITE_DEVICE"] = kind
    module = tcim.load(model, option=tcim.Option(tcim.WeightManager(tcim.DevManager([device], "Xh2HalBackend"))))
    rng = np.random.default_rng(1)
    for i in range(module.get_num_inputs()):
        name = module.get_input_name(i)
        module.set_input(name, rng.standard_normal(tuple(module.get_input_info(name).shape)).astype(np.float32))
    module.run(sync=True)
    names = [module.get_output_name(i) for i in range(module.get_num_outputs())]
    return {name: module.get_output(name).numpy().astype(np.float64) for name in names}


def agree(what: str, quant: str, cpu: list[np.ndarray], gpu: list[np.ndarray], factor: float = 1) -> bool:
    """Whether every result of the GPU is within the limit, times a factor, of the CPU's; prints the worst."""
    pairs = [(np.float64(wanted), np.float64(found)) for wanted, found in zip(cpu, gpu, strict=True)]
    # NumPy's maximum: Python's passes over a NaN.
    worst = np.max([np.linalg.norm(found - wanted) / np.linalg.norm(wanted) for wanted, found in pairs])
    limit = factor * LIMITS[quant]
    print(f"{what} {quant}: {len(pairs)} results within {worst:.2e} (limit {limit:.1e})", flush=True)
    return bool(worst <= limit)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("networks", nargs="*", type=Path, metavar="NETWORK.onnx")
    args = parser.parse_args()
    models = {"residual": residual(), "encoder": encoder(), "recurrent": recurrent()}
    for path in [*sorted(DEMO.glob("*.onnx")), *args.networks]:
        models[path.stem] = batch_of_3(onnx.load(path))
    good = True
    for name, model in models.items():
        for quant in LIMITS:
            package = onnx_bytes(model, quant)
            cpu, gpu = run(package, 1, "cpu"), run(package, 0, "cuda")
            for output, wanted in cpu.items():
                good &= agree(f"{name} {output} {wanted.shape}", quant, [wanted], [gpu[output]])
    sys.exit(not good)


if __name__ == "__main__":
    main()
