"""Encoders of transformers that compute with token ids and masks, exported with random weights, against onnxruntime."""

from __future__ import annotations

import io
import warnings

import numpy as np
import pytest

onnx = pytest.importorskip("onnx", reason="needs onnx")
torch = pytest.importorskip("torch", reason="needs torch")
transformers = pytest.importorskip("transformers", reason="needs transformers")
from first_output import First

pytestmark = pytest.mark.oracle
SIZES = {
    "vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 37,
    "max_position_embeddings": 64,
}  # fmt: skip
T5 = {"vocab_size": 99, "d_model": 32, "d_kv": 8, "d_ff": 37, "num_layers": 2, "num_heads": 4}
RELATIVE = {"relative_attention": True, "pos_att_type": ["p2c", "c2p"], "position_buckets": 8}
# Class, and its config: what each computes with integers differs.
ENCODERS = {
    "XLMRoberta": ("XLMRobertaModel", SIZES | {"pad_token_id": 1}),
    "MPNet": ("MPNetModel", SIZES),
    "DebertaV2": ("DebertaV2Model", SIZES | RELATIVE),
    "CLIPText": ("CLIPTextModel", SIZES | {"eos_token_id": 98, "bos_token_id": 97, "pad_token_id": 1}),
    "T5": ("T5EncoderModel", T5),
}


@pytest.fixture(scope="module")
def tokens():
    ids = np.random.default_rng(0).integers(5, 95, (2, 12))
    mask = np.ones_like(ids)
    ids[:, 0], ids[0, 7], ids[1, 5] = 2, 98, 98
    ids[1, 9:], mask[1, 9:] = 1, 0
    return {"input_ids": ids, "attention_mask": mask}


@pytest.mark.parametrize("name", ENCODERS)
def test_outputs_are_those_of_onnxruntime(name, tokens, run_here, run_there):
    kind, config = ENCODERS[name]
    torch.manual_seed(0)
    model = getattr(transformers, kind)(getattr(transformers, f"{name}Config")(**config)).eval()
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        arguments = tuple(map(torch.from_numpy, tokens.values()))
        torch.onnx.export(
            First(model, list(tokens)),
            arguments,
            file,
            input_names=list(tokens),
            output_names=["y"],
            dynamo=False,
            opset_version=17,
        )
    proto = onnx.load_from_string(file.getvalue())
    here = run_here(proto, {key: array.astype(np.int32) for key, array in tokens.items()})
    for key, expected in run_there(proto, tokens).items():
        np.testing.assert_allclose(here[key], expected, atol=1e-4)
