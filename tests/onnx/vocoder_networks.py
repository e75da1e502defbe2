"""Networks of speech synthesis as PyTorch modules: a flow, and a vocoder.

Small, of the blocks that CosyVoice3 is made of: DiT blocks with modulated norms, a sine source, STFT and its inverse.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from speech_networks import CausalConv, CausalUp, Unit
from torch import nn
from torch.nn import functional


class DitBlock(nn.Module):
    """Attention and MLP behind norms whose shift, scale and gate come from the time."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.modulation = nn.Linear(width, 6 * width)
        self.norm1, self.norm2 = (nn.LayerNorm(width, elementwise_affine=False, eps=1e-6) for _ in range(2))
        self.q, self.k, self.v, self.o = (nn.Linear(width, width) for _ in range(4))
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x, time, mask, cos, sin):
        shift, scale, gate, shift2, scale2, gate2 = self.modulation(functional.silu(time))[:, None].chunk(6, -1)
        y = self.norm1(x) * (1 + scale) + shift
        q, k, v = (part(y).unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in (self.q, self.k, self.v))
        q, k = (self.turned(part, cos, sin) for part in (q, k))
        y = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        x = x + gate * self.o(y.transpose(1, 2).flatten(2))
        y = self.norm2(x) * (1 + scale2) + shift2
        return x + gate2 * self.down(functional.gelu(self.up(y), approximate="tanh"))

    @staticmethod
    def turned(x, cos, sin):
        """Pairs of neighbours turn."""
        even, odd = x.unflatten(-1, (-1, 2)).unbind(-1)
        return x * cos + torch.stack((-odd, even), -1).flatten(-2) * sin


class Flow(nn.Module):
    """The velocity [2, mel, T] of a flow from noise to mel features, as CosyVoice3's DiT takes its inputs."""

    def __init__(self, mel: int = 20, width: int = 64, heads: int = 2, layers: int = 2, length: int = 40) -> None:
        super().__init__()
        self.time = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, width))
        self.entry = nn.Linear(4 * mel, width)
        self.near = nn.Sequential(*(nn.Sequential(CausalConv(width, width, 7, groups=4), nn.Mish()) for _ in range(2)))
        self.blocks = nn.ModuleList(DitBlock(width, heads) for _ in range(layers))
        self.modulation = nn.Linear(width, 2 * width)
        self.norm = nn.LayerNorm(width, elementwise_affine=False, eps=1e-6)
        self.out = nn.Linear(width, mel)
        half, depth = width // 2, width // heads
        self.register_buffer("waves", 1000 * torch.exp(torch.arange(half) * -(math.log(10000) / (half - 1))))
        angles = torch.arange(length)[:, None] / 10000 ** (torch.arange(0, depth, 2) / depth)
        angles = angles.repeat_interleave(2, -1)
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())

    def forward(self, x, mask, mu, t, spks, cond):
        speaker = spks[:, :, None].expand(-1, -1, x.shape[2])
        y = self.entry(torch.cat((x, cond, mu, speaker), 1).transpose(1, 2))
        y = y + self.near(y.transpose(1, 2)).transpose(1, 2)
        phase = t[:, None] * self.waves
        time = self.time(torch.cat((phase.sin(), phase.cos()), -1))
        seen = (mask > 0)[:, :, None, :]
        for block in self.blocks:
            y = block(y, time, seen, self.cos, self.sin)
        scale, shift = self.modulation(functional.silu(time))[:, None].chunk(2, -1)
        return self.out(self.norm(y) * (1 + scale) + shift).transpose(1, 2) * mask


class Source(nn.Module):
    """Mel features -> the excitation of a vocoder: pitch, its harmonics as sines, their mix."""

    def __init__(self, mel: int, hop: int, harmonics: int = 3, rate: float = 24000.0) -> None:
        super().__init__()
        self.pitch = nn.Sequential(CausalConv(mel, 32, 3), nn.ELU(), CausalConv(32, 32, 3), nn.ELU())
        self.head, self.mix = nn.Linear(32, 1), nn.Linear(harmonics, 1)
        self.hop, self.rate = hop, rate
        self.register_buffer("multiples", torch.arange(1.0, harmonics + 1)[None, None])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        pitch = 200 * torch.abs(self.head(self.pitch(x).transpose(1, 2)))  # [1, T, 1]
        turns = (pitch * self.multiples * self.hop / self.rate) % 1
        phase = torch.cumsum(turns, 1).transpose(1, 2) * 2 * math.pi
        phase = functional.interpolate(phase, scale_factor=float(self.hop), mode="linear").transpose(1, 2)
        voiced = (pitch > 10).to(x.dtype).repeat_interleave(self.hop, 1)
        return torch.tanh(self.mix(0.1 * torch.sin(phase) * voiced)).transpose(1, 2)  # [1, 1, hop T]


class Vocoder(nn.Module):
    """Mel features [1, mel, T] -> samples, through spectra of 16 points: HiFT, small.

    STFT and its inverse are products with their matrices, as exports have them that avoid complex numbers.
    """

    POINTS, STEP = 16, 4

    def __init__(self, mel: int = 20, width: int = 32, rates: Sequence[int] = (4, 2)) -> None:
        super().__init__()
        points, bins = self.POINTS, self.POINTS // 2 + 1
        self.source = Source(mel, math.prod(rates) * self.STEP)
        self.pre = CausalConv(mel, width, 5)
        self.ups, self.downs, self.units, self.shaped = (nn.ModuleList() for _ in range(4))
        for i, rate in enumerate(rates):
            narrow, step = width // 2 ** (i + 1), math.prod(rates[i + 1 :])
            self.ups.append(CausalUp(width // 2**i, narrow, 2 * rate, rate))
            taps = (2 * step, step, step // 2) if step > 1 else (1, 1, 0)
            self.downs.append(nn.Conv1d(2 * bins, narrow, *taps))
            self.shaped.append(Unit(narrow, 1))
            self.units.append(nn.ModuleList(Unit(narrow, dilation) for dilation in (1, 3)))
        self.post = CausalConv(narrow, 2 * bins, 7)
        window = torch.hann_window(points)
        at = 2 * math.pi * torch.arange(bins)[:, None] * torch.arange(points) / points
        self.register_buffer("forth", torch.cat((at.cos(), -at.sin())) * window)  # [2 bins, points]
        twice = torch.full((bins, 1), 2.0)
        twice[0] = twice[-1] = 1.0
        back = torch.cat((twice * at.cos(), -twice * at.sin())) / points
        self.register_buffer("back", back * window)
        self.register_buffer("square", window.square()[None, None])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        source = self.source(x)
        padded = functional.pad(source, (self.POINTS // 2, self.POINTS // 2), mode="reflect")
        spectrum = functional.conv1d(padded, self.forth[:, None], stride=self.STEP)
        y = self.pre(x)
        for i, (up, down, shaped, units) in enumerate(zip(self.ups, self.downs, self.shaped, self.units, strict=True)):
            y = up(functional.leaky_relu(y, 0.1))
            if i == len(self.ups) - 1:
                y = functional.pad(y, (1, 0), mode="reflect")
            y = y + shaped(down(spectrum))[..., : y.shape[-1]]
            y = sum(unit(y) for unit in units) / len(units)
        y = self.post(functional.leaky_relu(y))
        bins = self.POINTS // 2 + 1
        size, phase = torch.exp(y[:, :bins]).clip(max=100.0), torch.sin(y[:, bins:])
        frames = torch.cat((size * phase.cos(), size * phase.sin()), 1)
        whole = functional.conv_transpose1d(frames, self.back[:, None], stride=self.STEP)
        ones = torch.ones(1, 1, y.shape[-1], dtype=y.dtype)
        weight = functional.conv_transpose1d(ones, self.square, stride=self.STEP)
        half = self.POINTS // 2
        return (whole / weight.clamp(min=1e-6))[..., half:-half].clamp(-0.99, 0.99)
