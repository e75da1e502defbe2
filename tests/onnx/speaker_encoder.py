"""The encoder of a speaker (ECAPA-TDNN) of Qwen3-TTS as PyTorch modules."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="the oracle")
pytest.importorskip("onnx", reason="encoders are compiled as networks")
pytest.importorskip("transformers", reason="the oracle")
pytest.importorskip("transformers.models.qwen3_omni_moe", reason="of the language models' checkpoint")
pytest.importorskip("transformers.models.mimi", reason="the oracle")
sys.path.insert(0, str(Path(__file__).parents[1] / "llm"))
from torch import nn
from torch.nn import functional

RATE, GROUPS, WIDTH = 1920, 4, 128
SPEAKER = {
    "mel_dim": 20,
    "enc_dim": WIDTH,
    "enc_channels": [16, 16, 16, 32],
    "enc_kernel_sizes": [5, 3, 3, 1],
    "enc_dilations": [1, 2, 3, 1],
    "enc_attention_channels": 8,
    "enc_res2net_scale": 4,
    "enc_se_channels": 8,
}


class Tdnn(nn.Module):
    def __init__(self, inputs, outputs, taps=1, dilation=1):
        super().__init__()
        self.conv = nn.Conv1d(inputs, outputs, taps, dilation=dilation, padding="same", padding_mode="reflect")

    def forward(self, x):
        return torch.relu(self.conv(x))


class Parts(nn.Module):
    """Each part but the first sees the one before it."""

    def __init__(self, width, parts, taps, dilation):
        super().__init__()
        own = width // parts
        self.blocks, self.parts = nn.ModuleList(Tdnn(own, own, taps, dilation) for _ in range(parts - 1)), parts

    def forward(self, x):
        first, *others = x.chunk(self.parts, 1)
        found = [first]
        for number, (block, part) in enumerate(zip(self.blocks, others, strict=True)):
            found.append(block(part if number == 0 else part + found[-1]))
        return torch.cat(found, 1)


class Gate(nn.Module):
    def __init__(self, width, inner):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv1d(width, inner, 1), nn.Conv1d(inner, width, 1)

    def forward(self, x):
        return x * torch.sigmoid(self.conv2(torch.relu(self.conv1(x.mean(2, keepdim=True)))))


class Block(nn.Module):
    def __init__(self, width, parts, gate, taps, dilation):
        super().__init__()
        self.tdnn1, self.tdnn2 = Tdnn(width, width), Tdnn(width, width)
        self.res2net_block, self.se_block = Parts(width, parts, taps, dilation), Gate(width, gate)

    def forward(self, x):
        return x + self.se_block(self.tdnn2(self.res2net_block(self.tdnn1(x))))


class Pooling(nn.Module):
    def __init__(self, width, inner):
        super().__init__()
        self.tdnn, self.conv = Tdnn(3 * width, inner), nn.Conv1d(inner, width, 1)

    @staticmethod
    def statistics(x, shares):
        mean = (shares * x).sum(2, keepdim=True)
        return mean, (shares * (x - mean).square()).sum(2, keepdim=True).clamp(1e-12).sqrt()

    def forward(self, x):
        plain = self.statistics(x, torch.full_like(x, 1 / x.shape[2]))
        shares = self.conv(torch.tanh(self.tdnn(torch.cat([x, *(part.expand_as(x) for part in plain)], 1))))
        return torch.cat(self.statistics(x, functional.softmax(shares, 2)), 1)


class Speaker(nn.Module):
    """Mel features [1, T, mel] -> a row [1, WIDTH]; names of tensors are the published ones."""

    def __init__(self):
        super().__init__()
        channels, taps, dilations = (SPEAKER[f"enc_{name}"] for name in ("channels", "kernel_sizes", "dilations"))
        parts, gate = SPEAKER["enc_res2net_scale"], SPEAKER["enc_se_channels"]
        self.blocks = nn.ModuleList([Tdnn(SPEAKER["mel_dim"], channels[0], taps[0], dilations[0])])
        for wide, tap, dilation in zip(channels[1:-1], taps[1:-1], dilations[1:-1], strict=True):
            self.blocks.append(Block(wide, parts, gate, tap, dilation))
        self.mfa = Tdnn(channels[-1], channels[-1], taps[-1], dilations[-1])
        self.asp = Pooling(channels[-1], SPEAKER["enc_attention_channels"])
        self.fc = nn.Conv1d(2 * channels[-1], WIDTH, 1)

    def forward(self, mels):
        x, found = mels.transpose(1, 2), []
        for block in self.blocks:
            x = block(x)
            found.append(x)
        return self.fc(self.asp(self.mfa(torch.cat(found[1:], 1)))).squeeze(-1)
