"""Fake quantisation in torch, by the rules of docs/numerics.md. Groups are 64 elements along the last axis."""

import torch

GROUP = 64
PROFILES = ("none", "w8a8h1_sefp", "w4a8h0_ssfp")


def _power_of_two_scale(groups, low, high):
    """2^e with e = floor(log2 amax) - 6, clamped; an fp32's exponent bits are its floor(log2). amax 0 gives `low`."""
    bits = groups.abs().amax(-1, keepdim=True).view(torch.int32)
    exponent = ((bits >> 23) - 127 - 6).clamp(low, high)
    return ((exponent + 127) << 23).view(torch.float32)


def _round_to(groups, scale, low, high):
    return torch.clamp(torch.round(groups / scale), low, high) * scale


def quantize_w8(weight):
    """8-bit codes with a power-of-two scale per (output, group)."""
    groups = weight.float().unflatten(-1, (-1, GROUP))
    return _round_to(groups, _power_of_two_scale(groups, -126, 127), -127, 127).flatten(-2)


def quantize_w4(weight, error_dtype=torch.float32):
    """4-bit codes with an fp16 scale per (output, group): of 32 candidates the one with the least squared error.

    Pass float64 as `error_dtype` for the compiler's exact choice; ties go to the first candidate.
    """
    groups = weight.float().unflatten(-1, (-1, GROUP))
    amax = groups.abs().amax(-1, keepdim=True)
    best, best_error = torch.zeros_like(groups), torch.full_like(amax, float("inf"), dtype=error_dtype)
    for j in range(32):
        scale = (amax / (5.5 + 0.125 * j)).half().clamp(min=2.0**-14).float()
        candidate = _round_to(groups, scale, -8, 7)
        error = (candidate.to(error_dtype) - groups.to(error_dtype)).square().sum(-1, keepdim=True)
        best = torch.where(error < best_error, candidate, best)
        best_error = torch.minimum(error, best_error)
    return best.flatten(-2)


def quantize_activation(x):
    """8-bit activations per token and group of 64. The gradient passes as if nothing had happened."""
    groups = x.detach().float().unflatten(-1, (-1, GROUP))
    value = _round_to(groups, _power_of_two_scale(groups, -30, 9), -127, 127).flatten(-2).to(x.dtype)
    return value + (x - x.detach())


def is_linear(name):
    return name.endswith("_proj.weight")
