"""The ops that a graph of a model is built of. Operand order and rules: docs/ops.md.

Shapes are computed here and checked with `assert`: a wrong graph is a mistake of the compiler, not of its user.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from .linears import GraphLinears
from .slot import Slot
from .values import Ref


@dataclass(frozen=True, slots=True, kw_only=True)
class Clamp:
    """The clamped form of SiluMul: (up + 1) * gate * sigmoid(alpha * gate), gate at most `limit`, up in +-`limit`."""

    alpha: float
    limit: float


Gelu: TypeAlias = Literal["gelu_tanh"]  # the function of the gate in the form of SiluMul that has it for silu


class GraphBuilder(GraphLinears):
    """Adds ops in execution order; arguments as `GraphLinears`."""

    def rms_norm(self, name: str, x: Ref, weight: str, epsilon: float) -> Ref:
        """Normalises over the last axis."""
        operand = self.weight(weight)
        assert operand.shape == x.shape[-1:], (name, x.shape, operand.shape)
        return self._op("RMSNorm", name, [x, operand], x.shape, {"epsilon": float(epsilon)})

    def layer_norm(self, name: str, x: Ref, weight: str | None, bias: str | None, epsilon: float) -> Ref:
        """Centres and normalises over the last axis."""
        operands = [x, *(self.weight(each) for each in (weight, bias) if each)]
        assert all(operand.shape == x.shape[-1:] for operand in operands[1:]), (name, x.shape, weight)
        return self._op("LayerNorm", name, operands, x.shape, {"epsilon": float(epsilon)})

    def rope(self, name: str, x: Ref, cos: str, sin: str, slots: Sequence[Slot]) -> Ref:
        """Rotates [B, T, heads, D] by the positions of each slot's tokens."""
        given = slots[0].positions is not None
        positions = (s.valid if s.positions is None else s.positions for s in slots)
        attributes: dict[str, int | float | str] = {"positions": "given"} if given else {}
        tables = [self.weight(cos), self.weight(sin)]
        attributes |= _rotated(x, tables[0])
        return self._op("Rope", name, [x, *tables, *positions], x.shape, attributes)

    def rope_by_rows(self, name: str, x: Ref, cos: Ref, sin: Ref) -> Ref:
        """Rotates [B, T, heads, D] by rows of cos and sin of its tokens, [B, T, R / 2], R elements of each head."""
        assert cos.shape[:2] == sin.shape[:2] == x.shape[:2], (name, x.shape, cos.shape, sin.shape)
        return self._op("Rope", name, [x, cos, sin], x.shape, {"tables": "computed", **_rotated(x, cos)})

    def kv_cache(self, names: Sequence[str], new: Ref, caches: Sequence[Ref], slots: Sequence[Slot]) -> list[Ref]:
        """Writes rows [valid, valid + current) of each slot's cache; returns the updated caches, named `names`."""
        operands = [new]
        for cache, slot in zip(caches, slots, strict=True):
            assert (cache.shape[1], cache.shape[3]) == new.shape[2:]
            operands += [cache, slot.valid, slot.current]
        results = [
            self._value(name, "intermediate", cache.dtype, cache.shape)
            for name, cache in zip(names, caches, strict=True)
        ]
        self._append("KVcache", operands, results, {})
        return results

    def attention(
        self,
        name: str,
        q: Ref,
        keys: Sequence[Ref],
        values: Sequence[Ref],
        slots: Sequence[Slot],
        window: int | None = None,
        sinks: str | None = None,
        masks: Sequence[Ref] = (),
        scale: float | None = None,
        softcap: float | None = None,
        *,
        besides: bool = False,
    ) -> Ref:
        """[B, T, heads, D] -> [B, T, heads * D], causal over each slot's live rows, the last `window` of them.

        `sinks` names a weight [heads]: one more score of each head, without a value. `masks`, graph inputs [1, 1, T, S]
        of the slots, are added to the scores and alone decide what is seen, of the S rows from
        max(valid - (window - 1), 0) on; of several tokens, [1, 1, 1, S] is the same for all. With
        `besides` they hide what the lengths and the window do not, and may be [T, S]. `scale` is that of the scores,
        usually 1 / sqrt(D), and `softcap` the c of c * tanh(score / c).
        """
        operands = [q]
        given = [[mask] for mask in masks] if masks else [[] for _ in slots]
        for key, value, slot, mask in zip(keys, values, slots, given, strict=True):
            operands += [key, value, slot.valid, slot.current, *mask]
        batch, tokens, heads, head_dim = q.shape
        attributes: dict[str, int | float | str] = {"scale": scale or 1 / math.sqrt(head_dim)}
        if softcap is not None:
            attributes["softcap"] = softcap
        if window is not None and window < keys[0].shape[2]:  # a wider one hides nothing
            attributes["window"] = window
        if masks:
            one_row = tokens > 1 and masks[0].shape[2:-1] == (1,)
            attributes["mask"] = "besides" if besides else "row" if one_row else "given"
        if sinks is not None:
            operands.append(self.weight(sinks))
            attributes["sinks"] = "given"
        return self._op("FlashAttention", name, operands, (batch, tokens, heads * head_dim), attributes)

    def last_row(self, name: str, x: Ref, current: Ref) -> Ref:
        """[1, T, H] -> [1, 1, H]: row current - 1."""
        assert x.shape[0] == 1
        return self._op("BatchGather", name, [x, current], (1, 1, x.shape[2]))

    def silu_mul(self, name: str, x: Ref, of_gate: Clamp | Gelu | None = None) -> Ref:
        """[.., 2 I], gate and up alternating in blocks of 16 -> [.., I]. `of_gate` is what is not silu."""
        assert x.shape[-1] % 32 == 0
        attributes: dict[str, int | float | str] = {}
        if isinstance(of_gate, Clamp):
            attributes = {"alpha": of_gate.alpha, "limit": of_gate.limit}
        elif of_gate is not None:
            attributes = {"function": of_gate}
        return self._op("SiluMul", name, [x], (*x.shape[:-1], x.shape[-1] // 2), attributes)

    def causal_conv(
        self,
        name: str,
        x: Ref,
        state: Ref,
        weight: str,
        current: Ref,
        new_states: Sequence[str],
        *,
        bias: str | None = None,
        silu: bool = True,
    ) -> tuple[Ref, tuple[Ref, ...]]:
        """A convolution [B, T, C] along T with the columns before it, [B, C, S], or its silu; and those for the next.

        One name of a new state stands for that after the last token, T names for those after each.
        """
        operands = [x, state, self.weight(weight), current] + ([self.weight(bias)] if bias else [])
        attributes: dict[str, int | float | str] = {"activation": "silu"} if silu else {}
        assert operands[2].shape[1] == x.shape[2] == state.shape[1], (name, x.shape, operands[2].shape, state.shape)
        return self._with_state("CausalConv", name, operands, x.shape, state, new_states, attributes)

    def delta_rule(
        self,
        name: str,
        qkv: tuple[Ref, Ref, Ref],
        state: Ref,
        gates: Sequence[Ref],
        vectors: Sequence[str],
        mask: Ref,
        new_states: Sequence[str],
    ) -> tuple[Ref, tuple[Ref, ...]]:
        """The gated delta rule: [B, T, heads, V] like v, and the state [B, heads, K, V] of the next run.

        `gates` are what decay and beta are made of, `vectors` name the rate and the bias of the decay; `new_states` as
        in `causal_conv`. Of one gate alone the decay and the share of v are made, as in a state-space layer; then q is
        taken as it is, and `vectors` also name what of v is added to the result.
        """
        operands = [*qkv, state, *gates, *(self.weight(vector) for vector in vectors), mask]
        shape = qkv[2].shape
        attributes: dict[str, int | float | str] = {"update_rule": "gated_delta"}
        if len(gates) == 1:
            attributes = {"update_rule": "gated", "steps": "softplus", "scale": 1.0}
        if self._values[state.id].kind == "state":
            attributes["state"] = "in_place"
        return self._with_state("DeltaRule", name, operands, shape, state, new_states, attributes)

    def decayed_rule(
        self, name: str, qkv: tuple[Ref, Ref, Ref], state: Ref, gates: Sequence[Ref], new_states: Sequence[str]
    ) -> tuple[Ref, tuple[Ref, ...]]:
        """Linear attention in which each key of each head decays by itself: results as those of `delta_rule`.

        `gates` are the logarithm of what is left, [B, T, heads, K], and for the delta rule beta, [B, T, heads]; without
        beta v is taken as it is, and so is q.
        """
        attributes: dict[str, int | float | str] = {"update_rule": "gated_delta"}
        if len(gates) == 1:
            attributes = {"update_rule": "gated", "scale": 1.0}
        if self._values[state.id].kind == "state":
            attributes["state"] = "in_place"
        operands = [*qkv, state, *gates]
        return self._with_state("DeltaRule", name, operands, qkv[2].shape, state, new_states, attributes)

    def largest(self, name: str, x: Ref) -> tuple[Ref, Ref]:
        """[.., n] -> the place of the largest of the last axis, int32 [.., 1], and what is there, [.., 1]."""
        shape = (*x.shape[:-1], 1)
        places = self._value(f"{name}_id", "intermediate", "int32", shape)
        values = self._value(f"{name}_logit", "intermediate", self._tensor_dtype, shape)
        self._append("TopK", [x], [values, places], {"k": 1, "largest": 1})
        return places, values

    def kth_largest(self, name: str, x: Ref, k: int) -> Ref:
        """[.., n] -> [.., 1]: what is at place k of the last axis, the largest being at 1."""
        shape = (*x.shape[:-1], k)
        places = self._value(f"{name}_ids", "intermediate", "int32", shape)
        values = self._value(f"{name}_values", "intermediate", self._tensor_dtype, shape)
        self._append("TopK", [x], [values, places], {"k": k, "largest": 1})
        return self.smallest(name, values)

    def smallest(self, name: str, x: Ref) -> Ref:
        """[.., n] -> [.., 1], the smallest of the last axis."""
        return self.function_of_rows("ReduceMin", name, x)

    def _with_state(
        self,
        kind: str,
        name: str,
        operands: Sequence[Ref],
        shape: tuple[int, ...],
        state: Ref,
        new_states: Sequence[str],
        attributes: dict[str, int | float | str],
    ) -> tuple[Ref, tuple[Ref, ...]]:
        assert len(new_states) in (1, shape[1]), (name, shape, new_states)
        result = self._value(name, "intermediate", self._tensor_dtype, shape)
        states = tuple(self._value(new, "intermediate", self._tensor_dtype, state.shape) for new in new_states)
        self._append(kind, operands, [result, *states], attributes)
        return result, states


def _rotated(x: Ref, table: Ref) -> dict[str, int | float | str]:
    """How many elements of a head of [B, T, heads, D] turn by tables [.., R / 2], where that is not all."""
    turned = 2 * table.shape[-1]
    assert turned <= x.shape[3], (x.shape, table.shape)
    return {"rotary_dim": turned} if turned < x.shape[3] else {}
