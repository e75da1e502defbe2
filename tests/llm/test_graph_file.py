"""A graph's file answers questions about ports as the loaded graph does."""

from __future__ import annotations

import numpy as np
import pytest
from llm_packages import DEMO_CHECKPOINT, compile_package

import tcim_lite.runtime as tcim
from tcim_lite.errors import HmmFormatError
from tcim_lite.llm.graph_file import GraphFile, modules_on


def test_ports_and_message_are_those_of_the_module(tmp_path):
    package = compile_package(DEMO_CHECKPOINT, tmp_path, name="it", prefill_length=16, context_length=64)
    path = package.prefill_path
    file, module = GraphFile(path), modules_on(tcim.WeightManager(0))(path)
    assert file.get_custom_msg() == module.get_custom_msg()
    assert file.get_num_inputs() == module.get_num_inputs()
    for index in range(module.get_num_inputs()):
        name = module.get_input_name(index)
        assert file.get_input_name(index) == name
        assert file.get_input_info(name).shape == tuple(module.get_input_info(name).shape)
        assert np.dtype(file.get_input_info(name).dtype) == np.dtype(module.get_input_info(name).dtype)
    name = module.get_output_name(0)
    assert file.get_output_name(0) == name
    assert file.get_output_info(name).shape == tuple(module.get_output_info(name).shape)


def test_what_is_no_graph_is_refused(tmp_path):
    (tmp_path / "x.hmm").write_bytes(b"no graph")
    with pytest.raises(HmmFormatError, match=r"x\.hmm"):
        GraphFile(tmp_path / "x.hmm")
