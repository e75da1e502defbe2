"""Models and settings of the tests of strict mode."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from tiny_graphs import axes_graph, hybrid_graph, positions_graph

from tcim_lite import hmm, layers

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(autouse=True)
def models(attention_pair, add_model, tmp_path, monkeypatch):
    """A folder with add.hmm, prefill.hmm, decode.hmm, positions.hmm, axes.hmm and hybrid.hmm, the current one."""
    attention_pair[0].rename(tmp_path / "prefill.hmm")
    attention_pair[1].rename(tmp_path / "decode.hmm")
    hmm.write_model(tmp_path / "positions.hmm", *positions_graph(4))
    hmm.write_model(tmp_path / "axes.hmm", *axes_graph(4))
    hmm.write_model(tmp_path / "hybrid.hmm", hybrid_graph(4), [])
    monkeypatch.chdir(tmp_path)
    layers.take_findings()


@pytest.fixture(params=["error"])
def strict(request):
    layers.enable("strict", mode=request.param)
    yield
    layers.disable("strict")
    layers.take_findings()
