"""What families share whose norms centre rows and whose MLPs have no gate: functions by name, tensors of biases."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...blocks.mlp import Alone
from ...common.errors import CompileError
from ...family import Tensors, plain
from ...weights import roles
from .dense import TENSORS

# As `hidden_act` has them; some names stand for the same.
_FUNCTIONS: Mapping[str, Alone] = {
    "gelu": "gelu",
    "gelu_fast": "gelu_tanh",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
    "relu2": "relu2",
}


def function_of(values: Mapping[str, Any]) -> Alone:
    """Returns what the MLP does to each element, as `hidden_act` says it.

    Raises:
        CompileError: It is another.
    """
    if (name := values["hidden_act"]) not in _FUNCTIONS:
        raise CompileError(f"config.json: hidden_act={name!r:.40} is not supported, expected {', '.join(_FUNCTIONS)}")
    return _FUNCTIONS[name]


def centred(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """What norms with a bias are to `ModelConfig`; `hidden_act`, if it is a key, must be one that there is."""
    if "hidden_act" in values:
        function_of(values)
    return {"centred": True, "norm_bias": True}


def with_biases(tensors: Mapping[roles.Role, Tensors]) -> Mapping[roles.Role, Tensors]:
    """The same, and biases of the norms beside their weights."""
    biases = {
        bias: plain(tensors[norm].names[0].replace(".weight", ".bias"))
        for norm, bias in roles.NORM_BIASES.items()
        if norm in tensors
    }
    return {**tensors, **biases}


CENTRED_TENSORS = with_biases(TENSORS)
