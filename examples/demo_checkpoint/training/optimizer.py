"""Muon for the Linear weights, Adam for embedding and norms."""

import collections

import torch
from quantize import is_linear

MOMENTUM, WEIGHT_DECAY = 0.95, 0.02
# Learning rate of the Adam part relative to Muon's.
ADAM_FACTOR, BETAS = 0.15, (0.9, 0.98)


def orthogonalise(g):
    """Newton-Schulz iteration towards the nearest semi-orthogonal matrix, for a batch [n, rows, columns]."""
    a, b, c = 3.4445, -4.7750, 2.0315
    tall = g.shape[-2] > g.shape[-1]
    x = (g.mT if tall else g).bfloat16()
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(5):
        s = x @ x.mT
        x = a * x + (b * s + c * s @ s) @ x
    return x.mT if tall else x


class Optimizer:
    """Updates a dict of parameters in place. Matrices of one shape are stepped together, because each is tiny."""

    def __init__(self, parameters):
        self.groups = collections.defaultdict(list)
        for name, p in parameters.items():
            if is_linear(name):
                self.groups[tuple(p.shape)].append(name)
        self.adam = [name for name in parameters if not is_linear(name)]
        self.momentum = {
            shape: torch.zeros(len(names), *shape, device=parameters[names[0]].device)
            for shape, names in self.groups.items()
        }
        self.first = [torch.zeros_like(parameters[name]) for name in self.adam]
        self.second = [torch.zeros_like(parameters[name]) for name in self.adam]
        self.count = 0

    def state(self):
        return {"momentum": self.momentum, "first": self.first, "second": self.second, "count": self.count}

    def load(self, state, device):
        self.momentum = {shape: value.to(device) for shape, value in state["momentum"].items()}
        self.first, self.second = ([value.to(device) for value in state[key]] for key in ("first", "second"))
        self.count = state["count"]

    @torch.no_grad()
    def step(self, parameters, gradients, lr):
        self.count += 1
        for shape, names in self.groups.items():
            grad, momentum = torch.stack([gradients[name] for name in names]), self.momentum[shape]
            momentum.lerp_(grad, 1 - MOMENTUM)
            update = orthogonalise(grad.lerp(momentum, MOMENTUM)).float() * max(1.0, shape[0] / shape[1]) ** 0.5
            for name, value in zip(names, update, strict=True):
                parameters[name].mul_(1 - lr * WEIGHT_DECAY).add_(value, alpha=-lr)
        grads, values = [gradients[name] for name in self.adam], [parameters[name] for name in self.adam]
        torch._foreach_lerp_(self.first, grads, 1 - BETAS[0])
        torch._foreach_lerp_(self.second, torch._foreach_mul(grads, grads), 1 - BETAS[1])
        scale = (1 - BETAS[1] ** self.count) ** 0.5 / (1 - BETAS[0] ** self.count)
        denominator = torch._foreach_sqrt(self.second)
        torch._foreach_add_(denominator, 1e-10)
        torch._foreach_addcdiv_(values, self.first, denominator, value=-lr * ADAM_FACTOR * scale)
