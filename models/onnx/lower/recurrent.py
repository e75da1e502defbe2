"""LSTM, GRU and RNN, written out step by step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from tcim_lite.hmm.layout import MAX_OPS

from ..emit import Tensor
from ..table import Call, Constant, lowers
from .elementwise import binary, unary
from .matmul import linear, packed_linear
from .shape import strided

_GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
_FUNCTIONS = {"LSTM": ["Sigmoid", "Tanh", "Tanh"], "GRU": ["Sigmoid", "Tanh"], "RNN": ["Tanh"]}
_PLAIN = ("Sigmoid", "Tanh", "Relu", "Softplus")  # those without numbers of their own
_OPS_OF_STEP, _WITH_MORE = 18, 32  # at most, and with a limit or peepholes

State = tuple[Tensor, ...]  # h [B, H], of an LSTM also c
Step = Callable[[Tensor, State], State]  # of the input's part of the gates [B, gates * H]


@dataclass(frozen=True, slots=True)
class _Sizes:
    """Directions, steps, sequences, and numbers of a state."""

    directions: int
    steps: int
    batch: int
    hidden: int


@lowers("LSTM", "GRU", "RNN")
def recurrent(call: Call) -> list[Tensor | None]:
    """The product with the inputs is one for all steps and directions."""
    x, batch_first = call.floats(0), bool(call.int_attr("layout", 0))
    if len(x.shape) != 3:
        raise call.node.unsupported(f"an input of the shape {list(x.shape)}; expected three axes")
    if batch_first:
        x = call.transpose(x, (1, 0, 2))
    sizes, weights = _weights(call, x)
    reverse = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}[_direction(call)]
    live = _live(call, sizes)
    states = [_initial(call, 5 + i, sizes, batch_first) for i in range(2 if call.node.op == "LSTM" else 1)]
    parts = linear(call, x, weights.inputs, weights.bias)
    width = _GATES[call.node.op] * sizes.hidden
    rows: list[Tensor] = []
    last: list[State] = []
    for d, backwards in enumerate(reverse):
        step = _step(call, d, weights, sizes)
        state: State = tuple(_rows(call, initial, d, 1, (sizes.batch, sizes.hidden)) for initial in states)
        made: dict[int, Tensor] = {}
        for t in range(sizes.steps)[:: -1 if backwards else 1]:
            part = strided(call, parts, [t, 0, d * width], [1, 1, 1], [1, sizes.batch, width])
            after = step(call.reshape(part, (sizes.batch, width)), state)
            made[t] = after[0]
            if live is not None and not live[t].all():
                seen = live[t].astype(np.float32)[:, None]
                state = tuple(_where(call, seen, new, old) for new, old in zip(after, state, strict=True))
                made[t] = binary(call, "Mul", after[0], seen)
            else:
                state = after
        rows.append(_stacked(call, [made[t] for t in range(sizes.steps)], 0))
        last.append(state)
    y = _stacked(call, rows, 1)
    finals = [_stacked(call, [state[i] for state in last], 0) for i in range(len(states))]
    if batch_first:
        return [call.transpose(y, (2, 0, 1, 3)), *(call.transpose(final, (1, 0, 2)) for final in finals)]
    return [y, *finals]


def _direction(call: Call) -> str:
    direction = call.attr("direction", "forward")
    if direction not in ("forward", "reverse", "bidirectional"):
        raise call.node.unsupported(f"direction {direction!r:.40}")
    for name in ("activation_alpha", "activation_beta"):
        if call.attr(name) is not None:
            raise call.node.unsupported(f"attribute '{name}' is not supported; expected the default numbers")
    return str(direction)


def _functions(call: Call, d: int) -> Sequence[Callable[[Tensor], Tensor]]:
    """The activations of a direction; those of sums are of clipped ones if there is a limit."""
    limit = call.attr("clip")
    if limit is not None and not limit > 0:
        raise call.node.unsupported(f"clip is {limit}, expected a number above 0")
    functions = _unclipped(call, d)
    if limit is None:
        return functions
    clipped = [lambda x, f=f: f(unary(call, "Clip", x, -limit, limit)) for f in functions[:2]]
    return [*clipped, *functions[2:]]  # the third is of an LSTM's cell


def _unclipped(call: Call, d: int) -> Sequence[Callable[[Tensor], Tensor]]:
    defaults = _FUNCTIONS[call.node.op]
    names = list(call.attr("activations") or defaults * (d + 1))[len(defaults) * d :][: len(defaults)]
    if len(names) != len(defaults):
        raise call.node.unsupported(f"{len(names)} activations for direction {d}, expected {len(defaults)}")
    functions: list[Callable[[Tensor], Tensor]] = []
    for name in names:
        if name == "HardSigmoid":
            functions.append(lambda x: unary(call, "HardSigmoid", x, 0.2, 0.5))
        elif name in _PLAIN:
            functions.append(partial(unary, call, name))
        else:
            raise call.node.unsupported(f"activation {name!r:.40}; expected HardSigmoid or one of {', '.join(_PLAIN)}")
    return functions


@dataclass(frozen=True, slots=True)
class _Weights:
    """Of all directions; gates in ONNX's order."""

    inputs: Constant  # [directions * gates * H, I]
    bias: Constant  # [directions * gates * H]
    hidden: Constant  # [directions, gates * H, H]
    hidden_bias: Constant | None  # [directions, H], of a GRU that resets behind the product


def _weights(call: Call, x: Tensor) -> tuple[_Sizes, _Weights]:
    steps, batch, inputs = x.shape
    gates = _GATES[call.node.op]
    w, r = np.asarray(call.constant(1, "the weight")), np.asarray(call.constant(2, "the recurrent weight"))
    directions = 2 if call.attr("direction", "forward") == "bidirectional" else 1
    hidden = r.shape[-1] if r.ndim else 0
    if w.shape != (directions, gates * hidden, inputs) or r.shape != (directions, gates * hidden, hidden) or not r.size:
        raise call.node.unsupported(
            f"weights {list(w.shape)} and {list(r.shape)} for an input of {inputs} numbers and {directions} directions"
        )
    if call.int_attr("hidden_size", hidden) != hidden:
        raise call.node.unsupported(f"hidden_size {call.attr('hidden_size')} for weights of {hidden}")
    most = _OPS_OF_STEP if call.attr("clip") is None and not call.has(7) else _WITH_MORE
    ops = call.emit.num_ops + steps * directions * most
    if ops > MAX_OPS:
        raise call.node.unsupported(
            f"with its {steps} steps in {directions} directions, each of which becomes ops of its own, the graph may "
            f"have {ops} ops; the limit is {MAX_OPS}"
        )
    b = np.asarray(call.constant(3, "the bias"), np.float32) if call.has(3) else np.zeros(1, np.float32)
    if call.has(3) and b.shape != (directions, 2 * gates * hidden):
        raise call.node.unsupported(f"a bias {list(b.shape)} for weights {list(w.shape)}")
    b = np.broadcast_to(b, (directions, 2 * gates * hidden)).reshape(directions, 2, gates, hidden)
    bias, hidden_bias = b.sum(axis=1), None
    if call.node.op == "GRU" and call.int_attr("linear_before_reset", 0):
        bias[:, 2], hidden_bias = b[:, 0, 2], b[:, 1, 2]
    weights = _Weights(w.reshape(-1, inputs), bias.reshape(-1), r, hidden_bias)
    return _Sizes(directions, steps, batch, hidden), weights


def _live(call: Call, sizes: _Sizes) -> Constant | None:
    """[T, B], whether a sequence has that step; None where all have all."""
    if not call.has(4):
        return None
    lengths = np.asarray(call.constant(4, "sequence_lens")).reshape(-1)
    if lengths.shape != (sizes.batch,) or lengths.dtype.kind not in "iu" or (lengths < 0).any():
        raise call.node.unsupported(f"{lengths.size} sequence_lens for {sizes.batch} sequences, or no lengths")
    live = np.arange(sizes.steps)[:, None] < lengths
    return None if live.all() else live


def _initial(call: Call, index: int, sizes: _Sizes, batch_first: bool) -> Tensor:
    """[directions, B, H]"""
    shape = (sizes.directions, sizes.batch, sizes.hidden)
    if not call.has(index):
        return call.as_tensor(np.zeros(shape, np.float32))
    state = call.floats(index)
    if batch_first and len(state.shape) == 3:
        state = call.transpose(state, (1, 0, 2))
    if state.shape != shape:
        raise call.node.unsupported(f"operand {index} has the shape {list(state.shape)}, expected {list(shape)}")
    return state


def _step(call: Call, d: int, weights: _Weights, sizes: _Sizes) -> Step:
    """What one step of a direction does."""
    functions, r = _functions(call, d), np.asarray(weights.hidden[d], np.float32)
    if call.node.op == "GRU":
        bias = None if weights.hidden_bias is None else weights.hidden_bias[d]
        return _gru_step(call, functions, r, bias, sizes)
    width = _GATES[call.node.op] * sizes.hidden
    matrix = call.emit.matrix(r)

    def gates(part: Tensor, h: Tensor) -> Tensor:
        return binary(call, "Add", part, packed_linear(call, h, matrix, width, None))

    if call.node.op == "RNN":
        return lambda part, state: (functions[0](gates(part, state[0])),)

    peepholes, coupled = _peepholes(call, d, sizes), bool(call.int_attr("input_forget", 0))

    def step(part: Tensor, state: State) -> State:
        h, c = state
        sums = gates(part, h)
        if peepholes is None:
            opened = functions[0](_columns(call, sums, 0, 3, sizes))
            i, o, f = (_columns(call, opened, gate, 1, sizes) for gate in range(3))
        else:
            i, f = (functions[0](_peeped(call, sums, gate, c, peepholes, sizes)) for gate in (0, 2))
        if coupled:
            f = binary(call, "Sub", np.ones((), np.float32), i)
        new = functions[1](_columns(call, sums, 3, 1, sizes))
        c = binary(call, "Add", binary(call, "Mul", f, c), binary(call, "Mul", i, new))
        if peepholes is not None:
            o = functions[0](_peeped(call, sums, 1, c, peepholes, sizes))
        return binary(call, "Mul", o, functions[2](c)), c

    return step


def _peepholes(call: Call, d: int, sizes: _Sizes) -> Constant | None:
    """What i, o and f [3, H] see of the cell."""
    if not call.has(7):
        return None
    weights = np.asarray(call.constant(7, "the weights of peepholes"), np.float32)
    if weights.shape != (sizes.directions, 3 * sizes.hidden):
        raise call.node.unsupported(
            f"weights of peepholes {list(weights.shape)}, expected {[sizes.directions, 3 * sizes.hidden]}"
        )
    return np.asarray(weights[d].reshape(3, sizes.hidden))


def _peeped(call: Call, sums: Tensor, gate: int, c: Tensor, peepholes: Constant, sizes: _Sizes) -> Tensor:
    """The sums of a gate, and the cell times its weights."""
    return binary(call, "Add", _columns(call, sums, gate, 1, sizes), binary(call, "Mul", c, peepholes[gate]))


def _gru_step(
    call: Call, functions: Sequence[Callable[[Tensor], Tensor]], r: Constant, bias: Constant | None, sizes: _Sizes
) -> Step:
    """Gates z, r and h; with a bias the reset comes behind the product."""
    size = sizes.hidden
    whole = np.concatenate([np.zeros(2 * size, np.float32), bias]) if bias is not None else None
    matrices = [call.emit.matrix(part) for part in ([r] if bias is not None else [r[: 2 * size], r[2 * size :]])]

    def step(part: Tensor, state: State) -> State:
        (h,) = state
        product = packed_linear(call, h, matrices[0], (3 if bias is not None else 2) * size, whole)
        sums = binary(call, "Add", _columns(call, part, 0, 2, sizes), _columns(call, product, 0, 2, sizes))
        opened = functions[0](sums)
        update, reset = (_columns(call, opened, gate, 1, sizes) for gate in range(2))
        if bias is not None:
            behind = binary(call, "Mul", reset, _columns(call, product, 2, 1, sizes))
        else:
            behind = packed_linear(call, binary(call, "Mul", reset, h), matrices[1], size, None)
        new = functions[1](binary(call, "Add", _columns(call, part, 2, 1, sizes), behind))
        # (1 - z) * new + z * h
        return (binary(call, "Add", new, binary(call, "Mul", update, binary(call, "Sub", h, new))),)

    return step


def _columns(call: Call, x: Tensor, gate: int, count: int, sizes: _Sizes) -> Tensor:
    return strided(call, x, [0, gate * sizes.hidden], [1, 1], [sizes.batch, count * sizes.hidden])


def _rows(call: Call, x: Tensor, start: int, count: int, shape: Sequence[int]) -> Tensor:
    """Elements of the first axis."""
    starts = [start, *[0] * (len(x.shape) - 1)]
    return call.reshape(strided(call, x, starts, [1] * len(x.shape), [count, *x.shape[1:]]), shape)


def _where(call: Call, seen: Constant, new: Tensor, old: Tensor) -> Tensor:
    return call.op("Where", [call.source(seen), new, old], new.shape)


def _stacked(call: Call, parts: Sequence[Tensor], axis: int) -> Tensor:
    """Tensors side by side on a new axis."""
    wide = [call.reshape(part, (*part.shape[:axis], 1, *part.shape[axis:])) for part in parts]
    if len(wide) == 1:
        return wide[0]
    shape = (*wide[0].shape[:axis], len(wide), *wide[0].shape[axis + 1 :])
    return call.op("Concat", wide, shape, {"axis": axis})
