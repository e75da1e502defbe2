"""A network whose hidden states are ids of tokens, compiled as an encoder of texts beside files of a checkpoint."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tcim_lite.models.onnx import OnnxOptions, compile_onnx, for_lengths

CONFIG = {"model_type": "bert", "vocab_size": 50, "pad_token_id": 3}
IDS = ("input_ids", "attention_mask", "token_type_ids")


def write(folder, **files) -> None:
    """Files of JSON; "__" stands for "/"."""
    for name, content in files.items():
        path = folder / f"{name.replace('__', '/')}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content))


def sums_of_ids(inputs=IDS[:2], outputs=None, size=4):
    """A network whose hidden states are each id times its mask, 1 to `size` times; no other row has a part in them."""
    scale = numpy_helper.from_array(np.arange(1, size + 1, dtype=np.float32).reshape(1, 1, size), "scale")
    axes = numpy_helper.from_array(np.array([2], np.int64), "axes")
    nodes = [helper.make_node("Mul", list(IDS[:2]), ["masked"])]
    if "token_type_ids" in inputs:
        nodes += [helper.make_node("Add", ["masked", "token_type_ids"], ["sum"])]
    nodes += [
        helper.make_node("Cast", [nodes[-1].output[0]], ["float"], to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["float", "axes"], ["rows"]),
        helper.make_node("Mul", ["rows", "scale"], ["hidden"]),
        helper.make_node("ReduceMax", ["hidden"], ["flat"], axes=[1], keepdims=0),
        helper.make_node("Identity", ["hidden"], ["last_hidden_state"]),
        *(helper.make_node("Identity", ["flat"], [name]) for name in ("logits", "sentence_embedding", "other")),
        helper.make_node("Identity", ["hidden"], ["wide_logits"]),
    ]
    given = [helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "sequence"]) for name in inputs]
    made = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs or ["last_hidden_state"]]
    graph = helper.make_graph(nodes, "sums", given, made, [scale, axes])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 10
    return model


def compile_sums(home: Path, lengths=(4, 8), batch=2, name=None, model=None, pooling=None, **files) -> Path:
    """Compiles a network, by default `sums_of_ids()`, beside its checkpoint."""
    folder, out = home / "hf", home / "out"
    write(folder, **{"tokenizer": {}, "config": CONFIG, **files})
    onnx.save(sums_of_ids() if model is None else model, folder / "model.onnx")
    options = OnnxOptions(
        model=folder / "model.onnx", output=out, name=name, quant="float32", batch=batch, pooling=pooling
    )
    for each in for_lengths(options, lengths):
        compile_onnx(each)
    return out
