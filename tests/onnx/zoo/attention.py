"""ConvNeXt, ViT, and the encoders of Whisper and CLIP."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn


class ChannelNorm(nn.Module):
    """LayerNorm over the channels of an image."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(channels, 1e-6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x [N, C, H, W]."""
        return self.norm(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class NextBlock(nn.Module):
    """A 7x7 depthwise convolution, LayerNorm and two Linears with GELU, scaled and added."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.mix = nn.Conv2d(channels, channels, 7, padding=3, groups=channels)
        self.path = nn.Sequential(
            nn.LayerNorm(channels, 1e-6),
            nn.Linear(channels, 4 * channels),
            nn.GELU(),
            nn.Linear(4 * channels, channels),
        )
        self.scale = nn.Parameter(torch.full((channels, 1, 1), 0.5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x [N, C, H, W]."""
        y = self.path(self.mix(x).permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        return x + self.scale * y


def convnext(depths: Sequence[int], widths: Sequence[int], classes: int = 1000) -> nn.Module:
    """ConvNeXt-T is [3, 3, 9, 3] of [96, 192, 384, 768]."""
    parts: list[nn.Module] = [nn.Conv2d(3, widths[0], 4, 4), ChannelNorm(widths[0])]
    for stage, (depth, width) in enumerate(zip(depths, widths, strict=True)):
        if stage:
            parts += [ChannelNorm(widths[stage - 1]), nn.Conv2d(widths[stage - 1], width, 2, 2)]
        parts += [NextBlock(width) for _ in range(depth)]
    parts += [nn.AdaptiveAvgPool2d(1), ChannelNorm(widths[-1]), nn.Flatten(), nn.Linear(widths[-1], classes)]
    return nn.Sequential(*parts)


class VitBlock(nn.Module):
    """Attention and MLP, each behind a LayerNorm and added."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width, 1e-6), nn.LayerNorm(width, 1e-6)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x [N, tokens, width]."""
        n, tokens, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(n, tokens, 3, self.heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
        scores = (q @ k.transpose(-2, -1)) * (width // self.heads) ** -0.5
        mixed = (scores.softmax(-1) @ v).transpose(1, 2).reshape(n, tokens, width)
        x = x + self.out(mixed)
        return x + self.mlp(self.norm2(x))


class Vit(nn.Module):
    """Patches and a class token through blocks; the class token is classified."""

    def __init__(self, size: int, patch: int, width: int, depth: int, heads: int, classes: int) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.token = nn.Parameter(torch.randn(1, 1, width) * 0.02)
        self.places = nn.Parameter(torch.randn(1, (size // patch) ** 2 + 1, width) * 0.02)
        self.blocks = nn.Sequential(*(VitBlock(width, heads) for _ in range(depth)), nn.LayerNorm(width, 1e-6))
        self.head = nn.Linear(width, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits of an image [N, 3, size, size]."""
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.places
        return self.head(self.blocks(x)[:, 0])


def vit(size: int, patch: int, width: int, depth: int, heads: int, classes: int = 1000) -> nn.Module:
    """ViT-B/16 is (224, 16, 768, 12, 12)."""
    return Vit(size, patch, width, depth, heads, classes)


class Hidden(nn.Module):
    """A transformers model as a function of one tensor to its last hidden state."""

    def __init__(self, model: nn.Module, argument: str) -> None:
        super().__init__()
        self.model, self.argument = model, argument

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The last hidden state [N, tokens, width]."""
        return self.model(**{self.argument: x}, return_dict=True).last_hidden_state


def whisper_encoder(**config: Any) -> nn.Module:
    """transformers' encoder over a mel spectrogram [N, bins, 2 * positions]."""
    from transformers import WhisperConfig
    from transformers.models.whisper.modeling_whisper import WhisperEncoder

    return Hidden(WhisperEncoder(WhisperConfig(**config, attn_implementation="eager")), "input_features")


def clip_vision(**config: Any) -> nn.Module:
    """transformers' image encoder of CLIP."""
    from transformers import CLIPVisionConfig, CLIPVisionModel

    return Hidden(CLIPVisionModel(CLIPVisionConfig(**config, attn_implementation="eager")), "pixel_values")


def clip_text(**config: Any) -> nn.Module:
    """transformers' text encoder of CLIP, over token ids."""
    from transformers import CLIPTextConfig, CLIPTextModel

    return Hidden(CLIPTextModel(CLIPTextConfig(**config, attn_implementation="eager")), "input_ids")
