"""Networks of speech synthesis as PyTorch modules: a codec, whole and in chunks with states.

Small, of the blocks that Qwen3-TTS is made of: residual codebooks, causal and transposed convolutions, ConvNeXt, snake
activations, attention in a window.
"""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn import functional

BOOKS, BINS, WIDTH, LATENT, HEADS, LAYERS, WINDOW = 4, 32, 32, 64, 2, 2, 8
RATES, UPSAMPLE, AHEAD = (4, 3), (2, 2), 4
SAMPLES = math.prod(RATES) * math.prod(UPSAMPLE)  # of a frame


class CausalConv(nn.Conv1d):
    """Sees what is before it."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        past = (self.kernel_size[0] - 1) * self.dilation[0]
        return super().forward(functional.pad(x, (past, 0)))


class CausalUp(nn.ConvTranspose1d):
    """A transposed convolution without what lies behind the last input."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        behind = self.kernel_size[0] - self.stride[0]
        y = super().forward(x)
        return y[..., : y.shape[-1] - behind]


class Snake(nn.Module):
    """x + sin(a x)^2 / b, a and b of each channel as exponents."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.alpha, self.beta = (nn.Parameter(torch.randn(channels) * 0.3) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a, b = (torch.exp(p)[None, :, None] for p in (self.alpha, self.beta))
        return x + (1.0 / (b + 1e-9)) * torch.pow(torch.sin(x * a), 2)


class ConvNeXt(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.depthwise = CausalConv(width, width, 7, groups=width)
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.gamma = nn.Parameter(torch.rand(width) * 0.3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(self.depthwise(x).permute(0, 2, 1))
        return x + (self.gamma * self.down(functional.gelu(self.up(y)))).permute(0, 2, 1)


class Unit(nn.Module):
    def __init__(self, width: int, dilation: int) -> None:
        super().__init__()
        self.act1, self.conv1 = Snake(width), CausalConv(width, width, 7, dilation=dilation)
        self.act2, self.conv2 = Snake(width), CausalConv(width, width, 1)
        self.conv2.weight.data.mul_(0.3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.conv2(self.act2(self.conv1(self.act1(x))))


def rotated(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat((-second, first), -1) * sin


class Layer(nn.Module):
    """Attention among given keys and values, and a gated MLP, both scaled by channel."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.RMSNorm(LATENT, eps=1e-5), nn.RMSNorm(LATENT, eps=1e-5)
        self.q, self.k, self.v, self.o = (nn.Linear(LATENT, LATENT, bias=False) for _ in range(4))
        self.gate, self.up = (nn.Linear(LATENT, 2 * LATENT, bias=False) for _ in range(2))
        self.down = nn.Linear(2 * LATENT, LATENT, bias=False)
        self.scale1, self.scale2 = (nn.Parameter(torch.rand(LATENT) * 0.3) for _ in range(2))

    def forward(self, x, mask, cos, sin, past=None):
        y = self.norm1(x)
        q, k, v = (part(y).unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in (self.q, self.k, self.v))
        q, k = rotated(q, cos, sin), rotated(k, cos, sin)
        if past is not None:
            k, v = (torch.cat((old, new), 2)[:, :, -WINDOW:] for old, new in zip(past, (k, v), strict=True))
        scores = q @ k.transpose(2, 3) / math.sqrt(LATENT // HEADS) + mask
        y = (torch.softmax(scores, -1) @ v).transpose(1, 2).flatten(2)
        x = x + self.scale1 * self.o(y)
        y = self.norm2(x)
        return x + self.scale2 * self.down(functional.silu(self.gate(y)) * self.up(y)), (k, v)


class Codec(nn.Module):
    """Codes [1, BOOKS, T] -> samples [1, 1, SAMPLES * T]."""

    def __init__(self) -> None:
        super().__init__()
        self.books = nn.ModuleList(nn.Embedding(BINS, WIDTH // 2) for _ in range(BOOKS))
        self.first, self.rest = (nn.Conv1d(WIDTH // 2, WIDTH, 1, bias=False) for _ in range(2))
        self.pre = CausalConv(WIDTH, LATENT, 3)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm = nn.RMSNorm(LATENT, eps=1e-5)
        self.up = nn.Sequential(*(nn.Sequential(CausalUp(LATENT, LATENT, f, f), ConvNeXt(LATENT)) for f in UPSAMPLE))
        widths = [LATENT // 2**i for i in range(len(RATES) + 1)]
        blocks: list[nn.Module] = [CausalConv(LATENT, LATENT, 7)]
        for rate, wide, narrow in zip(RATES, widths, widths[1:], strict=False):
            blocks += [Snake(wide), CausalUp(wide, narrow, 2 * rate, rate), *(Unit(narrow, d) for d in (1, 3, 9))]
        self.decoder = nn.Sequential(*blocks, Snake(widths[-1]), CausalConv(widths[-1], 1, 7))
        angles = 1.0 / 10000 ** (torch.arange(0, LATENT // HEADS, 2) / (LATENT // HEADS))
        self.register_buffer("angles", angles)

    def quantised(self, codes: torch.Tensor) -> torch.Tensor:
        found = [book(codes[:, i]).transpose(1, 2) for i, book in enumerate(self.books)]
        return self.first(found[0]) + self.rest(sum(found[1:]))

    def tables(self, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        turned = positions[:, None].to(self.angles.dtype) * self.angles
        turned = torch.cat((turned, turned), -1)
        return turned.cos(), turned.sin()

    def waves(self, x: torch.Tensor) -> torch.Tensor:
        return self.decoder(self.up(x)).clamp(-1, 1)

    def forward(self, codes: torch.Tensor) -> torch.Tensor:
        x = self.pre(self.quantised(codes)).transpose(1, 2)
        at = torch.arange(codes.shape[2])
        seen = (at <= at[:, None]) & (at > at[:, None] - WINDOW)
        mask, tables = torch.where(seen, 0.0, -10000.0).to(x.dtype), self.tables(at)
        for layer in self.layers:
            x, _ = layer(x, mask, *tables)
        return self.waves(self.norm(x).transpose(1, 2))


class StreamedCodec(nn.Module):
    """Some frames a run, of which the last AHEAD wait for the next; what it hands on are inputs and outputs."""

    def __init__(self, codec: Codec, frames: int) -> None:
        super().__init__()
        self.codec, self.frames = codec, frames

    def states(self) -> list[tuple[int, ...]]:
        """Shapes: columns before the first convolution, waiting rows, rows before these, keys, values."""
        cache = (1, HEADS, WINDOW, LATENT // HEADS)
        return [(1, WIDTH, 2), (1, LATENT, AHEAD), (1, LATENT, AHEAD), *(cache for _ in range(2 * LAYERS))]

    def forward(self, codes, columns, waiting, before, is_last, valid, count, *caches):
        codec, frames = self.codec, self.frames
        joined = torch.cat((columns, codec.quantised(codes.transpose(1, 2))), -1)
        x = codec.pre(joined)[:, :, -frames:].transpose(1, 2)
        past, number = valid.to(torch.long), torch.arange(frames)
        queries = (past + number)[:, None]
        keys = past + frames - WINDOW + torch.arange(WINDOW)
        mask = torch.where((keys >= 0) & (keys <= queries) & (keys > queries - WINDOW), 0.0, -10000.0).to(x.dtype)
        tables, handed = codec.tables(past + number), []
        for layer, *pair in zip(codec.layers, caches[:LAYERS], caches[LAYERS:], strict=True):
            x, pair = layer(x, mask, *tables, pair)
            handed.append(pair)
        rows = torch.cat((waiting, codec.norm(x).transpose(1, 2)), -1)
        started = (valid > 0).to(x.dtype)
        total = started * AHEAD + count.to(x.dtype)
        done = (is_last * total + (1 - is_last) * torch.clamp(total - AHEAD, min=0.0)).to(torch.long)
        wave = codec.waves(torch.cat((before, rows), -1))[:, 0, AHEAD * SAMPLES :]
        at = (1 - started).to(torch.long) * AHEAD + done[0] - AHEAD + torch.arange(AHEAD)
        at = at.clamp(min=0)[None, None].expand(1, LATENT, -1)
        new = torch.gather(rows, 2, at)
        parts = [pair[kind] for kind in (0, 1) for pair in handed]
        return wave, done * SAMPLES, joined[:, :, -2:], rows[:, :, -AHEAD:], new, *parts
