"""Ops of the domain ai.onnx.ml that converters of scikit-learn write around a perceptron, and linear models."""

from __future__ import annotations

import math

import numpy as np

from ..emit import Tensor
from ..table import Call, Constant, lowers
from .elementwise import binary, number, unary
from .gather import gather
from .integers import to_floats
from .matmul import linear
from .microsoft import plain
from .norm import lp_norm
from .reduce import arg_max, reduced

DOMAIN = "ai.onnx.ml"
_FUNCTIONS = ("NONE", "LOGISTIC", "SOFTMAX")


@lowers("Scaler", domain=DOMAIN)
def scaler(call: Call) -> Tensor:
    """(x - offset) * scale, one of each or one for each feature."""
    x = _features(call)
    for op, name, neutral in (("Sub", "offset", 0.0), ("Mul", "scale", 1.0)):
        numbers = _numbers(call, name, [neutral])
        if numbers.size not in (1, x.shape[-1]):
            raise call.node.unsupported(f"{numbers.size} numbers in '{name}' for {x.shape[-1]} features")
        x = binary(call, op, x, numbers)
    return x


@lowers("Normalizer", domain=DOMAIN)
def normalizer(call: Call) -> Tensor:
    """Rows over their largest element, or their norm; a row of zeros stays."""
    x, kind = _features(call), call.attr("norm", "MAX")
    if kind in ("L1", "L2"):
        return lp_norm(plain(call, "LpNormalization", [x], axis=-1, p=int(kind[1])))
    if kind != "MAX":
        raise call.node.unsupported(f"norm {kind!r:.40}; expected MAX, L1 or L2")
    most = reduced(call, "ReduceMax", x, [len(x.shape) - 1], True)
    return binary(call, "Div", x, binary(call, "Add", most, binary(call, "Equal", most, number(0))))


@lowers("Binarizer", domain=DOMAIN)
def binarizer(call: Call) -> Tensor:
    return binary(call, "Less", number(float(call.attr("threshold", 0.0))), _features(call))


@lowers("ArrayFeatureExtractor", domain=DOMAIN)
def extracted(call: Call) -> Tensor:
    """Places of the last axis; those of one axis become a row."""
    x, places = call.operand(0), call.operand(1)
    count = math.prod(places.shape)
    flat = call.reshape(places, (count,)) if isinstance(places, Tensor) else places.reshape(count)
    y = gather(plain(call, "Gather", [x, flat], axis=-1))
    return call.reshape(y, (1, count)) if len(x.shape) == 1 else y


@lowers("LinearRegressor", domain=DOMAIN)
def linear_regressor(call: Call) -> Tensor:
    return _transformed(call, _linear(call, call.int_attr("targets", 1)))


@lowers("LinearClassifier", domain=DOMAIN)
def linear_classifier(call: Call) -> list[Tensor | None]:
    """The label of the largest score, if labels are numbers, and the scores."""
    texts, labels = call.attr("classlabels_strings") or [], call.attr("classlabels_ints") or []
    count = len(texts or labels)
    rows = _numbers(call, "intercepts", [0.0] * count).size
    if count < 2 or rows != count:
        raise call.node.unsupported(f"{rows} intercepts for {count} labels; expected one for each label")
    scores = _linear(call, count)
    label = None
    if not texts:
        best = arg_max(plain(call, "ArgMax", [scores], axis=-1, keepdims=0))
        label = gather(plain(call, "Gather", [np.asarray(labels, np.int64), best], axis=0))
    return [label, _transformed(call, scores)]


def _features(call: Call) -> Tensor:
    """Rows of features, of which integers become floating point numbers."""
    x = to_floats(call, call.tensor(0))
    if not x.shape:
        raise call.node.unsupported("a scalar; expected rows of features")
    return x


def _numbers(call: Call, name: str, default: list[float]) -> Constant:
    return np.asarray(call.attr(name) or default, np.float32)


def _linear(call: Call, outputs: int) -> Tensor:
    x = _features(call)
    weight, bias = _numbers(call, "coefficients", []), _numbers(call, "intercepts", [0.0] * max(outputs, 1))
    if outputs < 1 or weight.size != outputs * x.shape[-1] or bias.size != outputs:
        raise call.node.unsupported(
            f"{weight.size} coefficients and {bias.size} intercepts for {outputs} outputs of {x.shape[-1]} features"
        )
    return linear(call, x, weight.reshape(outputs, -1), bias)


def _transformed(call: Call, y: Tensor) -> Tensor:
    kind = call.attr("post_transform", "NONE")
    if kind not in _FUNCTIONS:
        raise call.node.unsupported(f"post_transform {kind!r:.40}; expected {', '.join(_FUNCTIONS)}")
    if kind == "LOGISTIC":
        return unary(call, "Sigmoid", y)
    return y if kind == "NONE" else call.op("Softmax", [y], y.shape)
