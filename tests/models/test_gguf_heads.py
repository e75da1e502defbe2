"""GGUF files of models with linear attention, whose heads llama.cpp puts in another order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from family_checkpoints import family_config, family_tensors, write_family
from gguf_families import ARCH, CHANGES, STATE_SPACE, compiled
from gguf_files import gguf_tensors, metadata_of, write_gguf

from tcim_lite.models.checkpoints.gguf import GgufCheckpoint
from tcim_lite.models.common.errors import CheckpointError

pytestmark = pytest.mark.filterwarnings("ignore:.*has no tokenizer files")


@pytest.mark.parametrize("family", ["qwen3_5", "qwen3_5_moe", "qwen3_next"])
@pytest.mark.parametrize("heads", [(2, 4), (2, 6), (3, 3)])
def test_linear_attention_has_its_heads_back(tmp_path: Path, family: str, heads: tuple[int, int]) -> None:
    """All tensors are those of the folder, but the one of which the file has the exponential."""
    sizes = {"linear_num_key_heads": heads[0], "linear_num_value_heads": heads[1]}
    config = family_config(family, **sizes)
    tensors = family_tensors(config)
    keys = {"general.architecture": ARCH[family], **metadata_of(config, ARCH[family])}
    path = write_gguf(tmp_path / "m.gguf", keys, gguf_tensors(config, tensors, ARCH[family]))
    store = GgufCheckpoint(path)
    assert set(store.names()) == set(tensors)
    for name, tensor in tensors.items():
        store.check(name, tensor.shape)
        want = tensor.astype(np.float32)
        rows, bound = len(want), 1e-6 if name.endswith("A_log") else 0
        for start, stop in ((0, rows), (rows // 3, max(rows - 1, 1)), (rows // 2, rows // 2 + 1)):
            got = store.read(name, start, stop)
            np.testing.assert_allclose(got.reshape(want[start:stop].shape), want[start:stop], rtol=0, atol=bound)
    folder = write_family(tmp_path / "hf", config, np.float32)
    want, got = compiled(folder, tmp_path / "a", quant="float32"), compiled(path, tmp_path / "b", quant="float32")
    assert {name: len(data) for name, data in got.items()} == {name: len(data) for name, data in want.items()}


@pytest.mark.parametrize(
    ("family", "changes"),
    [(family, {}) for family in STATE_SPACE]
    + [("granitemoehybrid", {"num_local_experts": 0, "num_experts_per_tok": 0, "shared_intermediate_size": 320})],
)
def test_state_space_layers_are_those_of_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, family: str, changes: dict[str, Any]
) -> None:
    """`ssm_a` and `ssm_d` are columns, `ssm_norm` has a row for each group; a file of Granite without experts has the
    shared MLP as any other."""
    monkeypatch.setitem(CHANGES, family, {**CHANGES.get(family, {}), **changes})
    config = family_config(family, **CHANGES[family])
    tensors = family_tensors(config)
    keys = {"general.architecture": ARCH[family], **metadata_of(config, ARCH[family])}
    made = gguf_tensors(config, tensors, ARCH[family])
    if changes:
        made = {name.replace("ffn_down_shexp", "ffn_down"): tensor for name, tensor in made.items()}
    path = write_gguf(tmp_path / "m.gguf", keys, made)
    store = GgufCheckpoint(path)
    assert set(store.names()) == set(tensors)
    for name, tensor in tensors.items():
        store.check(name, tensor.shape)
        rows, bound = len(tensor), 1e-6 if name.endswith("A_log") else 0
        for start, stop in ((0, rows), (rows // 3, max(rows - 1, 1))):
            got, want = store.read(name, start, stop), tensor[start:stop].astype(np.float32)
            np.testing.assert_allclose(got.reshape(want.shape), want, rtol=0, atol=bound, err_msg=name)
    folder = write_family(tmp_path / "hf", config, np.float32)
    want, got = compiled(folder, tmp_path / "a", quant="float32"), compiled(path, tmp_path / "b", quant="float32")
    differ = {name for name in want if want[name] != got[name]}
    assert {name: len(data) for name, data in got.items()} == {name: len(data) for name, data in want.items()}
    assert not {name for name in differ if name.endswith(".bin")}


def test_rates_of_linear_attention_are_negative(tmp_path: Path) -> None:
    config = family_config("qwen3_5")
    tensors = gguf_tensors(config, family_tensors(config), "qwen35")
    tensors["blk.1.ssm_a"][1] = 0
    keys = {"general.architecture": "qwen35", **metadata_of(config, "qwen35")}
    path = write_gguf(tmp_path / "m.gguf", keys, tensors)
    with pytest.raises(CheckpointError, match=r"'blk\.1\.ssm_a' in .* holds a number that is not negative"):
        compiled(path, tmp_path / "out", quant="float32")
