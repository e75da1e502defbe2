"""Master weights and the copies that a training step sees."""

import torch
from model import EMBEDDING, initial_parameters, parameter_shapes
from quantize import GROUP, is_linear, quantize_w4, quantize_w8


class Weights:
    """Master values in fp32 and the working copies that forward and backward see; the working copies may be quantised.

    All Linear weights lie in one flat tensor, so that one call quantises them together.
    """

    def __init__(self, device, compile):
        start = initial_parameters(device, seed=1)
        linear = [name for name in start if is_linear(name)]
        self.flat = torch.cat([start[name].flatten() for name in linear])
        self.work_flat, self.grad_flat = self.flat.clone(), torch.zeros_like(self.flat)
        self.master, self.work, offset = {}, {}, 0
        for name in parameter_shapes():
            if name not in linear:
                self.master[name] = start[name]
                self.work[name] = start[name].clone().requires_grad_()
        for name in linear:
            end, shape = offset + start[name].numel(), start[name].shape
            self.master[name] = self.flat[offset:end].view(shape)
            self.work[name] = self.work_flat[offset:end].view(shape).requires_grad_()
            self.work[name].grad = self.grad_flat[offset:end].view(shape)
            offset = end
        self.head = start[EMBEDDING].clone().requires_grad_()
        wrap = torch.compile if compile else lambda f: f
        self.w4, self.w8 = wrap(quantize_w4), wrap(quantize_w8)

    @torch.no_grad()
    def load(self, master):
        for name, value in master.items():
            self.master[name].copy_(value)

    @torch.no_grad()
    def prepare(self, mode):
        """Fills the working copies for one step and clears the gradients. mode: float, w8 or w4."""
        groups = self.flat.view(-1, GROUP)
        quantised = {"float": lambda g: g, "w8": self.w8, "w4": self.w4}[mode](groups)
        self.work_flat.copy_(quantised.reshape(-1))
        for name, value in self.master.items():
            if not is_linear(name):
                self.work[name].copy_(value)
                self.work[name].grad = None
        self.head.copy_(self.master[EMBEDDING] if mode == "float" else self.w8(self.master[EMBEDDING]))
        self.head.grad = None
        self.grad_flat.zero_()

    def gradients(self):
        grads = {name: work.grad for name, work in self.work.items()}
        grads[EMBEDDING] = grads[EMBEDDING] + self.head.grad
        return grads
