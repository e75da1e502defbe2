"""What vLLM takes a package for: a model of text, of text and images where it has a vision tower, or of vectors.

vLLM prepares images, sounds and states for its own classes that say they take them, but a package has its own tower,
and slots that have their own states. So only a config whose class is one for text keeps that class.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from vllm.model_executor.models import registry
from vllm.model_executor.models.interfaces import SupportsMultiModal
from vllm.multimodal import MULTIMODAL_REGISTRY
from vllm.transformers_utils.config import HFConfigParser, PreTrainedConfig

from tcim_lite.llm import Package

from .case import Case
from .images import DummyImages, ImagesInfo, PackageImages
from .shape import Shape

ARCHITECTURE = "TcimPackageForCausalLM"
WITH_IMAGES = "TcimPackageForConditionalGeneration"
WITH_WRITTEN_MARKS = "TcimPackageWithWrittenMarks"
FOR_VECTORS = "TcimPackageForEmbedding"
_PASSED_ON = ("bos_token_id", "eos_token_id", "pad_token_id")


class PackageConfigParser(HFConfigParser):
    """Reads `config.json` of a package; of other folders as vLLM does."""

    def parse(
        self,
        model: str | Path,
        trust_remote_code: bool,
        revision: str | None = None,
        code_revision: str | None = None,
        **kwargs: Any,
    ) -> tuple[dict[str, Any], PreTrainedConfig]:
        """Returns what the file says, and the config."""
        shape = None
        try:
            found = super().parse(model, trust_remote_code, revision, code_revision, **kwargs)
            if not Path(model).is_dir():
                return found
            shape = _shape_of(model)
            if _is_of_text(found[1]) and not (shape.carries or shape.embeds or shape.sees):
                return _of_compiled(*found)
        except (OSError, ValueError):  # a model that only its own code knows, or no package: the platform says what
            if not Path(model).is_dir():
                raise
        said = json.loads((Path(model) / "config.json").read_bytes())
        config = _config(said, shape or _shape_of(model))
        return config.to_dict(), config


def _shape_of(model: str | Path) -> Shape:
    return Shape.read(Package.open(Case.read(model).folder))


def _of_compiled(said: dict[str, Any], config: PreTrainedConfig) -> tuple[dict[str, Any], PreTrainedConfig]:
    """What a checkpoint's weights were stored as says nothing of those of a package."""
    for key in ("quantization_config", "compression_config"):
        said.pop(key, None)
        if hasattr(config, key):
            delattr(config, key)
    return said, config


def _is_of_text(config: PreTrainedConfig) -> bool:
    """Whether the config names classes of vLLM for text."""
    named = config.architectures or []
    return bool(named) and all(name in registry._TEXT_GENERATION_MODELS for name in named)


def _config(said: dict[str, Any], shape: Shape) -> PreTrainedConfig:
    """A decoder of the package's sizes; those that vLLM lays caches out by mean nothing here."""
    inner = [value for key, value in said.items() if key.endswith("_config") and isinstance(value, dict)]
    with_images = WITH_WRITTEN_MARKS if said.get("model_type") == "minicpmv" else WITH_IMAGES
    ends = {key: each[key] for key in _PASSED_ON for each in (*inner, said) if each.get(key) is not None}
    return PreTrainedConfig(
        architectures=[FOR_VECTORS if shape.embeds else with_images if shape.sees else ARCHITECTURE],
        dtype="float16",
        vocab_size=_vocab_size(said) if shape.embeds else shape.vocab_size,
        max_position_embeddings=shape.context,
        hidden_size=shape.vocab_size if shape.embeds else 1,  # what vectors may be asked for
        num_hidden_layers=1,
        num_attention_heads=1,
        num_key_value_heads=1,
        head_dim=1,
        **ends,
    )


def _vocab_size(said: dict[str, Any]) -> int:
    """Of a config, or of the language model in it."""
    inner = [value for value in said.values() if isinstance(value, dict) and "vocab_size" in value]
    return int(next(each["vocab_size"] for each in (said, *inner) if "vocab_size" in each))


class PackageModel(torch.nn.Module):
    """Tells vLLM that a package generates text, also in stages. The worker has no such module."""

    supports_pp = True

    def __init__(self, *, vllm_config: Any, prefix: str = ""):
        super().__init__()
        raise NotImplementedError("packages are run by tcim_lite.vllm.worker")

    def embed_input_ids(self, input_ids: torch.Tensor) -> torch.Tensor:
        """As vLLM asks for."""
        raise NotImplementedError

    def forward(self, input_ids: torch.Tensor, positions: torch.Tensor, intermediate_tensors: Any = None) -> Any:
        """As vLLM asks for."""
        raise NotImplementedError

    def compute_logits(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """As vLLM asks for."""
        raise NotImplementedError

    def make_empty_intermediate_tensors(self, batch_size: int, dtype: torch.dtype, device: torch.device) -> Any:
        """As vLLM asks of models in stages."""
        raise NotImplementedError


@MULTIMODAL_REGISTRY.register_processor(PackageImages, info=ImagesInfo, dummy_inputs=DummyImages)
class PackageWithImages(PackageModel, SupportsMultiModal):
    """As the class, of a package with a vision tower, for whose images the chat template writes marks."""

    @classmethod
    def get_placeholder_str(cls, modality: str, i: int) -> str | None:
        """None: a template that takes text alone has no marks to be written."""
        return None


@MULTIMODAL_REGISTRY.register_processor(PackageImages, info=ImagesInfo, dummy_inputs=DummyImages)
class PackageWithWrittenMarks(PackageWithImages):
    """As the class, of MiniCPM-V 4.5, whose template takes text with marks in it."""

    @classmethod
    def get_placeholder_str(cls, modality: str, i: int) -> str | None:
        """What stands for an image in a message."""
        return "(<image>./</image>)"


class PackageForVectors(torch.nn.Module):
    """Tells vLLM that a package gives the hidden states of the last token."""

    is_pooling_model = True
    default_seq_pooling_type = "LAST"

    def __init__(self, *, vllm_config: Any, prefix: str = ""):
        super().__init__()
        raise NotImplementedError("packages are run by tcim_lite.vllm.worker")

    embed_input_ids = PackageModel.embed_input_ids
    forward = PackageModel.forward
