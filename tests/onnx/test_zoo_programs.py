"""Networks as the vendor's programs for embedding, segmentation and measuring feed them."""

from __future__ import annotations

import contextlib
import io
import multiprocessing
import warnings

import numpy as np
import pytest

pytest.importorskip("onnx", reason="needs onnx")
ort = pytest.importorskip("onnxruntime", reason="the oracle")

import tcim_lite
from tcim_lite.models.onnx.compile import OnnxOptions, compile_onnx

SEQUENCE, BATCH = 24, 2


def compiled(model, folder, **options):
    path = folder / "net.onnx"
    path.write_bytes(model if isinstance(model, bytes) else model.SerializeToString())
    return path, compile_onnx(OnnxOptions(model=path, output=folder / "out", **options)).path


def cosine(a, b):
    a, b = a.astype(np.float64).ravel(), b.astype(np.float64).ravel()
    return a @ b / np.linalg.norm(a) / np.linalg.norm(b)


@pytest.mark.parametrize("head", [False, True])
def test_an_encoder_of_sentences_answers_as_in_onnxruntime(tmp_path, head):
    """An embedding model and a reranker: ids, kinds and a mask of whole numbers, padded to the length of the graph."""
    torch = pytest.importorskip("torch", reason="makes the network")
    transformers = pytest.importorskip("transformers", reason="makes the network")
    config = transformers.XLMRobertaConfig(
        vocab_size=90, hidden_size=64, num_hidden_layers=2, num_attention_heads=2, intermediate_size=128,
        max_position_embeddings=SEQUENCE + 4, type_vocab_size=1, num_labels=1,
    )  # fmt: skip
    torch.manual_seed(2)
    kind = transformers.XLMRobertaForSequenceClassification if head else transformers.XLMRobertaModel
    encoder = kind(config).eval().requires_grad_(False)

    class Network(torch.nn.Module):
        def forward(self, input_ids, token_type_ids, attention_mask):
            return encoder(input_ids=input_ids, token_type_ids=token_type_ids, attention_mask=attention_mask)[0]

    rng = np.random.default_rng(3)
    feeds = {
        "input_ids": np.ones((BATCH, SEQUENCE), np.int64),  # 1 is padding
        "token_type_ids": np.zeros((BATCH, SEQUENCE), np.int32),
        "attention_mask": np.zeros((BATCH, SEQUENCE), np.int16),
    }
    for row, length in enumerate((SEQUENCE, 7)):
        feeds["input_ids"][row, :length] = rng.integers(3, 90, length)
        feeds["attention_mask"][row, :length] = 1
    buffer = io.BytesIO()
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        torch.onnx.export(
            Network().eval(), tuple(map(torch.from_numpy, feeds.values())), buffer, input_names=list(feeds),
            output_names=["hidden_state"], opset_version=17, dynamo=False,
        )  # fmt: skip
        path, package = compiled(buffer.getvalue(), tmp_path)
    (wanted,) = ort.InferenceSession(path).run(None, feeds)

    module = tcim_lite.runtime.load(str(package), tcim_lite.runtime.Option(tcim_lite.runtime.WeightManager(0)))
    infos = {name: module.get_input_info(name) for name in map(module.get_input_name, range(module.get_num_inputs()))}
    assert list(infos) == list(feeds)
    for name, info in infos.items():
        padded = np.zeros(info.shape, np.int64)
        padded[:BATCH, :SEQUENCE] = feeds[name]
        module.set_input(name, padded.astype(info.dtype))
    module.run()
    module.sync()
    found = module.get_output(module.get_output_name(0)).numpy()
    live = feeds["attention_mask"].astype(bool) if not head else slice(None)
    assert found.shape == wanted.shape
    assert cosine(found[live], wanted[live]) > 0.999


def test_points_and_their_labels_may_all_be_float16(make_model, tmp_path):
    """A program of segmentation casts every input to float16, labels of whole numbers as well."""
    from onnx import TensorProto

    model = make_model(
        [("Cast", ["labels"], ["f"], {"to": 1}), ("Mul", ["points", "f"], ["masks"], {})],
        {"points": (1, 3, 2), "labels": (1, 3, 1)},
        ["masks"],
    )
    model.graph.input[1].type.tensor_type.elem_type = TensorProto.INT64
    _, package = compiled(model, tmp_path, quant="float16")
    module = tcim_lite.runtime.load(str(package))
    points, labels = np.float16([[[1, 2], [3, 4], [5, 6]]]), np.float32([[[1], [0], [-1]]])
    for name, value in (("points", points), ("labels", labels)):
        module.set_input(name, value.astype(np.float16))
    module.run()
    module.sync()
    np.testing.assert_array_equal(module.get_output("masks").numpy(), points * labels)


def _measure(path, manager, rounds, ready, results):
    module = tcim_lite.runtime.load(path, option=tcim_lite.runtime.Option(manager))
    module.set_stream(tcim_lite.runtime.Stream(True))
    ready.wait(60)
    for _ in range(2):
        module.run(False, tcim_lite.runtime.RunOption(rounds))
    module.sync()
    results.put(module.get_output(module.get_output_name(0)).numpy().tobytes())


def test_a_network_without_inputs_is_run_by_several_processes(make_model, tmp_path):
    """As a program that measures bandwidth by moving a constant."""
    constant = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    model = make_model([("Transpose", ["c"], ["moved"], {"perm": [1, 0, 2]})], {}, ["moved"], {"c": constant})
    _, package = compiled(model, tmp_path, quant="float32")
    fork = multiprocessing.get_context("fork")
    ready, results = fork.Barrier(2), fork.Queue()
    managers = [tcim_lite.runtime.WeightManager(0) for _ in range(2)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of a fork while torch has threads
        processes = [fork.Process(target=_measure, args=(str(package), m, 50, ready, results)) for m in managers]
        for process in processes:
            process.start()
    found = [results.get(timeout=60) for _ in processes]
    for process in processes:
        process.join()
        assert process.exitcode == 0
    assert found == [constant.transpose(1, 0, 2).tobytes()] * 2
