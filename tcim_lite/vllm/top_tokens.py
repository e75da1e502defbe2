"""Top-k and top-p without sorting a whole vocabulary, which takes longer on a CPU than a decode step."""

from __future__ import annotations

from typing import Any

import torch
from vllm.v1.sample.ops.topk_topp_sampler import TopKTopPSampler, apply_top_k_top_p_pytorch

_SORTED = 1024  # tokens; the likeliest ones nearly always hold the mass that top-p asks for


class TopTokens(TopKTopPSampler):
    """vLLM's module with another way to the same tokens; seeds draw as they do there."""

    def forward_native(self, logits: Any, generators: Any, k: Any, p: Any) -> Any:
        """As vLLM's: logits [requests, V], `k` and `p` [requests] or None; logits may be changed in place."""
        return super().forward_native(keep_top(logits, k, p), generators, None, None)


def keep_top(logits: torch.Tensor, k: torch.Tensor | None, p: torch.Tensor | None) -> torch.Tensor:
    """Logits [requests, V] with minus infinity for what top-k, and then top-p, leaves out.

    Equal logits at the edge of top-k all stay, as in vLLM; at the edge of top-p it may be another of them that stays. A
    row's result depends on that row alone. Rows that ask for more than the likeliest `_SORTED` tokens are sorted whole.
    """
    if k is None and p is None:
        return logits
    size = logits.shape[-1]
    count = min(size, _SORTED)
    least = torch.full(logits.shape[:1], size) if k is None else k.long().clamp(max=size)
    mass = torch.ones(logits.shape[:1]) if p is None else p
    values, ids = logits.topk(count, dim=-1)  # the largest first
    whole = (least > count) & (least < size)
    bounds = values.gather(1, least.clamp(max=count).unsqueeze(1) - 1)
    bounds.masked_fill_((least > count).unsqueeze(1), -torch.inf)
    kept = logits.masked_fill(logits < bounds, -torch.inf)
    if p is not None:
        values = values.masked_fill(values < bounds, -torch.inf)
        shares = (values - kept.logsumexp(dim=-1, keepdim=True)).exp()
        stays = shares.cumsum(dim=-1) - shares < mass.unsqueeze(1)  # what is likelier has less than p
        stays[:, 0] = True
        narrow = mass < 1
        whole |= narrow & stays[:, -1] & (values[:, -1] > -torch.inf) & (count < size)
        top = torch.full_like(kept, -torch.inf).scatter_(1, ids, values.masked_fill(~stays, -torch.inf))
        kept = torch.where(narrow.unsqueeze(1), top, kept)
    if bool(whole.any()):
        rows = whole.nonzero().flatten()
        kept[rows] = apply_top_k_top_p_pytorch(logits[rows], least[rows], mass[rows])
    return kept
