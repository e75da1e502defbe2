"""Small ONNX models, and their results by the emulator and by onnxruntime."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))

# What onnxruntime 1.23, the last one for Python 3.10, lacks or computes otherwise than 1.32.
NEWER_ONNXRUNTIME = (
    "test_caches.py::test_results_and_caches_are_those_of_onnxruntime[GroupQueryAttention of a chunk, near by]",
    "test_caches.py::test_results_and_caches_are_those_of_onnxruntime[GroupQueryAttention, lengths at run time]",
    "test_fuse.py::test_what_is_not_the_pattern_keeps_its_values[rms norm with a fourth power]",
    "test_optimised.py::test_results_are_those_of_onnxruntime[FusedConv]",
    "test_places.py::test_convolutions_of_moved_places",
    "test_places.py::test_results_are_those_of_onnxruntime[ReverseSequence]",
    *(f"test_reading.py::test_every_opset_from_7_to_28_is_read[{opset}]" for opset in range(24, 29)),
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if sys.version_info < (3, 11):
        for item in items:
            if item.nodeid.split("/")[-1].startswith(NEWER_ONNXRUNTIME):
                item.add_marker(pytest.mark.skip(reason="needs an onnxruntime that Python 3.10 has not"))


@pytest.fixture(scope="session")
def make_model():
    """Builds a model from nodes (op, inputs, outputs, attributes), inputs and constants."""
    onnx = pytest.importorskip("onnx", reason="needs onnx")
    from onnx import helper

    def make(nodes, inputs: Mapping[str, tuple], outputs, constants: Mapping[str, np.ndarray] = {}, opset: int = 17):
        protos = [
            helper.make_node(op, ins, outs, name=f"n{i}", **attrs) for i, (op, ins, outs, attrs) in enumerate(nodes)
        ]
        graph = helper.make_graph(
            protos,
            "network",
            [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape) for name, shape in inputs.items()],
            [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in outputs],
            [onnx.numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
        model.ir_version = 10
        return model

    return make


def loaded(model, feeds, quant):
    """A model compiled and loaded, with its inputs set."""
    from tcim_lite.models.onnx import onnx_bytes
    from tcim_lite.runtime import Module

    module = Module.load(onnx_bytes(model, quant))
    for name, array in feeds.items():
        module.set_input(name, array)
    return module


@pytest.fixture
def load():
    """Compiles and loads a model, and sets its inputs."""
    return loaded


@pytest.fixture
def run_here():
    """Compiles a model, runs it and returns its outputs by name."""

    def run(model, feeds, quant="float32"):
        module = loaded(model, feeds, quant)
        module.run(sync=True)
        return {info.name: module.get_output(info.name).numpy().astype(np.float32) for info in model.graph.output}

    return run


@pytest.fixture
def run_steps():
    """Compiles a model, runs it and returns its output y as it is, and the names of the steps."""

    def run(model, feeds, quant="float32"):
        module = loaded(model, feeds, quant)
        module._core.time_steps(True)
        module.run(sync=True)
        return module.get_output("y").numpy(), [op for op, _, _ in module._core.step_times()]

    return run


@pytest.fixture
def run_there():
    """The same by onnxruntime in float32."""
    ort = pytest.importorskip("onnxruntime", reason="needs onnxruntime")
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1  # threads for a few nodes cost more than they compute

    def run(model, feeds):
        session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        names = [info.name for info in model.graph.output]
        return dict(zip(names, session.run(names, dict(feeds)), strict=True))

    return run


@pytest.fixture
def of_integers(make_model):
    """A model whose inputs "n" and "mask" are integers; make_model makes inputs of floats."""

    def make(nodes, inputs, outputs, constants, dtype="int64"):
        from onnx import TensorProto

        model = make_model(nodes, inputs, outputs, constants)
        for info in model.graph.input:
            if info.name in ("n", "mask"):
                info.type.tensor_type.elem_type = TensorProto.DataType.Value(dtype.upper())
        return model

    return make
