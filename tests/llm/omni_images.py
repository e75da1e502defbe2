"""The thinker of Qwen3-Omni and its images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from image_models import GridModel, Image
from qwen3_omni_checkpoint import random_omni

from tcim_lite.llm.vision import patches_of


class Omni(GridModel):
    """The thinker of Qwen3-Omni, whose package has other graphs beside it."""

    def make(self, family: str) -> Any:
        model = random_omni()
        model.thinker.resize_token_embeddings(self.tokenizer.get_vocab_size(), mean_resizing=False)
        model.config.thinker_config.image_token_id = self.id(self.mark)
        model.config.thinker_config.vision_start_token_id = self.id(self.special[0])
        return model

    def sizes(self) -> Any:
        return self.model.config.thinker_config.text_config

    def given(self, kinds: np.ndarray, images: Sequence[Any]) -> dict[str, Any]:
        vision, side = self.model.config.thinker_config.vision_config, 16
        assert vision.patch_size * vision.spatial_merge_size == side
        found = []
        for image in images:
            colours = np.asarray(image.resize((96, 64), Image.Resampling.BICUBIC), np.float64).transpose(2, 0, 1) / 255
            mean, deviation = (np.array(self.processor()[f"image_{key}"])[:, None, None] for key in ("mean", "std"))
            rows = patches_of((colours - mean) / deviation, side // 2, 2, vision.temporal_patch_size, np.float32)
            found.append(torch.tensor(rows))
        return {"pixel_values": torch.cat(found), "image_grid_thw": torch.tensor([[1, 8, 12]] * len(found))}

    def logits(self, ids: Any, **given: Any) -> Any:
        self.model.thinker.rope_deltas = None
        return self.model.thinker(ids, attention_mask=torch.ones_like(ids), **given).logits[0]
