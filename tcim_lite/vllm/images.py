"""Images of requests: prepared where vLLM reads requests, seen by the tower where the package runs.

vLLM's own classes prepare images for their towers in torch, which take images of many sizes. The towers of a package
take those that they were compiled for, so an image is prepared as `tcim-lite serve` does it (`tcim_lite.llm.images`):
answers are the same. Between the two, vLLM carries the pixels and where in the prompt they belong.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from vllm.exceptions import VLLMValidationError
from vllm.multimodal.inputs import MultiModalFieldConfig
from vllm.multimodal.processing import (
    BaseDummyInputsBuilder,
    BaseMultiModalProcessor,
    BaseProcessingInfo,
    PromptReplacement,
    PromptUpdateDetails,
)

from tcim_lite.llm import Package
from tcim_lite.llm.graph_file import GraphFile, modules_on
from tcim_lite.llm.images import MediaError, read_image
from tcim_lite.llm.images.prompts import image_reader
from tcim_lite.llm.mixed_prompt import Features, MixedPrompt

from .case import Case

_KEPT_BYTES = 256 << 20  # of features of images that came before


class ImagesInfo(BaseProcessingInfo):
    """What vLLM asks of a model about its images."""

    @cached_property
    def reader(self) -> Any:
        """What prepares images; raises ValueError where the package's configs lack something."""
        package = Package.open(Case.read(self.model_id).folder)
        try:
            return image_reader(package, self.get_tokenizer().backend_tokenizer, GraphFile)
        except (FileNotFoundError, MediaError, ImportError, AttributeError) as error:
            raise ValueError(
                f"{package.folder} cannot be asked about images: {error}; for text alone pass --limit-mm-per-prompt "
                "'{\"image\": 0}'"
            ) from error

    @cached_property
    def chunk_length(self) -> int:
        """Tokens that a prefill run takes."""
        package = Package.open(Case.read(self.model_id).folder)
        prefill = GraphFile(package.prefill_path)
        return prefill.get_input_info(prefill.get_input_name(0)).shape[1]

    def get_supported_mm_limits(self) -> Mapping[str, int | None]:
        """Any number of images."""
        return {"image": None}

    def get_mm_max_tokens_per_item(self, seq_len: int, mm_counts: Mapping[str, int]) -> Mapping[str, int]:
        """Of an image, as the towers were compiled."""
        return {"image": self.reader.most_tokens}

    def get_supported_mm_processor_kwargs(self) -> dict[str, set[str]]:
        """None: sizes are those of the graphs."""
        return {"text_kwargs": set(), "images_kwargs": set()}


class DummyImages(BaseDummyInputsBuilder[ImagesInfo]):
    """What vLLM warms the processor up with."""

    def get_dummy_text(self, mm_counts: Mapping[str, int]) -> str:
        """A mark for each image."""
        return str(self.info.reader.mark) * mm_counts.get("image", 0)

    def get_dummy_mm_data(self, seq_len: int, mm_counts: Mapping[str, int], mm_options: Any) -> dict[str, Any]:
        """Images of a usual size."""
        count = mm_counts.get("image", 0)
        return {"image": self._get_dummy_images(width=224, height=224, num_images=count)}


class PackageImages(BaseMultiModalProcessor[ImagesInfo]):
    """From images in a request to what the worker gives to the tower, and to the tokens that stand for them."""

    def _apply_hf_processor_main(self, mm_items: Any, hf_kwargs: Mapping[str, object]) -> Any:
        if hf_kwargs:
            raise VLLMValidationError(
                f"mm_processor_kwargs={dict(hf_kwargs)}: images have the sizes that the package was compiled for; "
                "leave them out",
                parameter="mm_processor_kwargs",
            )
        pixels, texts = [], []
        for image in mm_items.get_items("image", object) if mm_items.get_count("image", strict=False) else ():
            try:
                prepared = self.info.reader.prepare(read_image(_as_pillow(image)).convert("RGB"))
            except (OSError, ValueError) as error:
                raise VLLMValidationError(str(error), parameter="image") from None
            self._check_length(sum(prepared.counts))
            is_list = isinstance(prepared.inputs, list)
            parts = [
                torch.from_numpy(np.ascontiguousarray(each))
                for each in (prepared.inputs if is_list else [prepared.inputs])
            ]
            pixels.append(parts if is_list else parts[0])
            texts.append(torch.tensor(self._ids(prepared.text)))
        return {"pixels": pixels, "stands_for_it": texts}

    def _check_length(self, count: int) -> None:
        if self.info.reader.sees_itself and count > self.info.chunk_length:
            raise VLLMValidationError(
                f"an image of {count} tokens, which see each other, has to be in one run, and a run takes "
                f"{self.info.chunk_length}; compile with --prefill-length {count} or more",
                parameter="image",
            )

    def _get_mm_fields_config(
        self, hf_inputs: Any, hf_processor_mm_kwargs: Mapping[str, object]
    ) -> Mapping[str, MultiModalFieldConfig]:
        return {name: MultiModalFieldConfig.batched("image") for name in ("pixels", "stands_for_it")}

    def _get_prompt_updates(
        self, mm_items: Any, hf_processor_mm_kwargs: Mapping[str, object], out_mm_kwargs: Any
    ) -> Sequence[PromptReplacement]:
        reader = self.info.reader

        def replacement(index: int) -> PromptUpdateDetails:
            own = out_mm_kwargs["image"][index]["stands_for_it"].data.tolist()
            return PromptUpdateDetails.select_token_id(self._ids(reader.before(index)) + own, reader.placeholder)

        return [PromptReplacement("image", self._ids(reader.mark), replacement)]

    def _recompute_cached_prompt_update(self, cached_update: Any, new_item_idx: int) -> Any:
        """The number of an image may stand before it."""
        found = super()._recompute_cached_prompt_update(cached_update, new_item_idx)
        before, now = (self._ids(self.info.reader.before(number)) for number in (cached_update.item_idx, new_item_idx))
        if before == now:
            return found
        own = now + cached_update.content.full[len(before) :]
        return found.with_content(PromptUpdateDetails.select_token_id(own, self.info.reader.placeholder))

    def _ids(self, text: str) -> list[int]:
        found: list[int] = self.info.get_tokenizer().encode(text, add_special_tokens=False) if text else []
        return found


def _as_pillow(image: Any) -> Any:
    """An image as vLLM takes them: of Pillow, or colours of 0 to 255 as an array or a tensor, channels first or last.

    Raises:
        ValueError: Anything else.
    """
    from PIL import Image

    if isinstance(image, Image.Image):
        return image
    values = np.asarray(image)
    if values.ndim == 3 and values.shape[0] in (1, 3) and values.shape[2] not in (1, 3):
        values = values.transpose(1, 2, 0)
    if values.dtype != np.uint8 or values.ndim != 3 or values.shape[2] not in (1, 3):
        raise ValueError(
            f"an image of {values.dtype} {list(values.shape)}: expected one of Pillow, or uint8 [height, width, 3]"
        )
    return Image.fromarray(values[..., 0] if values.shape[2] == 1 else np.ascontiguousarray(values))


class SeenImages:
    """The worker's half: prompts with the features of their images.

    Args:
        package: With a tower.
        tokenizer: Its own.
        weights: A `WeightManager` of the device that the tower runs on.

    Raises:
        FileNotFoundError, MediaError, TcimError: As `image_reader`.
    """

    def __init__(self, package: Package, tokenizer: Any, weights: Any):
        self._reader = image_reader(package, tokenizer.backend_tokenizer, modules_on(weights))
        self._known: OrderedDict[str, list[Features]] = OrderedDict()

    def prompt(self, tokens: Sequence[int], images: Sequence[Any]) -> MixedPrompt:
        """A prompt with its images, of which those that are new go to the tower now.

        Args:
            tokens: Of the prompt.
            images: vLLM's `MultiModalFeatureSpec` of each, in order.
        """
        places = []
        for image in images:
            where, begin = image.mm_position, 0
            own = np.arange(where.offset, where.offset + where.length)
            if where.is_embed is not None:
                own = own[np.asarray(where.is_embed)]
            for features in self._features(image):
                places.append((int(own[begin]), features))
                begin += len(features)
        return MixedPrompt(tokens, places, self._reader.stand_in)

    def forget(self) -> None:
        """Has images that come again go to the tower again."""
        self._known.clear()

    def _features(self, image: Any) -> list[Features]:
        name = image.identifier
        if (found := self._known.pop(name, None)) is None:
            pixels = image.data.get_data()["pixels"]
            is_list = isinstance(pixels, (list, tuple))
            found = self._reader.see([np.asarray(part) for part in pixels] if is_list else np.asarray(pixels))
        self._known[name] = found
        while len(self._known) > 1 and sum(map(_bytes_of, self._known.values())) > _KEPT_BYTES:
            self._known.popitem(last=False)
        return found


def _bytes_of(features: Sequence[Features]) -> int:
    return sum(part.nbytes for each in features for part in (each.rows, *each.deepstack))
