"""A model of transformers as exporters to ONNX take it."""

from __future__ import annotations

import torch


class First(torch.nn.Module):
    """The first output of a model, for inputs by name."""

    def __init__(self, model, names):
        super().__init__()
        self.model, self.names = model, names

    def forward(self, *inputs):
        return self.model(**dict(zip(self.names, inputs, strict=True)), return_dict=True)[0]
