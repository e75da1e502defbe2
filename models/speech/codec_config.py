"""The codecs of Qwen3-TTS and Qwen3-Omni: what `config.json` says, and which tensors they have."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..checkpoints.checkpoint import Checkpoint
from ..common.config_keys import Key, KeyValues, Only, read_keys
from ..common.config_rules import object_in, read_rope
from ..common.errors import CompileError
from .attention_network import rotation
from .tensor_shapes import Shapes, conv_shapes, linear_shapes, snake_shapes, up_shapes

MODEL_TYPE = "qwen3_tts_tokenizer_12hz"
_TITLE = "the codec of Qwen3-TTS"
_FEWEST_GROUPS = 2  # the first book, and those of the rest

# Defaults are those of the published class.
_KEYS: tuple[Key | Only, ...] = (
    Key("codebook_size", absent=2048),
    Key("codebook_dim", absent=512),
    Key("hidden_size", absent=1024),
    Key("latent_dim", absent=1024),
    Key("intermediate_size", absent=3072),
    Key("decoder_dim", absent=1536),
    Key("num_attention_heads", absent=16),
    Key("num_key_value_heads", absent=16),
    Key("head_dim", absent=lambda values: values["hidden_size"] // values["num_attention_heads"]),
    Key("num_hidden_layers", absent=8),
    Key("num_quantizers", absent=16),
    Key("sliding_window", absent=72),
    Key("rms_norm_eps", "number", absent=1e-5),
    Key("rope_theta", "number", absent=10000.0),
    Key("upsample_rates", "layers", absent=(8, 5, 4, 3)),
    Key("upsampling_ratios", "layers", absent=(2, 2)),
    Only("hidden_act", "silu"),
    Only("attention_bias", False),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CodecConfig(KeyValues):
    """Sizes of the decoder, and its tensors.

    Attributes:
        tensors: Where they are.
        prefix: What their names begin with.
        embedded: Codes are looked up in one table, whose rows are as long as those of the transformer; they are
            codebooks with projections otherwise.
        ahead: Transposed convolutions lack what lies before the first input, too, so a sound is somewhat shorter.
    """

    tensors: Checkpoint
    prefix: str = "decoder."
    embedded: bool = False
    ahead: bool = False

    @property
    def samples(self) -> int:
        """Of a frame."""
        return int(math.prod([*self["upsample_rates"], *self["upsampling_ratios"]]))

    def rotation(self, positions: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """cos and sin of so many positions, [positions, head_dim]."""
        return rotation(positions, self["head_dim"], self["rope_theta"])

    def shapes(self) -> Shapes:
        """Yields the names of all tensors, below the prefix, and their shapes."""
        if self.embedded:
            yield "code_embedding.weight", (self["num_quantizers"] * self["codebook_size"], self["hidden_size"])
        else:
            yield from self._quantizer_shapes()
        yield from self._transformer_shapes()
        yield from self._decoder_shapes()

    def _quantizer_shapes(self) -> Shapes:
        width, hidden, latent = self["codebook_dim"], self["hidden_size"], self["latent_dim"]
        for group in range(self["num_quantizers"]):
            book = f"quantizer.{self.part_of(group)}._codebook"
            yield f"{book}.cluster_usage", (self["codebook_size"],)
            yield f"{book}.embedding_sum", (self["codebook_size"], width // 2)
        for part in ("rvq_first", "rvq_rest"):
            yield f"quantizer.{part}.output_proj.weight", (width, width // 2, 1)
        yield from conv_shapes("pre_conv.conv", latent, width, 3)
        yield from linear_shapes("pre_transformer.input_proj", hidden, latent)
        yield from linear_shapes("pre_transformer.output_proj", latent, hidden)

    def _transformer_shapes(self) -> Shapes:
        hidden = self["hidden_size"]
        yield "pre_transformer.norm.weight", (hidden,)
        inner, heads = self["intermediate_size"], self["num_attention_heads"] * self["head_dim"]
        for layer in range(self["num_hidden_layers"]):
            here = f"pre_transformer.layers.{layer}"
            for vector in ("input_layernorm.weight", "post_attention_layernorm.weight"):
                yield f"{here}.{vector}", (hidden,)
            for vector in ("self_attn_layer_scale.scale", "mlp_layer_scale.scale"):
                yield f"{here}.{vector}", (hidden,)
            for name in "qkv":
                yield f"{here}.self_attn.{name}_proj.weight", (heads, hidden)
            yield f"{here}.self_attn.o_proj.weight", (hidden, heads)
            for name in ("gate", "up"):
                yield f"{here}.mlp.{name}_proj.weight", (inner, hidden)
            yield f"{here}.mlp.down_proj.weight", (hidden, inner)

    def _decoder_shapes(self) -> Shapes:
        latent = self["latent_dim"]
        for index, ratio in enumerate(self["upsampling_ratios"]):
            yield from up_shapes(f"upsample.{index}.0.conv", latent, latent, ratio)
            here = f"upsample.{index}.1"
            yield from conv_shapes(f"{here}.dwconv.conv", latent, 1, 7)
            yield from ((f"{here}.{vector}", (latent,)) for vector in ("norm.weight", "norm.bias", "gamma"))
            yield from linear_shapes(f"{here}.pwconv1", 4 * latent, latent)
            yield from linear_shapes(f"{here}.pwconv2", latent, 4 * latent)
        rates, wide = self["upsample_rates"], self["decoder_dim"]
        yield from conv_shapes("decoder.0.conv", wide, self["latent_dim"], 7)
        for index, rate in enumerate(rates, 1):
            here, narrow = f"decoder.{index}.block", self["decoder_dim"] // 2**index
            yield from snake_shapes(f"{here}.0", wide)
            yield from up_shapes(f"{here}.1.conv", wide, narrow, 2 * rate)
            for unit in (2, 3, 4):
                for number, taps in ((1, 7), (2, 1)):
                    yield from snake_shapes(f"{here}.{unit}.act{number}", narrow)
                    yield from conv_shapes(f"{here}.{unit}.conv{number}.conv", narrow, narrow, taps)
            wide = narrow
        yield from snake_shapes(f"decoder.{len(rates) + 1}", wide)
        yield from conv_shapes(f"decoder.{len(rates) + 2}.conv", 1, wide, 7)

    @staticmethod
    def part_of(group: int) -> str:
        """Where the book of a code is."""
        return "rvq_first.vq.layers.0" if group == 0 else f"rvq_rest.vq.layers.{group - 1}"


def read_codec(raw: Mapping[str, Any], tensors: Checkpoint) -> CodecConfig:
    """Reads the `decoder_config` of a parsed `config.json` of the folder `speech_tokenizer`, and checks the tensors.

    Raises:
        CompileError: A value that is malformed or not supported, sizes that do not fit together, or a tensor that is
            missing or has another shape.
    """
    where = "speech_tokenizer/config.json"
    section = object_in(raw, "decoder_config", where)
    config = CodecConfig(values=read_keys(_KEYS, section, _TITLE), tensors=tensors)
    _check(config, where, _TITLE)
    return config


def read_code2wav(raw: Mapping[str, Any], tensors: Checkpoint) -> CodecConfig:
    """Reads the `code2wav_config` of a parsed `config.json` of Qwen3-Omni, likewise."""
    section, title = object_in(raw, "code2wav_config"), "the codec of Qwen3-Omni"
    theta = plain_theta(section, "code2wav_config", title)
    values = {**read_keys(_KEYS, {**section, "rope_theta": theta}, title)}
    values["latent_dim"] = values["hidden_size"]
    config = CodecConfig(values=values, tensors=tensors, prefix="code2wav.", embedded=True, ahead=True)
    _check(config, "config.json", title)
    return config


def plain_theta(section: Mapping[str, Any], where: str, title: str) -> float:
    """Reads the RoPE of a codec, whose frequencies nothing scales."""
    theta, scaling = read_rope(section, 1, {}, 10000.0)
    if scaling["rope_type"] != "default":
        raise CompileError(f"{where}: rope_type={scaling['rope_type']!r} is not supported by {title}")
    return theta


def _check(config: CodecConfig, where: str, title: str) -> None:
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    halved = 2 ** len(config["upsample_rates"])
    problems = {
        f"num_key_value_heads={kv_heads}": heads != kv_heads,
        f"head_dim={config['head_dim']}": config["head_dim"] % 2,
        f"codebook_dim={config['codebook_dim']}": config["codebook_dim"] % 2,
        f"num_quantizers={config['num_quantizers']}": config["num_quantizers"] < _FEWEST_GROUPS,
        f"upsample_rates={config['upsample_rates']}": not all(config["upsample_rates"]),
        f"upsampling_ratios={config['upsampling_ratios']}": not all(config["upsampling_ratios"]),
        f"decoder_dim={config['decoder_dim']}": config["decoder_dim"] % halved,
    }
    for problem, there in problems.items():
        if there:
            raise CompileError(
                f"{where}: {problem} is not supported by {title}; expected as many "
                f"num_key_value_heads as the {heads} heads, an even head_dim and codebook_dim, {_FEWEST_GROUPS} "
                f"num_quantizers or more, rates and ratios from 1 on, and a decoder_dim that is a multiple of {halved}"
            )
    for name, shape in config.shapes():
        config.tensors.check(f"{config.prefix}{name}", shape)
