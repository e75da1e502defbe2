"""Tiny models of transformers that see images, as packages in float32, and what transformers says of their prompts."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest
from llm_packages import DEMO_CHECKPOINT, compile_package
from minicpm import model_4_6, save_4_5
from oracle import logit_bound, random_weights
from vision_language import patches_for, random_model

from tcim_lite.llm import Package
from tcim_lite.llm.vision import VisionTower
from tcim_lite.models.families import FAMILIES

torch = pytest.importorskip("torch", reason="the oracle")
transformers = pytest.importorskip("transformers", reason="the oracle")
tokenizers = pytest.importorskip("tokenizers", reason="needs the extra [chat]")
Image = pytest.importorskip("PIL.Image", reason="needs the extra [images]")

# As real templates: text, or parts of which images are written as placeholders.
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n"
    "{% if message.content is string %}{{ message.content }}{% else %}{% for part in message.content %}"
    "{% if part.type == 'image' %}MARK{% else %}{{ part.text }}{% endif %}{% endfor %}{% endif %}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def png(height: int, width: int, seed: int) -> bytes:
    """A file with a random image."""
    made = io.BytesIO()
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)
    Image.fromarray(pixels).save(made, "PNG")
    return made.getvalue()


class GridModel:
    """A model whose image is one grid, with positions along three axes.

    Attributes:
        package: In float32.
        model: Of transformers.
    """

    special = ("<|vision_start|>", "<|image_pad|>", "<|vision_end|>")
    mark = "<|image_pad|>"
    written = "".join(special)

    def __init__(self, family: str, folder: Path, vision: str, **options: Any):
        self.folder = folder / "hf"
        self.folder.mkdir()
        self.tokenizer = tokenizers.Tokenizer.from_file(str(DEMO_CHECKPOINT / "tokenizer.json"))
        self.tokenizer.add_special_tokens(list(self.special))
        self.model = self.make(family)
        self.save()
        self.tokenizer.save(str(self.folder / "tokenizer.json"))
        shutil.copyfile(DEMO_CHECKPOINT / "tokenizer_config.json", self.folder / "tokenizer_config.json")
        (self.folder / "chat_template.jinja").write_text(TEMPLATE.replace("MARK", self.written))
        (self.folder / "preprocessor_config.json").write_text(json.dumps(self.processor()))
        sizes = {"prefill_length": 16, "context_length": 256, **options}
        self.package: Package = compile_package(self.folder, folder / "out", quant="float32", vision=vision, **sizes)

    def id(self, text: str) -> int:
        return self.tokenizer.token_to_id(text)

    def make(self, family: str) -> Any:
        model = random_model(family, vocab_size=self.tokenizer.get_vocab_size())
        model.config.image_token_id = self.id(self.mark)
        return model

    def save(self) -> None:
        self.model.save_pretrained(self.folder)

    def processor(self) -> dict[str, Any]:
        return {"image_mean": [0.5, 0.4, 0.5], "image_std": [0.5, 0.5, 0.3]}

    def seen(self, image: Any, count: int) -> dict[str, Any]:
        """What the model takes of an image of so many tokens; here it is stretched to the size of the graphs."""
        vision = self.model.config.vision_config
        cell = vision.patch_size * vision.spatial_merge_size
        size = self.size(image, cell)
        assert size[0] * size[1] == count * cell**2
        colours = np.asarray(image.resize(size[::-1], Image.Resampling.BICUBIC), np.float64).transpose(2, 0, 1) / 255
        own = self.processor()
        mean, deviation = (np.array(own[key])[:, None, None] for key in ("image_mean", "image_std"))
        patches, grid = patches_for(self.model, (colours - mean) / deviation, np.float32)
        return {"pixel_values": patches, "image_grid_thw": torch.tensor([grid])}

    def size(self, image: Any, cell: int) -> tuple[int, int]:
        return 64, 96

    def logits(self, ids: Any, **given: Any) -> Any:
        if hasattr(self.model.model, "rope_deltas"):
            self.model.model.rope_deltas = None
        return self.model(ids, **given).logits[0]

    def given(self, kinds: np.ndarray, images: Sequence[Any]) -> dict[str, Any]:
        """What the model takes of images, at tokens whose kind is 1."""
        ends = np.flatnonzero(np.diff(np.pad(kinds, 1)))
        seen = [self.seen(*each) for each in zip(images, ends[1::2] - ends[::2], strict=True)]
        return {
            "mm_token_type_ids": torch.tensor(kinds)[None],
            **{key: torch.cat([part[key] for part in seen]) for key in (seen[0] if seen else ())},
        }

    def sizes(self) -> Any:
        """Of the language model, for `logit_bound`."""
        return self.model.config.text_config

    def logprobs(self, tokens: Sequence[int], images: Sequence[bytes]) -> tuple[np.ndarray, float]:
        """By transformers, [N, V], and how far off ours may be."""
        ids = torch.tensor([list(tokens)])
        kinds = (ids == self.id(self.mark)).int()
        with torch.no_grad():
            given = self.given(kinds[0].numpy(), [Image.open(io.BytesIO(image)).convert("RGB") for image in images])
            logits = self.logits(ids, **given)
        # Twice: the logarithm of a sum is off by as much as a logit. And as much again for the sums of the tower.
        bound = 4 * logit_bound(self.sizes()) * float(logits.abs().max())
        return torch.log_softmax(logits, -1).numpy(), bound


class GearModel(GridModel):
    """As the class, with gears: an image keeps its proportions."""

    def size(self, image: Any, cell: int) -> tuple[int, int]:
        return VisionTower(self.package.folder, self.package.name).fitting(image.height, image.width)


class Gemma(GridModel):
    """Gemma 4, whose image is as its own processor makes it; `changes` are those of the language model."""

    special = ("<|image>", "<|image|>", "<image|>")
    mark = written = "<|image|>"
    changes: ClassVar[dict[str, Any]] = {}

    def make(self, family: str) -> Any:
        torch.manual_seed(3)
        own = {key: value for key, value in FAMILIES["gemma4"].tiny.items() if key != "sliding_window_pattern"}
        kinds = ["sliding_attention", "sliding_attention", "full_attention"]
        text = {**own, "num_hidden_layers": 3, "layer_types": kinds, "global_head_dim": 128, "pad_token_id": 2}
        size = self.tokenizer.get_vocab_size()
        config = transformers.Gemma4Config(
            text_config={**text, "vocab_size": size, "vocab_size_per_layer_input": size, **self.changes},
            vision_config=FAMILIES["gemma4"].vision.tiny,
            audio_config=None,
            image_token_id=self.id("<|image|>"),
            boi_token_id=self.id("<|image>"),
            eoi_token_id=self.id("<image|>"),
        )
        model = transformers.Gemma4ForConditionalGeneration._from_config(config, attn_implementation="eager")
        random_weights(model.float().eval())
        with torch.no_grad():
            for name, tensor in (*model.named_parameters(), *model.named_buffers()):
                if "position_embedding_table" in name or name.endswith("std_bias"):
                    tensor.copy_(torch.randn_like(tensor))
        return model

    def sizes(self) -> Any:
        own = FAMILIES["gemma4"].tiny
        return SimpleNamespace(**{**own, "head_dim": 128, "num_hidden_layers": 3})  # the larger of both kinds of layers

    def processor(self) -> dict[str, Any]:
        return {"max_soft_tokens": 70, "do_normalize": False}

    def seen(self, image: Any, count: int) -> dict[str, Any]:
        from transformers.models.gemma4.image_processing_pil_gemma4 import Gemma4ImageProcessorPil

        processor = Gemma4ImageProcessorPil(patch_size=8, max_soft_tokens=70)
        made = processor(image, return_tensors="pt")
        assert int(made["num_soft_tokens_per_image"][0]) == count
        return {key: made[key] for key in ("pixel_values", "image_position_ids")}


class GemmaWithLayerInputs(Gemma):
    """As E2B and E4B."""

    changes: ClassVar[dict[str, Any]] = {"hidden_size_per_layer_input": 16}


class GemmaThatSeesBothWays(Gemma):
    """As 26B-A4B and 31B: in layers with a window, tokens of an image see each other."""

    changes: ClassVar[dict[str, Any]] = {"use_bidirectional_attention": "vision"}


class MiniCpm46(GridModel):
    """MiniCPM-V 4.6: images of 48 x 48 pixels, and larger ones in slices of about as many."""

    special = ("<|image_pad|>", "<image>", "</image>", "<slice>", "</slice>", "<image_id>", "</image_id>")
    mark = written = "<|image_pad|>"

    def make(self, family: str) -> Any:
        return model_4_6(self.id(self.mark), vocab_size=self.tokenizer.get_vocab_size())

    def processor(self) -> dict[str, Any]:
        own = {"scale_resolution": 48, "patch_size": 6, "max_slice_nums": 4}
        return {"image_mean": [0.5, 0.4, 0.5], "image_std": [0.5, 0.5, 0.3], **own}

    def given(self, kinds: np.ndarray, images: Sequence[Any]) -> dict[str, Any]:
        from transformers.models.minicpmv4_6.image_processing_pil_minicpmv4_6 import MiniCPMV4_6ImageProcessorPil

        made = MiniCPMV4_6ImageProcessorPil(**self.processor())(list(images), return_tensors="pt")
        assert made["target_sizes"].prod(1).sum() == 16 * kinds.sum()
        return {key: made[key] for key in ("pixel_values", "target_sizes")}


class MiniCpm45(MiniCpm46):
    """MiniCPM-V 4.5, whose classes come with its checkpoint: its parts are those of minicpm.py."""

    special = ("<unk>", "<image>", "</image>", "<slice>", "</slice>", "<image_id>", "</image_id>")
    mark, written = "<unk>", "(<image>./</image>)"

    def make(self, family: str) -> Any:
        self.siglip, self.resampler, model = save_4_5(self.folder, vocab_size=self.tokenizer.get_vocab_size())
        return model

    def save(self) -> None:
        pass

    def sizes(self) -> Any:
        return self.model.config

    def processor(self) -> dict[str, Any]:
        own = {"scale_resolution": 48, "patch_size": 6, "max_slice_nums": 4}
        return {"norm_mean": [0.5, 0.4, 0.5], "norm_std": [0.5, 0.5, 0.3], **own}

    def given(self, kinds: np.ndarray, images: Sequence[Any]) -> dict[str, Any]:
        from transformers.models.minicpmv4_6.image_processing_pil_minicpmv4_6 import MiniCPMV4_6ImageProcessorPil

        class Processor(MiniCPMV4_6ImageProcessorPil):
            """Of 4.6, but slices are whole patches, not whole windows of windows."""

            def find_best_resize(self, image_size, scale_resolution, patch_size, *others, **more):
                found = super().find_best_resize(image_size, scale_resolution, patch_size / 4, *others, **more)
                return tuple(map(int, found))

        own = {key.replace("norm_", "image_"): value for key, value in self.processor().items()}
        made, features, begin = Processor(**own)(list(images), return_tensors="pt"), [], 0
        for rows, columns in made["target_sizes"].tolist():
            strip = made["pixel_values"][0, :, :, begin : begin + rows * columns * 6].reshape(3, 6, rows, columns, 6)
            pixels = strip.permute(0, 2, 1, 3, 4).reshape(3, rows * 6, columns * 6)
            features.append(self.resampler([self.siglip(pixels)], [(rows, columns)], [None]))
            begin += rows * columns * 6
        return {"places": torch.tensor(kinds).bool(), "features": torch.cat(features)}

    def logits(self, ids: Any, places: Any, features: Any) -> Any:
        rows = self.model.get_input_embeddings()(ids)
        rows[0, places] = features
        return self.model(inputs_embeds=rows).logits[0]
