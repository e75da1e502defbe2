"""The ops of a graph with matrices: Linears, those of experts with what chooses them, and those of heads."""

from __future__ import annotations

from collections.abc import Sequence

from tcim_lite.hmm import WeightEntry

from ..common.profiles import DEFAULT_ACTIVATIONS
from ..weights.quantize import QUANTIZERS
from .elements import GraphElements
from .values import Ref


class GraphLinears(GraphElements):
    """A `GraphElements` with these ops.

    Args:
        name: Of the graph.
        tensor_dtype: float16 or float32; what flows between ops.
        weights: The package's weight table; weights are referred to by name.
        activations: How quantised Linears round what they read; one of `profiles.ACTIVATIONS`.
    """

    def __init__(
        self, name: str, tensor_dtype: str, weights: Sequence[WeightEntry], activations: str = DEFAULT_ACTIVATIONS
    ) -> None:
        super().__init__(name, tensor_dtype, weights)
        self._activations = activations

    def linear(self, name: str, x: Ref, weight: str, bias: str | None = None) -> Ref:
        """[.., K] -> [.., N]."""
        operands = [x, self.weight(weight)] + ([self.weight(bias)] if bias else [])
        outputs, inputs = operands[1].shape
        assert x.shape[-1] == inputs, (name, x.shape, operands[1].shape)
        return self._op("Linear", name, operands, (*x.shape[:-1], outputs), self._rounding(weight))

    def mat_mul(self, name: str, a: Ref, b: Ref) -> Ref:
        """[B, T, K] times [1, K, N] -> [B, T, N]."""
        assert b.shape[:2] == (1, *a.shape[2:]), (name, a.shape, b.shape)
        return self._op("MatMul", name, [a, b], (*a.shape[:2], b.shape[2]))

    def mat_mul_each(self, name: str, a: Ref, b: Ref) -> Ref:
        """[B, T, M, K] times [B, T, K, N] -> [B, T, M, N], of each token by itself."""
        assert (*a.shape[:2], a.shape[3]) == b.shape[:3], (name, a.shape, b.shape)
        return self._op("MatMul", name, [a, b], (*a.shape[:3], b.shape[3]))

    def moe_route(
        self,
        name: str,
        logits: Ref,
        chosen: int,
        order: str,
        normalise: bool,
        bias: str | None = None,
        groups: tuple[int, int] | None = None,
        threshold: float | None = None,
    ) -> tuple[Ref, Ref]:
        """[B, T, E] -> ids int32 [B, T, chosen] of the experts with the largest logits, and what each counts.

        An `order` of "sigmoid" or "softmax" scores experts; a vector `bias` then counts in the choice alone. `groups`
        are how many there are of experts, and of how many of them experts are chosen. The `threshold` is that of the
        order "sparse_mixer".
        """
        scored = order in ("sigmoid", "softmax")
        assert bias is None or scored
        operands = [logits] + ([self.weight(bias)] if bias else [])
        attributes: dict[str, int | float | str] = {"k": chosen, "order": order, "normalise": int(normalise)}
        if threshold is not None:
            attributes["threshold"] = threshold
        if scored:
            attributes = {"k": chosen, "scores": order, "normalise": int(normalise)}
        if groups is not None:
            attributes |= {"groups": groups[0], "kept_groups": groups[1]}
        shape = (*logits.shape[:-1], chosen)
        results = (
            self._value(f"{name}_ids", "intermediate", "int32", shape),
            self._value(name, "intermediate", self._tensor_dtype, shape),
        )
        self._append("MoERoute", operands, results, attributes)
        return results

    def moe_linear(self, name: str, x: Ref, ids: Ref, weight: str, bias: str | None = None) -> Ref:
        """[B, T, K], or [B, T, k, K] with one row for each expert, -> [B, T, k, N]."""
        operands = [x, ids, self.weight(weight)] + ([self.weight(bias)] if bias else [])
        _, outputs, inputs = operands[2].shape
        assert x.shape in ((*ids.shape[:2], inputs), (*ids.shape, inputs)), (name, x.shape, operands[2].shape)
        return self._op("MoELinear", name, operands, (*ids.shape, outputs), self._rounding(weight))

    def head_linear(self, name: str, x: Ref, weight: str) -> Ref:
        """[B, T, heads, K] -> [B, T, heads, N], with a matrix for each head."""
        operand = self.weight(weight)
        assert x.shape[2:] == (operand.shape[0], operand.shape[2]), (name, x.shape, operand.shape)
        shape = (*x.shape[:3], operand.shape[1])
        return self._op("HeadLinear", name, [x, operand], shape, self._rounding(weight))

    def moe_combine(self, name: str, x: Ref, weights: Ref) -> Ref:
        """[B, T, k, N] -> [B, T, N]: what a token's experts give, added up by weight."""
        assert x.shape[:-1] == weights.shape, (name, x.shape, weights.shape)
        return self._op("MoECombine", name, [x, weights], (*x.shape[:2], x.shape[-1]))

    def _rounding(self, weight: str) -> dict[str, int | float | str]:
        """How an op with this weight rounds what it reads, where that is not the usual way."""
        quantised = self._entries[weight][1].format in QUANTIZERS
        other = quantised and self._activations != DEFAULT_ACTIVATIONS
        return {"activations": self._activations} if other else {}
