"""Codes of MiniCPM-o: the sizes of these networks come from their tensors, which must not contradict each other."""

from __future__ import annotations

import pytest

from tcim_lite.models.checkpoints.checkpoint import Checkpoint
from tcim_lite.models.common.errors import CheckpointError
from tcim_lite.models.speech import minicpmo_networks as networks

pytestmark = pytest.mark.oracle
torch = pytest.importorskip("torch", reason="the oracle")
pytest.importorskip("transformers", reason="the oracle")
from minicpmo_checkpoint import Oracle
from safetensors.torch import save_file


@pytest.fixture(scope="module")
def tensors():
    return {name: values for name, values in Oracle().tensors().items() if name.startswith("tts.dvae.")}


_CODES, _MEL = "tts.dvae.vq_layer.quantizer.rvqs.1.project_out", "tts.dvae.decoder"


@pytest.mark.parametrize(
    ("name", "damage", "message"),
    [
        (f"{_CODES}.weight", lambda x: x[:-1], r"has shape \[15, 4\], expected \[16, 4\]"),
        (f"{_CODES}.bias", lambda x: torch.cat([x, x]), r"has shape \[32\], expected \[16\]"),
        (f"{_MEL}.conv_in.0.weight", lambda x: x.flatten(), r"has shape \[384\], expected \[any, any, any\]"),
        (f"{_MEL}.conv_in.2.weight", lambda x: x[..., :-1], "has 2 taps, expected an odd number"),
        (f"{_MEL}.conv_in.2.weight", lambda x: x.int(), "has dtype I32, expected one of BF16"),
        (f"{_MEL}.decoder_block.1.coef", lambda x: x[:1], r"has shape \[1\], expected \[12\]"),
        (f"{_MEL}.decoder_block.0.dwconv.bias", None, "has no tensor 'tts.dvae.decoder.decoder_block.0.dwconv.bias'"),
        ("tts.dvae.out_conv.weight", lambda x: x[:, 1:], r"has shape \[10, 13, 3\], expected \[any, 14, any\]"),
        ("tts.dvae.coef", lambda x: x[:0], r"has shape \[0, 10, 1\], expected \[1, 10, 1\]"),
    ],
)
def test_damaged_tensors_are_named(tensors, tmp_path, name, damage, message):
    tensors = dict(tensors)
    if damage is None:
        del tensors[name]
    else:
        tensors[name] = damage(tensors[name]).contiguous()
    save_file(tensors, tmp_path / "model.safetensors")
    make = networks.features_of_codes if name.startswith(_CODES) else networks.mel_of_features
    with pytest.raises(CheckpointError, match=message) as refused:
        make(Checkpoint(tmp_path), 8)
    assert name in str(refused.value)
