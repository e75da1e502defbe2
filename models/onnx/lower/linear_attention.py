"""Linear attention and the convolution before it, whose states are operands and results."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ..emit import Tensor
from ..table import Call, lowers
from .shape import strided

_WITH_DECAY, _WITH_BETA = ("gated", "gated_delta"), ("delta", "gated_delta")


@lowers("CausalConvWithState")
def causal_conv(call: Call) -> list[Tensor]:
    """Channels first: [B, C, L]."""
    x, weight = call.floats(0), np.asarray(call.constant(1, "the weight"), np.float32)
    if len(x.shape) != 3 or weight.shape[:2] != (x.shape[1], 1) or weight.ndim != 3 or weight.shape[2] < 2:
        raise call.node.unsupported(f"a kernel {list(weight.shape)} for {list(x.shape)}; expected [C, 1, 2 or more]")
    (batch, channels, length), taps = x.shape, weight.shape[2]
    activation = call.attr("activation", "none")
    if activation not in ("none", "silu", "swish"):
        raise call.node.unsupported(f"activation {activation!r:.40}; expected none, silu or swish")
    state = _state(call, 3, (batch, channels, taps - 1))
    operands: list[Tensor | int] = [call.transpose(x, (0, 2, 1)), state, call.emit.weight(weight[:, 0].T, "float32")]
    if call.has(2):
        bias = np.asarray(call.constant(2, "the bias"), np.float32)
        if bias.shape != (channels,):
            raise call.node.unsupported(f"a bias {list(bias.shape)} for {channels} channels")
        operands.append(call.emit.weight(bias, "float32"))
    results = [((batch, length, channels), "float"), (state.shape, "float")]
    attributes = {} if activation == "none" else {"activation": "silu"}
    y, new_state = call.emit.op_many("CausalConv", operands, results, attributes)
    return [call.transpose(y, (0, 2, 1)), new_state]


@lowers("LinearAttention")
def linear_attention(call: Call) -> list[Tensor]:
    """Heads side by side: [B, T, heads * size]. Query heads that share a state get one each, which stay alike."""
    rule = call.attr("update_rule", "gated_delta")
    if rule not in ("linear", *_WITH_DECAY, *_WITH_BETA):
        raise call.node.unsupported(f"update_rule {rule!r:.40}")
    q, k, v = (call.floats(index) for index in range(3))
    heads, states = call.int_attr("q_num_heads", 0), call.int_attr("kv_num_heads", 0)
    fits = all(len(x.shape) == 3 and x.shape[:2] == q.shape[:2] for x in (q, k, v)) and min(heads, states) > 0
    if not fits or heads % states or q.shape[2] % heads or k.shape[2] != q.shape[2] // heads * states:
        raise call.node.unsupported(f"{heads} and {states} heads of q {list(q.shape)} and k {list(k.shape)}")
    if v.shape[2] % states:
        raise call.node.unsupported(f"{states} heads of v {list(v.shape)}")
    (batch, tokens, _), keys, values = q.shape, k.shape[2] // states, v.shape[2] // states
    scale = float(call.attr("scale", 0.0))
    if not 0 <= scale < math.inf:
        raise call.node.unsupported(f"scale {scale}; expected a positive one")

    def of_heads(x: Tensor, *size: int) -> Tensor:
        return _repeated(call, call.reshape(x, (batch, tokens, states, *size)), 2, heads // states)

    state = _repeated(call, _state(call, 3, (batch, states, keys, values)), 1, heads // states)
    shapes = (batch, tokens, heads, keys), (batch, tokens, states, keys)
    operands = [*(call.reshape(x, shape) for x, shape in zip((q, k), shapes, strict=True)), of_heads(v, values), state]
    if rule in _WITH_DECAY:
        decay = call.floats(4)
        by_key = decay.shape == k.shape
        if not by_key and decay.shape != (batch, tokens, states):
            raise call.node.unsupported(f"a decay {list(decay.shape)} for {states} heads of {keys}")
        operands.append(of_heads(decay, keys) if by_key else of_heads(decay))
    if rule in _WITH_BETA:
        beta = call.floats(5)
        if beta.shape not in ((batch, tokens, states), (batch, tokens, 1)):
            raise call.node.unsupported(f"a beta {list(beta.shape)} for {states} heads")
        one = call.op("Expand", [beta], (batch, tokens, states)) if beta.shape[2] < states else beta
        operands.append(of_heads(one))
    results = [((batch, tokens, heads, values), "float"), (state.shape, "float")]
    attributes = {"update_rule": rule} | ({"scale": scale} if scale else {})
    y, new_state = call.emit.op_many("DeltaRule", operands, results, attributes)
    if heads > states:
        apart = call.reshape(new_state, (batch, states, heads // states, keys, values))
        first = strided(call, apart, [0] * 5, [1] * 5, [batch, states, 1, keys, values])
        new_state = call.reshape(first, (batch, states, keys, values))
    return [call.reshape(y, (batch, tokens, heads * values)), new_state]


def _state(call: Call, index: int, shape: Sequence[int]) -> Tensor:
    """An operand, or zeros where it is left out."""
    if not call.has(index):
        return call.op("Expand", [call.emit.weight(np.zeros(1, np.float32))], tuple(shape))
    state = call.floats(index)
    if state.shape != tuple(shape):
        raise call.node.unsupported(f"a state {list(state.shape)}, expected {list(shape)}")
    return state


def _repeated(call: Call, x: Tensor, axis: int, times: int) -> Tensor:
    """Each place of an axis so many times."""
    if times == 1:
        return x
    before, behind = x.shape[: axis + 1], x.shape[axis + 1 :]
    wide = call.op("Expand", [call.reshape(x, (*before, 1, *behind))], (*before, times, *behind))
    return call.reshape(wide, (*x.shape[:axis], x.shape[axis] * times, *behind))
