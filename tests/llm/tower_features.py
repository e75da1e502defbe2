"""Images for vision towers, their features by transformers, and how near those of a package come."""

from __future__ import annotations

import numpy as np
import torch
from vision_language import features_of, patches_for

# Largest difference of a feature over the largest feature: fp32 sums in another order; roundings to fp16, and of codes,
# over four layers. And the least cosine.
LIMITS = {"float32": (4e-6, 1 - 1e-10), "float16": (4e-3, 1 - 1e-6), "w8a8h1_sefp": (0.05, 0.9995)}
# Codes cost a Linear 1.2% of the norm of its results, or 2% where few inputs are large, and squares of errors add up.
# Layers leave 0.6%, because residuals pass them by. Two Linears follow in mergers of Qwen; in that of GLM-OCR three, a
# product, whose factors both err, and one with few large inputs: sqrt(2 * (0.6^2 + 3 * 1.2^2) + 2^2) = 3.7%. A cosine
# of 0.999 stands for 4.5%, and one of 0.9995 for 3.2%; the largest difference is 1.6 times as much in both.
GLM_CODES = (0.072, 0.999)
GEARS = "6,24,35"


def expected(model, pixels: np.ndarray) -> list[np.ndarray]:
    """Features of an image, of transformers."""
    patches, grid = patches_for(model, pixels)
    return [part.numpy() for part in features_of(model, patches, [grid])]


def image(height: int, width: int) -> np.ndarray:
    return np.random.default_rng(1).uniform(-1, 1, (3, height, width)).astype(np.float16)


def sizes(family: str, height: int, width: int) -> tuple[str, str]:
    return "--vision", GEARS if family == "qwen3_5" else f"{height}x{width}"


def ends(family: str) -> list[str]:
    """Of the graphs for images of 80 x 112."""
    known = {
        "qwen2_vl": ["_80x112"],
        "paddleocr_vl": ["_112x80"],  # the width first, as in the next
        "glm_ocr": ["_112x80x2"],
        "qwen3_5": [f"_m{gear}" for gear in GEARS.split(",")],
    }
    return known.get(family, [""])


class Exported(torch.nn.Module):
    """A tower for the patches of one image, as torch's older exporter takes it."""

    def __init__(self, visual: torch.nn.Module, rows: int, columns: int):
        super().__init__()
        self.visual, self.grid = visual, torch.tensor([[1, rows, columns]])

    def forward(self, patches: torch.Tensor) -> torch.Tensor:
        return self.visual(patches, grid_thw=self.grid, return_dict=True).pooler_output
